//! Drawing from a whole vocabulary (no top-k, no min-p) without an exact exponential for each of its ids.
//!
//! The sum of all weights decides only comparisons. A fast sum whose error is known decides nearly all of them as the
//! exact one would; where it cannot, there is no answer and the exact way is gone. So the drawn id is always the exact
//! way's.

use super::super::exp::{self, sum_exp};
use super::super::scan::{self, select_top};
use super::{Candidate, Row, Scratch, pick};
use crate::TokenId;

/// Ids of a span of the fast sum.
const SPAN: usize = 1024;

/// More than the relative error of fast and exact sums together: a factor 1 / temperature instead of a division errs by
/// 708 x 2^-52 = 2e-13 at most, an exponential by 2^-51, a sum of 2^18 weights in spans by 2^-42.
const ERROR: f64 = 1e-11;

/// The longest prefix that is looked at for top-p: a longer one is as cheap the exact way.
const MAX_PREFIX: usize = 4096;

impl Row<'_> {
    /// Draws as [`Row::draw_exactly`] does, or leaves it to it.
    pub(super) fn draw_from_all(&self, u: f64, scratch: &mut Scratch) -> Option<(TokenId, usize)> {
        // At the smallest temperatures the factor is no number; there is next to nothing to draw from.
        if !(1.0 / self.params.temperature).is_finite() {
            return None;
        }
        self.weigh_spans(&mut scratch.span_weights);
        match self.params.top_p < 1.0 {
            true => self.draw_from_prefix(u, scratch),
            false => self.draw_plainly(u, &scratch.span_weights),
        }
    }

    /// The approximate weight of each span.
    fn weigh_spans(&self, span_weights: &mut Vec<f64>) {
        let (largest, factor) = (self.largest, 1.0 / self.params.temperature);
        let weight = |span| sum_exp(span, |logit: f32| (f64::from(logit) - largest) * factor);
        span_weights.clear();
        span_weights.extend(self.logits.chunks(SPAN).map(weight));
    }

    /// Top-p, then the draw among what it left.
    fn draw_from_prefix(&self, u: f64, scratch: &mut Scratch) -> Option<(TokenId, usize)> {
        let Scratch { candidates, top, span_weights } = scratch;
        let enough = self.params.top_p * span_weights.iter().sum::<f64>();
        let mut length = 64;
        while length <= MAX_PREFIX {
            select_top(self.logits, length, top);
            top.sort_unstable_by(|a, b| {
                self.logits[*b as usize].total_cmp(&self.logits[*a as usize]).then(a.cmp(b))
            });
            candidates.clear();
            let mut held = 0.0;
            for &id in top.iter() {
                let logit = self.logits[id as usize];
                let weight = libm::exp(self.scaled(logit));
                if weight == 0.0 {
                    return None;
                }
                candidates.push(Candidate { id, logit, weight });
                held += weight;
                if held >= enough * (1.0 + ERROR) {
                    candidates.sort_unstable_by_key(|candidate| candidate.id);
                    return Some((pick(candidates, u), candidates.len()));
                }
                if held >= enough * (1.0 - ERROR) {
                    return None;
                }
            }
            length *= 4;
        }
        None
    }

    /// The draw among all ids.
    fn draw_plainly(&self, u: f64, span_weights: &[f64]) -> Option<(TokenId, usize)> {
        let n_candidates = self.count_weighty()?;
        let total: f64 = span_weights.iter().sum();
        let (target, error) = (u * total, ERROR * total);
        let mut before = 0.0;
        for (weight, (n, span)) in span_weights.iter().zip(self.logits.chunks(SPAN).enumerate()) {
            if before + weight <= target + error {
                before += weight;
                continue;
            }
            // The drawn id is here, unless it is the last one of a span that was passed over within the error.
            let mut within = before;
            for (at, &logit) in span.iter().enumerate() {
                let passed = within;
                within += libm::exp(self.scaled(logit));
                if within > target + error {
                    let sure = passed <= target - error || passed == 0.0;
                    return sure.then_some(((n * SPAN + at) as TokenId, n_candidates));
                }
            }
            return None;
        }
        None
    }

    /// Ids whose weight is not zero; `None` where that takes an exact exponential to tell.
    fn count_weighty(&self) -> Option<usize> {
        let (finite, smallest) = scan::finite(self.logits);
        if self.scaled(smallest) >= exp::SMALLEST {
            return Some(finite);
        }
        /// exp of it is zero in f64, with a margin; that of -708 is not.
        const NOTHING: f64 = -746.0;
        let (mut weighty, mut weightless) = (0, 0);
        let factor = 1.0 / self.params.temperature;
        for logit in self.logits {
            let scaled = (f64::from(*logit) - self.largest) * factor;
            weighty += usize::from(scaled >= exp::SMALLEST);
            weightless += usize::from(scaled < NOTHING);
        }
        (weighty + weightless == self.logits.len()).then_some(weighty)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::params::{SamplingFields, SamplingParams};
    use super::super::super::random::uniform;
    use super::*;

    /// Rows of several shapes: near a bell, a few ids far above the rest, all equal, steps with many ties, bans.
    fn rows() -> Vec<Vec<f32>> {
        let bell = |seed: u64, i: u64| (0..6).map(|n| uniform(seed, n, i) - 0.5).sum::<f64>() as f32;
        let len = 20_000;
        vec![
            (0..len).map(|i| bell(1, i) * 8.0).collect(),
            (0..len).map(|i| if i % 997 == 0 { 12.0 + bell(2, i) } else { bell(2, i) }).collect(),
            vec![1.5; 5000],
            (0..len).map(|i| (bell(3, i) * 4.0).round()).collect(),
            (0..len).map(|i| if i % 3 == 0 { f32::NEG_INFINITY } else { bell(4, i) * 30.0 }).collect(),
            vec![-3.0],
        ]
    }

    #[test]
    fn the_fast_way_draws_what_the_exact_way_draws() {
        let (mut fast, mut exact) = (Scratch::default(), Scratch::default());
        let mut decided = 0;
        for logits in rows() {
            let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            for (temperature, top_p) in [
                (1.0, 1.0),
                (0.3, 1.0),
                (5e-324, 1.0),
                (1e30, 1.0),
                (1e-3, 1.0),
                (1.0, 0.95),
                (0.6, 0.5),
                (2.0, 0.0),
                (5.0, 0.9),
            ] {
                let fields = SamplingFields { temperature, top_p, ..SamplingFields::default() };
                let params = SamplingParams::parse(fields).unwrap();
                let row = Row { logits: &logits, largest, params: &params };
                for n in 0..12 {
                    // Both ends of the range, and draws between.
                    let u =
                        [0.0, 1.0 - f64::EPSILON / 2.0].get(n).copied().unwrap_or(uniform(9, 0, n as u64));
                    let expected = row.draw_exactly(None, u, &mut exact);
                    if let Some(drawn) = row.draw_from_all(u, &mut fast) {
                        decided += 1;
                        assert_eq!(drawn, expected, "temperature {temperature}, top_p {top_p}, u {u}");
                    }
                }
            }
        }
        assert!(decided > 300, "{decided} of 648");
    }
}
