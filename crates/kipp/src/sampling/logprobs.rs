//! Log-probabilities of raw logits (before bias, penalties and temperature), in f64. A row with a NaN or +inf
//! gives NaN; the sampler refuses such a row.

use super::filters::{SPAN, select_top};
use crate::TokenId;

/// An id with the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogProb {
    /// The id.
    pub id: TokenId,
    /// The natural logarithm of its probability.
    pub log_prob: f64,
}

/// The largest logit, and the logarithm of the sum of `exp(logit - largest)`. Kept apart, because added to a
/// large logit the logarithm would lose its digits.
fn normalizer(logits: &[f32]) -> (f64, f64) {
    let mut largest = f32::NEG_INFINITY;
    for &logit in logits {
        if logit.is_nan() || logit == f32::INFINITY {
            return (f64::NAN, f64::NAN);
        }
        largest = if logit > largest { logit } else { largest };
    }
    if largest == f32::NEG_INFINITY {
        return (f64::NEG_INFINITY, 0.0);
    }
    let largest = f64::from(largest);
    let span = |span: &[f32]| span.iter().map(|&logit| libm::exp(f64::from(logit) - largest)).sum::<f64>();
    (largest, libm::log(logits.chunks(SPAN).map(span).sum()))
}

/// `log(sum(exp(logits)))` over `logits` (`[n_tokens]`), summed in fixed spans merged in ascending order; -inf
/// for an empty row or one of -inf only.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let (largest, log_sum) = normalizer(logits);
    largest + log_sum
}

/// The log-probability of `id` in `logits` (`[n_tokens]`); -inf for an id that the row does not have.
pub fn log_prob(logits: &[f32], id: TokenId) -> f64 {
    match logits.get(id as usize) {
        Some(&logit) if logit == f32::NEG_INFINITY => f64::NEG_INFINITY,
        Some(&logit) => {
            let (largest, log_sum) = normalizer(logits);
            (f64::from(logit) - largest) - log_sum
        }
        None => f64::NEG_INFINITY,
    }
}

/// The `n` most likely ids of `logits` (`[n_tokens]`), most likely first, the lower id first on a tie; fewer
/// when fewer have a probability.
pub fn top_logprobs(logits: &[f32], n: usize) -> Vec<TokenLogProb> {
    let mut top = Vec::new();
    select_top(logits, n, &mut top);
    top.sort_unstable_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
    let log_sum_exp = log_sum_exp(logits);
    top.iter()
        .map(|&id| TokenLogProb { id, log_prob: f64::from(logits[id as usize]) - log_sum_exp })
        .collect()
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
}
