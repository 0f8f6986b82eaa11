//! Attention: every case of the conformance suite on every class of this machine.

use kipp_kernels::conformance::{attention::*, cpu, same_bits};
use kipp_kernels::{KvLayout, KvScheme};

use super::{all_kernels, scalar};

/// Every border at every head ratio, and every width at the borders of a block, a step and a span.
fn cases() -> Vec<AttentionCase> {
    let mut cases = Vec::new();
    for &scheme in KvScheme::ALL {
        for &[n_heads, n_kv_heads] in HEADS {
            let layout = KvLayout { scheme, n_kv_heads, head_dim: 32 };
            cases.extend(
                BORDERS.iter().map(|&[start, rows]| AttentionCase::new(layout, n_heads, start, rows)),
            );
        }
        for head_dim in [64, 96, 128, 10, 34] {
            let layout = KvLayout { scheme, n_kv_heads: 1, head_dim };
            cases.extend(
                [[31, 2], [120, 20], [1023, 2]]
                    .map(|[start, rows]| AttentionCase::new(layout, 2, start, rows)),
            );
        }
    }
    cases
}

#[test]
fn attention_is_near_the_reference() {
    for case in cases() {
        near_the_reference(&case, |case| cpu::attention(scalar(), case, 9)).unwrap();
    }
}

#[test]
fn every_class_has_the_bits_of_the_scalar_one() {
    for case in cases() {
        let expected = cpu::attention(scalar(), &case, 9);
        for kernels in all_kernels() {
            for heads_at_once in [1, 9] {
                let what = format!("{}, {}", kernels.class().name(), case.name());
                same_bits(&what, &cpu::attention(kernels, &case, heads_at_once), &expected).unwrap();
            }
            let what = format!("{}, {} by spans", kernels.class().name(), case.name());
            same_bits(&what, &cpu::attention_by_spans(kernels, &case), &expected).unwrap();
        }
    }
}

#[test]
fn blocks_and_chunks_change_nothing() {
    for case in cases() {
        for kernels in all_kernels() {
            placement_and_chunks_change_nothing(&case, |case| cpu::attention(kernels, case, 9)).unwrap();
        }
    }
}

/// Scores far apart: most probabilities are zero or subnormal, and nothing becomes NaN.
#[test]
fn large_scores_stay_finite() {
    let layout = KvLayout { scheme: KvScheme::Bf16, n_kv_heads: 1, head_dim: 64 };
    let mut case = AttentionCase::new(layout, 2, 1100, 9);
    case.q.iter_mut().for_each(|q| *q *= 1000.0);
    for kernels in all_kernels() {
        near_the_reference(&case, |case| cpu::attention(kernels, case, 9)).unwrap();
        placement_and_chunks_change_nothing(&case, |case| cpu::attention(kernels, case, 9)).unwrap();
    }
}
