//! The kernels behind one object-safe trait, chosen once. A class has the same bits on every processor that has it.

use std::ops::Range;

use crate::activations::{self, Activations, CodedLayout, Coding};
use crate::attention::{self, AttentionTask};
use crate::columns::Columns;
use crate::isa::{Isa, scalar::Scalar};
use crate::kv::KvLayout;
use crate::probe::{self, PeakLoop};
use crate::processor::slow_bf16_dot;
use crate::schemes::Scheme;
use crate::tile::Tiles;
use crate::{elementwise, matmul};

/// An instruction set with one definite arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelClass {
    /// Plain Rust.
    Scalar,
    /// AVX2, FMA, F16C.
    Avx2,
    /// The same with byte dot products.
    AvxVnni,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
    /// The same with byte dot products.
    Avx512Vnni,
    /// The same with byte dot products and dot products of bf16 pairs, which take denormals for zero.
    Avx512Bf16,
    /// NEON with byte dot products (DotProd), as Arm's processors have them since about 2018.
    Neon,
    /// The same with byte dot products of unsigned and signed bytes (I8MM).
    NeonI8mm,
}

impl KernelClass {
    /// Every class, lower ones first.
    pub const ALL: &'static [KernelClass] = &[
        KernelClass::Scalar,
        KernelClass::Avx2,
        KernelClass::AvxVnni,
        KernelClass::Avx512,
        KernelClass::Avx512Vnni,
        KernelClass::Avx512Bf16,
        KernelClass::Neon,
        KernelClass::NeonI8mm,
    ];

    /// The name, as flags and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            KernelClass::Scalar => "scalar",
            KernelClass::Avx2 => "avx2",
            KernelClass::AvxVnni => "avx-vnni",
            KernelClass::Avx512 => "avx512",
            KernelClass::Avx512Vnni => "avx512-vnni",
            KernelClass::Avx512Bf16 => "avx512-bf16",
            KernelClass::Neon => "neon",
            KernelClass::NeonI8mm => "neon-i8mm",
        }
    }

    /// The class of that name.
    pub fn from_name(name: &str) -> Option<KernelClass> {
        KernelClass::ALL.iter().copied().find(|c| c.name() == name)
    }

    /// The classes that this machine can run, lower ones first.
    pub fn available() -> Vec<KernelClass> {
        KernelClass::ALL.iter().copied().filter(|&class| select(class).is_some()).collect()
    }

    /// The fastest class that this machine can run: the highest, but for AVX-512 BF16 on processors that take longer for
    /// a dot product of pairs than for the two multiply-adds that it stands for.
    pub fn best() -> KernelClass {
        let slow = |class: &KernelClass| *class == KernelClass::Avx512Bf16 && slow_bf16_dot();
        let mut fast = KernelClass::available().into_iter().filter(|class| !slow(class));
        fast.next_back().unwrap_or(KernelClass::Scalar)
    }
}

/// The kernels of a class, where this machine can run it.
pub fn select(class: KernelClass) -> Option<&'static dyn Kernels> {
    match class {
        KernelClass::Scalar => Some(&On { isa: Scalar, class: KernelClass::Scalar }),
        #[cfg(target_arch = "x86_64")]
        _ => x86::select(class),
        #[cfg(target_arch = "aarch64")]
        _ => arm::select(class),
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        _ => None,
    }
}

/// What was detected, as kernels.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn offer<K: Kernels>(found: &'static Option<K>) -> Option<&'static dyn Kernels> {
    found.as_ref().map(|kernels| kernels as &dyn Kernels)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::sync::LazyLock;

    use super::{KernelClass, Kernels, On, offer};
    use crate::isa::{avx2::Avx2, avx512::Avx512};

    /// What was detected, once.
    struct Found {
        avx2: Option<On<Avx2<false>>>,
        avx_vnni: Option<On<Avx2<true>>>,
        avx512: Option<On<Avx512<false, false>>>,
        avx512_vnni: Option<On<Avx512<true, false>>>,
        avx512_bf16: Option<On<Avx512<true, true>>>,
    }

    static FOUND: LazyLock<Found> = LazyLock::new(|| Found {
        avx2: On::new(Avx2::detect(), KernelClass::Avx2),
        avx_vnni: On::new(Avx2::detect(), KernelClass::AvxVnni),
        avx512: On::new(Avx512::detect(), KernelClass::Avx512),
        avx512_vnni: On::new(Avx512::detect(), KernelClass::Avx512Vnni),
        avx512_bf16: On::new(Avx512::detect(), KernelClass::Avx512Bf16),
    });

    pub(super) fn select(class: KernelClass) -> Option<&'static dyn Kernels> {
        match class {
            KernelClass::Avx2 => offer(&FOUND.avx2),
            KernelClass::AvxVnni => offer(&FOUND.avx_vnni),
            KernelClass::Avx512 => offer(&FOUND.avx512),
            KernelClass::Avx512Vnni => offer(&FOUND.avx512_vnni),
            KernelClass::Avx512Bf16 => offer(&FOUND.avx512_bf16),
            KernelClass::Scalar | KernelClass::Neon | KernelClass::NeonI8mm => None,
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::sync::LazyLock;

    use super::{KernelClass, Kernels, On, offer};
    use crate::isa::neon::Neon;

    /// What was detected, once.
    struct Found {
        neon: Option<On<Neon<false>>>,
        neon_i8mm: Option<On<Neon<true>>>,
    }

    static FOUND: LazyLock<Found> = LazyLock::new(|| Found {
        neon: On::new(Neon::detect(), KernelClass::Neon),
        neon_i8mm: On::new(Neon::detect(), KernelClass::NeonI8mm),
    });

    pub(super) fn select(class: KernelClass) -> Option<&'static dyn Kernels> {
        match class {
            KernelClass::Neon => offer(&FOUND.neon),
            KernelClass::NeonI8mm => offer(&FOUND.neon_i8mm),
            _ => None,
        }
    }
}

/// What a CPU backend calls. Each call works on one thread; dividing the work is the caller's business, and no division
/// along rows, tokens, panels or heads changes a bit.
///
/// Lengths must be those of the layouts and shapes given: kernels panic on others, which only a fault in the caller
/// can bring about.
pub trait Kernels: Send + Sync {
    /// Which class this is.
    fn class(&self) -> KernelClass;

    /// What a product with weights of `scheme` makes of its input, `activations` being the coarsest that is allowed.
    fn coding(&self, scheme: Scheme, activations: Activations) -> Coding;

    /// Codes token blocks `blocks` of `x`, `[tokens, cols]`, into `dst`, the bytes of those blocks
    /// (`layout.byte_range(blocks)`).
    fn code(&self, layout: &CodedLayout, x: &[f32], blocks: Range<usize>, dst: &mut [u8]);

    /// Multiplies the rows of `panels` with every coded token. `out` is `[tokens, rows of those panels]`: 16 columns a
    /// panel, the matrix's last panel perhaps fewer.
    ///
    /// The input must have a coding that [`Kernels::coding`] gave for the weights' scheme.
    fn matmul(
        &self,
        weights: Tiles<'_>,
        layout: &CodedLayout,
        coded: &[u8],
        panels: Range<usize>,
        out: Columns<'_>,
    );

    /// `out = x / sqrt(mean(x^2) + eps) * weight` for each row of `x`, `[rows, weight.len()]`.
    fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]);

    /// RMS norm of one head in place, then NEOX rotation: pairs are (i, i + head_dim / 2), `cos` and `sin` of their
    /// angles `[head_dim / 2]`.
    fn norm_rope(&self, head: &mut [f32], weight: &[f32], eps: f32, cos: &[f32], sin: &[f32]);

    /// `gate = silu(gate) * up`, silu(x) = x / (1 + exp(-x)).
    fn swiglu(&self, gate: &mut [f32], up: &[f32]);

    /// `x += y`.
    fn add(&self, x: &mut [f32], y: &[f32]);

    /// Stores the keys and values of consecutive positions, `[positions, n_kv_heads * head_dim]` each, at the slots of a
    /// block from `slot` on.
    fn write_kv(&self, layout: &KvLayout, block: &mut [u8], slot: usize, k: &[f32], v: &[f32]);

    /// Causal grouped-query attention over a paged cache.
    fn attention(&self, task: AttentionTask<'_>);

    /// Merges the spans that [`Attended::Span`](crate::attention::Attended::Span) left of one query row and kv head:
    /// `states` is `[spans, queries, span_state_len]` from the first span on and changed, `out` `[queries, head_dim]`.
    fn merge_spans(&self, layout: &KvLayout, states: &mut [f32], out: &mut [f32]);

    /// Runs a loop that stays in registers, with one of [`probe::CHAINS`] independent sums, and returns the
    /// multiplications and additions done.
    fn peak_loop(&self, which: PeakLoop, chains: usize, rounds: usize) -> u64;

    /// Reads every whole line of 64 bytes, ascending, and returns a sum of them all.
    fn read(&self, bytes: &[u8]) -> f32;
}

/// The kernels on one instruction set: the one implementation of [`Kernels`].
struct On<I> {
    isa: I,
    class: KernelClass,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<I> On<I> {
    fn new(isa: Option<I>, class: KernelClass) -> Option<On<I>> {
        isa.map(|isa| On { isa, class })
    }
}

impl<I: Isa> Kernels for On<I> {
    fn class(&self) -> KernelClass {
        self.class
    }

    fn coding(&self, scheme: Scheme, activations: Activations) -> Coding {
        Coding::of::<I>(scheme, activations)
    }

    fn code(&self, layout: &CodedLayout, x: &[f32], blocks: Range<usize>, dst: &mut [u8]) {
        activations::code(self.isa.of_floats(), layout, x, blocks, dst);
    }

    fn matmul(
        &self,
        weights: Tiles<'_>,
        layout: &CodedLayout,
        coded: &[u8],
        panels: Range<usize>,
        out: Columns<'_>,
    ) {
        matmul::matmul(self.isa, weights, layout, coded, panels, out);
    }

    fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        elementwise::rms_norm(self.isa.of_floats(), x, weight, eps, out);
    }

    fn norm_rope(&self, head: &mut [f32], weight: &[f32], eps: f32, cos: &[f32], sin: &[f32]) {
        elementwise::norm_rope(self.isa.of_floats(), head, weight, eps, cos, sin);
    }

    fn swiglu(&self, gate: &mut [f32], up: &[f32]) {
        elementwise::swiglu(self.isa.of_floats(), gate, up);
    }

    fn add(&self, x: &mut [f32], y: &[f32]) {
        elementwise::add(self.isa.of_floats(), x, y);
    }

    fn write_kv(&self, layout: &KvLayout, block: &mut [u8], slot: usize, k: &[f32], v: &[f32]) {
        let isa = self.isa.of_floats();
        isa.vectorize(
            #[inline(always)]
            || layout.write_slots(isa, block, slot, k, v),
        );
    }

    fn attention(&self, task: AttentionTask<'_>) {
        attention::attention(self.isa, task);
    }

    fn merge_spans(&self, layout: &KvLayout, states: &mut [f32], out: &mut [f32]) {
        attention::merge_spans(self.isa.of_floats(), layout, states, out);
    }

    fn peak_loop(&self, which: PeakLoop, chains: usize, rounds: usize) -> u64 {
        probe::peak_loop(self.isa, which, chains, rounds)
    }

    fn read(&self, bytes: &[u8]) -> f32 {
        probe::read(self.isa.of_floats(), bytes)
    }
}
