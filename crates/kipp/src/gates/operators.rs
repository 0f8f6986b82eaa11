//! The CPU's operators, each against its reference: products of every scheme and coding on ragged shapes, attention over
//! a paged cache.

use kipp_kernels::conformance::attention::{self as attend, AttentionCase, BORDERS, HEADS};
use kipp_kernels::conformance::product::{self, ProductCase, kinds, ragged_shapes};
use kipp_kernels::conformance::{F32_NMSE, Verdict, cpu, elementwise, near, numbers, same_bits};
use kipp_kernels::kv::{KvLayout, KvScheme};
use kipp_kernels::{KernelClass, Kernels, Scheme, select};

use super::Gate;
use crate::backend::cpu::CpuOptions;

/// More panels than any case has: all at once.
const ALL_PANELS: usize = usize::MAX;

/// The operators of the classes that `options` choose.
pub(super) fn gates(options: CpuOptions) -> Vec<Gate> {
    let class = options.class.unwrap_or_else(KernelClass::best);
    let of_attention = options.attention.unwrap_or(class);
    let classes = [class, of_attention, KernelClass::Scalar].map(select);
    let [Some(kernels), Some(of_attention), Some(scalar)] = classes else {
        let fault = format!("{} or {} cannot run here", class.name(), of_attention.name());
        return vec![gate("operators".to_owned(), vec![Err(fault)])];
    };
    let mut gates: Vec<Gate> = Scheme::ALL
        .iter()
        .map(|scheme| {
            gate(format!("operators: {} products", scheme.name()), products(kernels, scalar, *scheme))
        })
        .collect();
    gates.push(gate("operators: norms, rotation, SwiGLU".to_owned(), elementwise(kernels, scalar)));
    for scheme in KvScheme::ALL {
        gates.push(gate(
            format!("operators: attention, {} KV", scheme.name()),
            attention(of_attention, scalar, *scheme),
        ));
    }
    gates
}

fn gate(name: String, checks: Vec<Verdict>) -> Gate {
    let failed: Vec<&String> = checks.iter().filter_map(|check| check.as_ref().err()).collect();
    let detail = match failed.first() {
        None => format!(
            "{} checks: reference, whole numbers, single rows, bits of the scalar class",
            checks.len()
        ),
        Some(first) => format!("{} checks, first failure: {first}", checks.len()),
    };
    Gate::at_most(name, 0.0, failed.len() as f64, detail)
}

fn products(kernels: &dyn Kernels, scalar: &dyn Kernels, scheme: Scheme) -> Vec<Verdict> {
    let run = |case: &ProductCase| cpu::product(kernels, case, ALL_PANELS);
    let mut checks = Vec::new();
    for kind in kinds(scheme) {
        for shape in ragged_shapes(scheme) {
            let case = ProductCase::arbitrary(scheme, kind, shape);
            checks.push(product::near_the_reference(&case, run));
            checks.push(same_bits(&case.name(), &run(&case), &cpu::product(scalar, &case, ALL_PANELS)));
            checks.push(product::exact_on_whole_numbers(&ProductCase::whole(scheme, kind, shape), run));
        }
        let case = ProductCase::arbitrary(scheme, kind, [40, 19, product::whole_cols(scheme, 70)]);
        checks.push(product::tokens_are_independent(&case, run));
    }
    checks
}

/// Widths with and without a tail of the 16 lanes; each result near its f64 reference and equal to the scalar class.
fn elementwise(kernels: &dyn Kernels, scalar: &dyn Kernels) -> Vec<Verdict> {
    let mut checks = Vec::new();
    let mut check = |what: &str, run: &dyn Fn(&dyn Kernels) -> Vec<f32>, reference: &[f64]| {
        checks.push(near(what, &run(kernels), reference, F32_NMSE));
        checks.push(same_bits(what, &run(kernels), &run(scalar)));
    };
    for width in [2, 30, 64, 100, 1_024] {
        let (x, w) = (numbers(width, 31), numbers(width, 32));
        let (cos, sin) = (numbers(width / 2, 33), numbers(width / 2, 34));
        let normed = elementwise::rms_norm(&x, &w, 1e-6);
        let rms_norm = |kernels: &dyn Kernels| {
            let mut out = vec![0.0; width];
            kernels.rms_norm(&x, &w, 1e-6, &mut out);
            out
        };
        check(&format!("rms_norm of {width}"), &rms_norm, &normed);
        let norm_rope = |kernels: &dyn Kernels| {
            let mut head = x.clone();
            kernels.norm_rope(&mut head, &w, 1e-6, &cos, &sin);
            head
        };
        check(&format!("norm_rope of {width}"), &norm_rope, &elementwise::rope(&normed, &cos, &sin));
        let swiglu = |kernels: &dyn Kernels| {
            let mut gate = x.clone();
            kernels.swiglu(&mut gate, &w);
            gate
        };
        check(&format!("swiglu of {width}"), &swiglu, &elementwise::swiglu(&x, &w));
    }
    checks
}

fn attention(kernels: &dyn Kernels, scalar: &dyn Kernels, scheme: KvScheme) -> Vec<Verdict> {
    let run = |case: &AttentionCase| cpu::attention(kernels, case, usize::MAX);
    let mut checks = Vec::new();
    let head_dims = [64, 32, 128, 96, 10].into_iter().cycle();
    for (([start, rows], [n_heads, n_kv_heads]), head_dim) in
        BORDERS.iter().zip(HEADS.iter().cycle()).zip(head_dims)
    {
        let case = AttentionCase::new(
            KvLayout { scheme, n_kv_heads: *n_kv_heads, head_dim },
            *n_heads,
            *start,
            *rows,
        );
        checks.push(attend::near_the_reference(&case, run));
        checks.push(attend::placement_and_chunks_change_nothing(&case, run));
        checks.push(same_bits(&case.name(), &run(&case), &cpu::attention(scalar, &case, usize::MAX)));
        checks.push(same_bits(
            &format!("{} by spans", case.name()),
            &cpu::attention_by_spans(kernels, &case),
            &run(&case),
        ));
    }
    checks
}
