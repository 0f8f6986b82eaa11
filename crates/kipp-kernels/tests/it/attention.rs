use kipp_kernels::conformance::{attention::*, cpu, same_bits};
use kipp_kernels::{KvLayout, KvScheme};

use super::{all_kernels, scalar};

/// Every scheme and head ratio at one width, every width at one ratio.
fn layouts() -> Vec<(KvLayout, usize)> {
    let mut all = Vec::new();
    for &scheme in KvScheme::ALL {
        for &[n_heads, n_kv_heads] in HEADS {
            all.push((KvLayout { scheme, n_kv_heads, head_dim: 32 }, n_heads));
        }
        for head_dim in [64, 96, 128, 10, 34] {
            all.push((KvLayout { scheme, n_kv_heads: 1, head_dim }, 2));
        }
    }
    all
}

#[test]
fn attention_is_near_the_reference() {
    for (layout, n_heads) in layouts() {
        for &[start, rows] in BORDERS {
            let case = AttentionCase::new(layout, n_heads, start, rows);
            near_the_reference(&case, |case| cpu::attention(scalar(), case, 9)).unwrap();
        }
    }
}

#[test]
fn every_class_has_the_bits_of_the_scalar_one() {
    for (layout, n_heads) in layouts() {
        for &[start, rows] in BORDERS {
            let case = AttentionCase::new(layout, n_heads, start, rows);
            let expected = cpu::attention(scalar(), &case, 9);
            for kernels in all_kernels() {
                for heads_at_once in [1, 9] {
                    let what = format!("{}, {}", kernels.class().name(), case.name());
                    same_bits(&what, &cpu::attention(kernels, &case, heads_at_once), &expected).unwrap();
                }
            }
        }
    }
}

#[test]
fn blocks_and_chunks_change_nothing() {
    for (layout, n_heads) in layouts() {
        for &[start, rows] in BORDERS {
            let case = AttentionCase::new(layout, n_heads, start, rows);
            for kernels in all_kernels() {
                placement_and_chunks_change_nothing(&case, |case| cpu::attention(kernels, case, 9)).unwrap();
            }
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
