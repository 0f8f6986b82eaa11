//! Passes over all logits of a row, in vectors: the largest, where it stands, whether all are numbers, the ids of the
//! `k` largest.

use crate::TokenId;

/// Logits that are looked at together. A span without anything of interest costs one vectorized look; short, so that few
/// logits are looked at one by one.
pub(super) const SPAN: usize = 128;

/// The larger of two, the first where they do not differ; a NaN in `b` never wins.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// The largest of `values`; NaN is never the largest, and -inf is that of none.
pub(super) fn largest(values: &[f32]) -> f32 {
    // Sixteen running maxima let the compiler use vectors.
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (blocks, rest) = values.as_chunks::<16>();
    for block in blocks {
        for (lane, &value) in lanes.iter_mut().zip(block) {
            *lane = larger(*lane, value);
        }
    }
    lanes.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, larger)
}

/// How many of `values` are above -inf, and the smallest of these; +inf where there is none.
pub(super) fn finite(values: &[f32]) -> (usize, f32) {
    let (mut count, mut smallest) = (0, [f32::INFINITY; 16]);
    let above = |value: f32| value > f32::NEG_INFINITY;
    for block in values.chunks(16) {
        count += block.iter().map(|value| u32::from(above(*value))).sum::<u32>() as usize;
        for (lane, &value) in smallest.iter_mut().zip(block) {
            *lane = if above(value) & (value < *lane) { value } else { *lane };
        }
    }
    (count, smallest.into_iter().fold(f32::INFINITY, |a, b| if b < a { b } else { a }))
}

/// A value that no row of logits may have: NaN or +inf; -inf is a banned id.
pub(super) fn is_broken(logit: f32) -> bool {
    logit.is_nan() || logit == f32::INFINITY
}

/// The first broken value's place.
pub(super) fn first_broken(logits: &[f32]) -> Option<usize> {
    let (mut before, mut found) = (0, None);
    for span in logits.chunks(SPAN) {
        // Without an early exit inside the span the check is vectorized.
        if span.iter().fold(false, |any, logit| any | is_broken(*logit)) {
            found = span.iter().position(|logit| is_broken(*logit));
            break;
        }
        before += span.len();
    }
    found.map(|at| before + at)
}

/// The place of the first value that equals `value`.
pub(super) fn first_equal(values: &[f32], value: f32) -> Option<usize> {
    let (mut before, mut found) = (0, None);
    for span in values.chunks(SPAN) {
        if span.iter().fold(false, |any, v| any | (*v == value)) {
            found = span.iter().position(|v| *v == value);
            break;
        }
        before += span.len();
    }
    found.map(|at| before + at)
}

/// The id of the largest logit, the lowest id on a tie, and its value; none when nothing is above -inf.
pub(crate) fn argmax(logits: &[f32]) -> Option<(TokenId, f32)> {
    let largest = largest(logits);
    if largest == f32::NEG_INFINITY {
        return None;
    }
    Some((first_equal(logits, largest)? as TokenId, largest))
}

/// The ids of the `k` largest logits into `top`, in no particular order; the lower id wins a tie. One pass: a
/// buffer of 2k is cut back to k when full, and from then on only what beats its least value enters.
pub(super) fn select_top(logits: &[f32], k: usize, top: &mut Vec<TokenId>) {
    top.clear();
    if k == 0 {
        return;
    }
    let order = |a: &TokenId, b: &TokenId| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let room = k.saturating_mul(2).max(64);
    let mut bar = f32::NEG_INFINITY;
    for (n, span) in logits.chunks(SPAN).enumerate() {
        if largest(span) <= bar {
            continue;
        }
        for (at, &logit) in span.iter().enumerate() {
            // Ids ascend, so one that equals the bar loses its tie.
            if logit > bar {
                top.push((n * SPAN + at) as TokenId);
                if top.len() >= room {
                    let (_, least, _) = top.select_nth_unstable_by(k - 1, order);
                    bar = logits[*least as usize];
                    top.truncate(k);
                }
            }
        }
    }
    if top.len() > k {
        top.select_nth_unstable_by(k - 1, order);
        top.truncate(k);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_largest_is_found_wherever_it_stands() {
        for len in [1, 15, 16, 127, 128, 129, 1000] {
            for at in [0, len / 2, len - 1] {
                let mut logits = vec![-2.0f32; len];
                logits[at] = 3.5;
                logits[len - 1] = 3.5;
                assert_eq!(argmax(&logits), Some((at as TokenId, 3.5)));
                logits[at] = f32::NAN;
                assert_eq!(first_broken(&logits), Some(at));
                assert!(len == 1 || at == len - 1 || argmax(&logits) == Some((len as TokenId - 1, 3.5)));
            }
        }
        assert_eq!(argmax(&[-0.0, 0.0]).map(|(id, _)| id), Some(0));
        assert_eq!(finite(&[f32::NEG_INFINITY, 2.0, -7.5, f32::NEG_INFINITY]), (2, -7.5));
        assert_eq!(finite(&[0.5; 35]), (35, 0.5));
        assert_eq!(finite(&[f32::NEG_INFINITY]), (0, f32::INFINITY));
        assert_eq!((argmax(&[]), argmax(&[f32::NEG_INFINITY; 20])), (None, None));
        assert_eq!(first_broken(&[f32::NEG_INFINITY, 0.0]), None);
        assert_eq!(first_broken(&[0.0, f32::INFINITY]), Some(1));
    }
}
