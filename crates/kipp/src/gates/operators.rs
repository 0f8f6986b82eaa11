//! The CPU's operators, each against its reference: products of every scheme and coding on ragged shapes, attention over
//! a paged cache.

use kipp_kernels::conformance::attention::{self as attend, AttentionCase, BORDERS, HEADS};
use kipp_kernels::conformance::product::{self, ProductCase, kinds, ragged_shapes};
use kipp_kernels::conformance::{Verdict, cpu, same_bits};
use kipp_kernels::kv::{KvLayout, KvScheme};
use kipp_kernels::{KernelClass, Kernels, Scheme, select};

use super::Gate;
use crate::backend::BackendInfo;

/// More panels than any case has: all at once.
const ALL_PANELS: usize = usize::MAX;

/// The operators of the class that `info` names; nothing for a backend without CPU kernels.
pub(super) fn gates(info: &BackendInfo) -> Vec<Gate> {
    let class = KernelClass::from_name(&info.kernels).filter(|_| info.name == "cpu");
    let (Some(kernels), Some(scalar)) = (class.and_then(select), select(KernelClass::Scalar)) else {
        return Vec::new();
    };
    let mut gates: Vec<Gate> = Scheme::ALL
        .iter()
        .map(|scheme| {
            gate(format!("operators: {} products", scheme.name()), products(kernels, scalar, *scheme))
        })
        .collect();
    for scheme in KvScheme::ALL {
        gates.push(gate(
            format!("operators: attention, {} KV", scheme.name()),
            attention(kernels, scalar, *scheme),
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

fn attention(kernels: &dyn Kernels, scalar: &dyn Kernels, scheme: KvScheme) -> Vec<Verdict> {
    let run = |case: &AttentionCase| cpu::attention(kernels, case, usize::MAX);
    let mut checks = Vec::new();
    for ([start, rows], [n_heads, n_kv_heads]) in BORDERS.iter().zip(HEADS.iter().cycle()) {
        let case = AttentionCase::new(
            KvLayout { scheme, n_kv_heads: *n_kv_heads, head_dim: 64 },
            *n_heads,
            *start,
            *rows,
        );
        checks.push(attend::near_the_reference(&case, run));
        checks.push(attend::placement_and_chunks_change_nothing(&case, run));
        checks.push(same_bits(&case.name(), &run(&case), &cpu::attention(scalar, &case, usize::MAX)));
    }
    checks
}
