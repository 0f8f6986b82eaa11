//! The kernels behind one object-safe trait, chosen once. A class has the same bits on every processor that has it;
//! so far all classes have the same bits as each other.

use std::ops::Range;

use crate::activations::{self, CodedLayout};
use crate::attention::{self, AttentionTask};
use crate::columns::Columns;
use crate::isa::{Isa, scalar::Scalar};
use crate::kv::KvLayout;
use crate::tile::Tiles;
use crate::{elementwise, matmul};

#[cfg(target_arch = "x86_64")]
use crate::isa::{avx2::Avx2, avx512::Avx512};

/// An instruction set with one definite arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelClass {
    /// Plain Rust.
    Scalar,
    /// AVX2, FMA, F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
}

impl KernelClass {
    /// Every class, slowest first.
    pub const ALL: &'static [KernelClass] = &[KernelClass::Scalar, KernelClass::Avx2, KernelClass::Avx512];

    /// The name, as flags and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            KernelClass::Scalar => "scalar",
            KernelClass::Avx2 => "avx2",
            KernelClass::Avx512 => "avx512",
        }
    }

    /// The class of that name.
    pub fn from_name(name: &str) -> Option<KernelClass> {
        KernelClass::ALL.iter().copied().find(|c| c.name() == name)
    }

    /// The classes that this machine can run, slowest first.
    pub fn available() -> Vec<KernelClass> {
        KernelClass::ALL.iter().copied().filter(|&class| select(class).is_some()).collect()
    }

    /// The fastest class that this machine can run.
    pub fn best() -> KernelClass {
        KernelClass::available().last().copied().unwrap_or(KernelClass::Scalar)
    }
}

/// The kernels of a class, where this machine can run it.
pub fn select(class: KernelClass) -> Option<&'static dyn Kernels> {
    match class {
        KernelClass::Scalar => Some(&On { isa: Scalar, class: KernelClass::Scalar }),
        #[cfg(target_arch = "x86_64")]
        KernelClass::Avx2 => {
            static AVX2: std::sync::LazyLock<Option<On<Avx2>>> =
                std::sync::LazyLock::new(|| Some(On { isa: Avx2::detect()?, class: KernelClass::Avx2 }));
            AVX2.as_ref().map(|kernels| kernels as &dyn Kernels)
        }
        #[cfg(target_arch = "x86_64")]
        KernelClass::Avx512 => {
            static AVX512: std::sync::LazyLock<Option<On<Avx512>>> =
                std::sync::LazyLock::new(|| Some(On { isa: Avx512::detect()?, class: KernelClass::Avx512 }));
            AVX512.as_ref().map(|kernels| kernels as &dyn Kernels)
        }
        #[cfg(not(target_arch = "x86_64"))]
        _ => None,
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

    /// Codes token blocks `blocks` of `x`, `[tokens, cols]`, into `dst`, the bytes of those blocks
    /// (`layout.byte_range(blocks)`).
    fn code(&self, layout: &CodedLayout, x: &[f32], blocks: Range<usize>, dst: &mut [u8]);

    /// Multiplies the rows of `panels` with every coded token. `out` is `[tokens, rows of those panels]`: 16 columns a
    /// panel, the matrix's last panel perhaps fewer.
    ///
    /// Weights without codes (f32, f16, bf16) cannot meet s8 activations; see `Activations::for_scheme`.
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

    /// Stores the keys and values of one position, `[n_kv_heads * head_dim]` each, at `slot` of a block.
    fn write_kv(&self, layout: &KvLayout, block: &mut [u8], slot: usize, k: &[f32], v: &[f32]);

    /// Causal grouped-query attention over a paged cache.
    fn attention(&self, task: AttentionTask<'_>);
}

/// The kernels on one instruction set: the one implementation of [`Kernels`].
struct On<I> {
    isa: I,
    class: KernelClass,
}

impl<I: Isa> Kernels for On<I> {
    fn class(&self) -> KernelClass {
        self.class
    }

    fn code(&self, layout: &CodedLayout, x: &[f32], blocks: Range<usize>, dst: &mut [u8]) {
        activations::code(self.isa, layout, x, blocks, dst);
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
        elementwise::rms_norm(self.isa, x, weight, eps, out);
    }

    fn norm_rope(&self, head: &mut [f32], weight: &[f32], eps: f32, cos: &[f32], sin: &[f32]) {
        elementwise::norm_rope(self.isa, head, weight, eps, cos, sin);
    }

    fn swiglu(&self, gate: &mut [f32], up: &[f32]) {
        elementwise::swiglu(self.isa, gate, up);
    }

    fn add(&self, x: &mut [f32], y: &[f32]) {
        elementwise::add(self.isa, x, y);
    }

    fn write_kv(&self, layout: &KvLayout, block: &mut [u8], slot: usize, k: &[f32], v: &[f32]) {
        self.isa.vectorize(
            #[inline(always)]
            || layout.write_slot(block, slot, k, v),
        );
    }

    fn attention(&self, task: AttentionTask<'_>) {
        attention::attention(self.isa, task);
    }
}
