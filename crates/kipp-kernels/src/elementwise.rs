//! What happens to a row between matrix products: RMS norm, per-head norm with rotation, SwiGLU, addition.
//!
//! The last lanes of a row use the same vector formula with the others masked, never another one.

use crate::isa::{Isa, LANES};
use crate::math::exp;

/// Calls `each` with ranges of sixteen, the last of which may be shorter.
#[inline(always)]
fn lanes(len: usize, mut each: impl FnMut(std::ops::Range<usize>)) {
    for start in (0..len).step_by(LANES) {
        each(start..len.min(start + LANES));
    }
}

/// Sixteen values, or fewer and zeros.
#[inline(always)]
fn load<I: Isa>(isa: I, values: &[f32]) -> I::F32 {
    match values.first_chunk() {
        Some(full) => isa.load(full),
        None => isa.load_partial(values),
    }
}

#[inline(always)]
fn store<I: Isa>(isa: I, out: &mut [f32], v: I::F32) {
    match out.first_chunk_mut() {
        Some(full) => isa.store(full, v),
        None => isa.store_partial(out, v),
    }
}

/// 1 / sqrt(mean of squares + eps): squares summed in sixteen lanes, then in a fixed tree.
#[inline(always)]
fn inverse_rms<I: Isa>(isa: I, x: &[f32], eps: f32) -> f32 {
    let mut squares = isa.splat(0.0);
    lanes(
        x.len(),
        #[inline(always)]
        |at| {
            let v = load(isa, &x[at]);
            squares = isa.fma(v, v, squares);
        },
    );
    1.0 / (isa.reduce_add(squares) / x.len() as f32 + eps).sqrt()
}

/// Sixteen values times the factor, then the weight.
#[inline(always)]
fn normed<I: Isa>(isa: I, x: &[f32], factor: I::F32, weight: &[f32]) -> I::F32 {
    isa.mul(isa.mul(load(isa, x), factor), load(isa, weight))
}

/// `out = x / sqrt(mean(x^2) + eps) * weight` for each row of `x`, `[rows, weight.len()]`.
pub(crate) fn rms_norm<I: Isa>(isa: I, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "an output of another shape");
    let width = weight.len();
    assert!(width > 0 && x.len().is_multiple_of(width), "rows of another width");
    isa.vectorize(
        #[inline(always)]
        || {
            for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
                let factor = isa.splat(inverse_rms(isa, x, eps));
                lanes(
                    width,
                    #[inline(always)]
                    |at| {
                        let normed = normed(isa, &x[at.clone()], factor, &weight[at.clone()]);
                        store(isa, &mut out[at], normed);
                    },
                );
            }
        },
    );
}

/// Normalizes one head in place, then rotates the pairs (i, i + head_dim / 2) by the angles whose cosines and sines
/// are given, `[head_dim / 2]` each.
pub(crate) fn norm_rope<I: Isa>(
    isa: I,
    head: &mut [f32],
    weight: &[f32],
    eps: f32,
    cos: &[f32],
    sin: &[f32],
) {
    let half = head.len() / 2;
    assert_eq!(weight.len(), head.len(), "a weight of another width");
    assert_eq!((head.len(), cos.len(), sin.len()), (2 * half, half, half), "angles of another width");
    isa.vectorize(
        #[inline(always)]
        || {
            let factor = isa.splat(inverse_rms(isa, head, eps));
            let (first, second) = head.split_at_mut(half);
            let (first_weight, second_weight) = weight.split_at(half);
            lanes(
                half,
                #[inline(always)]
                |at| {
                    let a = normed(isa, &first[at.clone()], factor, &first_weight[at.clone()]);
                    let b = normed(isa, &second[at.clone()], factor, &second_weight[at.clone()]);
                    let (cos, sin) = (load(isa, &cos[at.clone()]), load(isa, &sin[at.clone()]));
                    store(isa, &mut first[at.clone()], isa.sub(isa.mul(a, cos), isa.mul(b, sin)));
                    store(isa, &mut second[at], isa.add(isa.mul(b, cos), isa.mul(a, sin)));
                },
            );
        },
    );
}

/// `gate = gate / (1 + exp(-gate)) * up`.
pub(crate) fn swiglu<I: Isa>(isa: I, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "operands of different shapes");
    isa.vectorize(
        #[inline(always)]
        || {
            lanes(
                up.len(),
                #[inline(always)]
                |at| {
                    let g = load(isa, &gate[at.clone()]);
                    let e = exp(isa, isa.sub(isa.splat(0.0), g));
                    let silu = isa.div(g, isa.add(isa.splat(1.0), e));
                    store(isa, &mut gate[at.clone()], isa.mul(silu, load(isa, &up[at])));
                },
            );
        },
    );
}

/// `x += y`.
pub(crate) fn add<I: Isa>(isa: I, x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "operands of different shapes");
    isa.vectorize(
        #[inline(always)]
        || {
            lanes(
                x.len(),
                #[inline(always)]
                |at| {
                    let sum = isa.add(load(isa, &x[at.clone()]), load(isa, &y[at.clone()]));
                    store(isa, &mut x[at], sum);
                },
            );
        },
    );
}
