//! How far the predictions of a model lie from those of a reference, token by token over the whole vocabulary: what a
//! scheme of weights, a coding of activations or of keys and values costs, measured far more sharply than by perplexity.

use std::ops::Range;

use super::protocol::Window;
use super::{Mean, Perplexity, PerplexityError, Protocol};
use crate::TokenId;
use crate::batch::{Answer, Ask};
use crate::kv::KvPool;
use crate::model::Forward;
use crate::sampling::log_sum_exp;
use crate::sampling::logprobs::{argmax_by, in_turn};
use crate::session::{Session, SessionError};

/// Positions that both models evaluate before their logits are compared: as many rows of a whole vocabulary are held.
const STEP_TOKENS: usize = 32;

/// Predictions of a model beside those of a reference, at the same positions of one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// How well the model predicts the text.
    pub perplexity: Perplexity,
    /// How well the reference does.
    pub reference: Perplexity,
    /// Negative log-likelihood of the model less that of the reference, token by token.
    pub nll_difference: Mean,
    /// Kullback-Leibler divergence of the model's distribution from the reference's, `sum(p_ref * ln(p_ref / p))`.
    pub kl: Mean,
    /// Its median.
    pub kl_median: f64,
    /// Its 99th percentile (nearest rank).
    pub kl_p99: f64,
    /// The largest.
    pub kl_max: f64,
    /// The part of the positions at which both find the same token most likely.
    pub same_top: Mean,
}

/// One position.
struct Position {
    nll: f64,
    reference_nll: f64,
    kl: f64,
    same_top: bool,
}

/// Scores `tokens` by `model` and by `reference`, each with its own pool. `progress` is told the tokens done.
pub fn divergence(
    model: (&mut dyn Forward, &KvPool),
    reference: (&mut dyn Forward, &KvPool),
    tokens: &[TokenId],
    protocol: Protocol,
    progress: &mut dyn FnMut(usize),
) -> Result<Divergence, PerplexityError> {
    let vocabularies = (model.0.spec().vocab_size, reference.0.spec().vocab_size);
    if vocabularies.0 != vocabularies.1 {
        return Err(PerplexityError::Vocabularies { tokens: vocabularies.0, reference: vocabularies.1 });
    }
    let mut positions = Vec::with_capacity(tokens.len());
    for window in protocol.windows(tokens.len())? {
        let mut sessions =
            [Session::new(&mut *model.0, model.1), Session::new(&mut *reference.0, reference.1)];
        compare_window(&mut sessions, tokens, &window, &mut positions)?;
        progress(window.tokens.end);
    }
    Ok(summarize(protocol, tokens.len(), &positions))
}

fn compare_window(
    sessions: &mut [Session<'_>; 2],
    tokens: &[TokenId],
    window: &Window,
    positions: &mut Vec<Position>,
) -> Result<(), PerplexityError> {
    // The last token predicts nothing inside the window, so it is not evaluated.
    let last = window.tokens.end - 1;
    for start in (window.tokens.start..last).step_by(STEP_TOKENS) {
        let read = start..last.min(start + STEP_TOKENS);
        let scored = |i: usize| window.scored.contains(&(read.start + i + 1));
        let [model, reference] = sessions;
        let rows = rows(model, tokens, &read, scored)?;
        let reference_rows = self::rows(reference, tokens, &read, scored)?;
        let next = read.clone().map(|at| at + 1).filter(|next| window.scored.contains(next));
        for ((row, reference_row), next) in rows.iter().zip(&reference_rows).zip(next) {
            positions.push(compare(row, reference_row, tokens[next]));
        }
    }
    Ok(())
}

/// The logits of each scored row of `read`.
fn rows(
    session: &mut Session<'_>,
    tokens: &[TokenId],
    read: &Range<usize>,
    scored: impl Fn(usize) -> bool,
) -> Result<Vec<Vec<f32>>, SessionError> {
    let ask = |i| if scored(i) { Ask::Logits } else { Ask::Nothing };
    let answers = session.evaluate(&tokens[read.clone()], ask)?;
    let logits = |answer| match answer {
        Answer::Logits(logits) => Some(logits),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(logits).collect())
}

fn compare(logits: &[f32], reference: &[f32], next: TokenId) -> Position {
    let (sum, reference_sum) = (log_sum_exp(logits), log_sum_exp(reference));
    let nll = |logits: &[f32], sum: f64| sum - logits.get(next as usize).map_or(f64::NAN, |&l| f64::from(l));
    let terms = logits.iter().zip(reference).map(|(&logit, &reference)| {
        let log_p = f64::from(reference) - reference_sum;
        let p = libm::exp(log_p);
        // A token that the reference rules out costs nothing, whatever the model thinks of it.
        if p == 0.0 { 0.0 } else { p * (log_p - (f64::from(logit) - sum)) }
    });
    Position {
        nll: nll(logits, sum),
        reference_nll: nll(reference, reference_sum),
        kl: terms.sum(),
        same_top: argmax_by(logits, &mut in_turn) == argmax_by(reference, &mut in_turn),
    }
}

fn summarize(protocol: Protocol, tokens: usize, positions: &[Position]) -> Divergence {
    let perplexity =
        |nll: fn(&Position) -> f64| Perplexity::new(protocol, tokens, positions.iter().map(nll).collect());
    let mut kl: Vec<f64> = positions.iter().map(|position| position.kl).collect();
    kl.sort_by(f64::total_cmp);
    Divergence {
        perplexity: perplexity(|position| position.nll),
        reference: perplexity(|position| position.reference_nll),
        nll_difference: Mean::of(positions.iter().map(|position| position.nll - position.reference_nll)),
        kl: Mean::of(kl.iter().copied()),
        kl_median: rank(&kl, 50),
        kl_p99: rank(&kl, 99),
        kl_max: rank(&kl, 100),
        same_top: Mean::of(positions.iter().map(|position| f64::from(u8::from(position.same_top)))),
    }
}

/// The smallest value that `percent` of the ascending values do not exceed; NaN of nothing.
fn rank(ascending: &[f64], percent: usize) -> f64 {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(rank - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-7
    }

    #[test]
    fn two_distributions_by_hand() {
        let row = |p: [f64; 2]| p.map(|p| (p.ln() + 3.0) as f32);
        let position = compare(&row([0.25, 0.75]), &row([0.5, 0.5]), 1);
        assert!(close(position.nll, -(0.75f64.ln())) && close(position.reference_nll, 2f64.ln()));
        assert!(close(position.kl, 0.5 * (0.5f64 / 0.25).ln() + 0.5 * (0.5f64 / 0.75).ln()));
        // A tie is the lower id's.
        assert!(!position.same_top && compare(&[1.0, 1.0], &[2.0, 0.0], 0).same_top);
    }

    #[test]
    fn what_a_distribution_rules_out() {
        let (never, even) = ([0.0, f32::NEG_INFINITY], [0.0, 0.0]);
        assert!(close(compare(&even, &never, 0).kl, 2f64.ln()));
        assert_eq!(compare(&never, &even, 0).kl, f64::INFINITY);
        assert_eq!(compare(&never, &never, 0).kl, 0.0);
        assert!(compare(&[f32::NAN, 0.0], &even, 0).kl.is_nan());
    }

    #[test]
    fn ranks_are_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!([50, 99, 100].map(|percent| rank(&values, percent)), [100.0, 198.0, 200.0]);
        assert_eq!(rank(&[7.0], 50), 7.0);
        assert!(rank(&[], 50).is_nan());
    }
}
