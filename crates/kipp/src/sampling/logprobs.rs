//! Log-probabilities of raw logits (before bias, penalties and temperature), in f64. A row with a NaN or +inf
//! gives NaN; the sampler refuses such a row.

use super::exp::sum_exp;
use super::scan;
use crate::TokenId;

/// An id with the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogProb {
    /// The id.
    pub id: TokenId,
    /// The natural logarithm of its probability.
    pub log_prob: f64,
}

/// Logits that are summed before the sum is merged, by one thread; fixed, so that every machine rounds alike.
pub(crate) const SPAN: usize = 8192;

/// Evaluates a function of each span of [`SPAN`] logits, in order: [`in_turn`], or the threads of a device.
pub(crate) type MapSpans<'a> = dyn FnMut(&[f32], &(dyn Fn(&[f32]) -> f64 + Sync)) -> Vec<f64> + 'a;

/// One span after the other.
pub(crate) fn in_turn(logits: &[f32], each: &(dyn Fn(&[f32]) -> f64 + Sync)) -> Vec<f64> {
    logits.chunks(SPAN).map(each).collect()
}

/// The largest logit, and the logarithm of the sum of `exp(logit - largest)`. Kept apart, because added to a
/// large logit the logarithm would lose its digits.
fn normalizer(logits: &[f32], map: &mut MapSpans<'_>) -> (f64, f64) {
    let largest_of = |span: &[f32]| match scan::first_broken(span) {
        Some(_) => f64::NAN,
        None => f64::from(scan::largest(span)),
    };
    let maxima = map(logits, &largest_of);
    if maxima.iter().any(|largest| largest.is_nan()) {
        return (f64::NAN, f64::NAN);
    }
    let largest = maxima.into_iter().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return (f64::NEG_INFINITY, 0.0);
    }
    let sums = map(logits, &|span| sum_exp(span, |logit| f64::from(logit) - largest));
    (largest, libm::log(sums.into_iter().sum()))
}

/// `log(sum(exp(logits)))` over `logits` (`[n_tokens]`), summed in fixed spans merged in ascending order; -inf
/// for an empty row or one of -inf only.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let (largest, log_sum) = normalizer(logits, &mut in_turn);
    largest + log_sum
}

/// The log-probability of `id` in `logits` (`[n_tokens]`); -inf for an id that the row does not have.
pub fn log_prob(logits: &[f32], id: TokenId) -> f64 {
    log_prob_by(logits, id, &mut in_turn)
}

/// The same, spans evaluated by `map`.
pub(crate) fn log_prob_by(logits: &[f32], id: TokenId, map: &mut MapSpans<'_>) -> f64 {
    match logits.get(id as usize) {
        Some(&logit) if logit == f32::NEG_INFINITY => f64::NEG_INFINITY,
        Some(&logit) => {
            let (largest, log_sum) = normalizer(logits, map);
            (f64::from(logit) - largest) - log_sum
        }
        None => f64::NEG_INFINITY,
    }
}

/// The `n` most likely ids of `logits` (`[n_tokens]`), most likely first, the lower id first on a tie; fewer
/// when fewer have a probability.
pub fn top_logprobs(logits: &[f32], n: usize) -> Vec<TokenLogProb> {
    top_logprobs_by(logits, n, &mut in_turn)
}

/// The same, spans evaluated by `map`.
pub(crate) fn top_logprobs_by(logits: &[f32], n: usize, map: &mut MapSpans<'_>) -> Vec<TokenLogProb> {
    let mut top = Vec::new();
    scan::select_top(logits, n, &mut top);
    top.sort_unstable_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
    let (largest, log_sum) = normalizer(logits, map);
    let log_sum_exp = largest + log_sum;
    top.iter()
        .map(|&id| TokenLogProb { id, log_prob: f64::from(logits[id as usize]) - log_sum_exp })
        .collect()
}

/// The lowest id of the largest logit, 0 where none is above -inf; NaN is never the largest.
pub(crate) fn argmax_by(logits: &[f32], map: &mut MapSpans<'_>) -> TokenId {
    let maxima = map(logits, &|span| f64::from(scan::largest(span)));
    let largest = maxima.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let first = maxima.iter().position(|&of_span| of_span == largest).unwrap_or(0);
    let start = first * SPAN;
    let span = &logits[start..logits.len().min(start + SPAN)];
    scan::argmax(span).map_or(0, |(at, _)| start as TokenId + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_row_of_the_head_gives_its_width() {
        for logit in [0.0, -1e30, 3e38] {
            assert_eq!(libm::exp(-log_prob(&vec![logit; 151_936], 7)).round(), 151_936.0);
        }
    }

    #[test]
    fn a_short_row_by_hand() {
        let logits = [0.0f32, (3.0f64.ln()) as f32, f32::NEG_INFINITY];
        assert!((log_sum_exp(&logits) - 4.0f64.ln()).abs() < 1e-7);
        assert!((log_prob(&logits, 1) - 0.75f64.ln()).abs() < 1e-7);
        assert_eq!(log_prob(&logits, 2), f64::NEG_INFINITY);
        assert_eq!(log_prob(&logits, 3), f64::NEG_INFINITY);
        let top = top_logprobs(&logits, 20);
        assert_eq!(top.iter().map(|entry| entry.id).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn odd_rows_have_a_stated_result() {
        assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 3]), f64::NEG_INFINITY);
        assert!(log_sum_exp(&[0.0, f32::NAN]).is_nan());
        assert!(log_sum_exp(&[0.0, f32::INFINITY]).is_nan());
        assert_eq!(
            top_logprobs(&[1.0, 1.0, 1.0], 2).iter().map(|entry| entry.id).collect::<Vec<_>>(),
            [0, 1]
        );
        assert!(top_logprobs(&[1.0], 0).is_empty());
    }

    #[test]
    fn argmax_over_spans_is_argmax() {
        for (len, at) in [(1, 0), (SPAN, SPAN - 1), (SPAN + 1, SPAN), (3 * SPAN + 5, SPAN), (3 * SPAN, 7)] {
            let mut logits = vec![f32::NEG_INFINITY; len];
            assert_eq!(argmax_by(&logits, &mut in_turn), 0);
            logits[len - 1] = 2.0;
            logits[at] = 2.0;
            assert_eq!(argmax_by(&logits, &mut in_turn), at as TokenId);
            logits[0] = f32::NAN;
            assert_eq!(
                argmax_by(&logits, &mut in_turn),
                if at == 0 { logits.len() - 1 } else { at } as TokenId
            );
        }
    }
}
