//! From adjusted logits to one id: temperature, top-k, min-p, top-p, draw, in this order.
//!
//! ```text
//! weight(id) = exp((logit(id) - largest) / temperature)        the largest weighs 1
//! top_k: the k first by (logit down, id up)
//! min_p: weight >= min_p
//! top_p: the shortest prefix by (logit down, id up) with at least top_p of the weight that is left
//! draw:  walk the rest by ascending id until the sum exceeds u * total
//! ```
//!
//! The largest logit passes each cut, so at least one candidate is always left. Sums are f64 in spans of a
//! fixed length, and `exp` is `libm`'s, so that the chosen id does not depend on the machine.

use super::params::SamplingParams;
use super::scan::{self, select_top};
use crate::TokenId;

mod all;

/// Values summed before the sum is merged; fixed, so that every machine rounds alike.
pub(super) const SPAN: usize = 1024;

/// An id that may still be drawn.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: TokenId,
    logit: f32,
    weight: f64,
}

/// Buffers that live as long as the sampler, so that a token allocates nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    candidates: Vec<Candidate>,
    top: Vec<TokenId>,
    /// Approximate weights of spans; see [`Row::draw_from_all`].
    span_weights: Vec<f64>,
}

/// Draws with `u` in `0.0..1.0` from `logits` (`[n_tokens]`, finite or -inf), whose largest value is `largest`
/// (finite). Returns the id and how many candidates the cuts left.
pub(super) fn draw(
    logits: &[f32],
    largest: f32,
    params: &SamplingParams,
    u: f64,
    scratch: &mut Scratch,
) -> (TokenId, usize) {
    let row = Row { logits, largest: f64::from(largest), params };
    let top_k = params.top_k.filter(|&k| k < logits.len());
    if top_k.is_none()
        && params.min_p == 0.0
        && let Some(drawn) = row.draw_from_all(u, scratch)
    {
        return drawn;
    }
    row.draw_exactly(top_k, u, scratch)
}

/// A row of logits and what is asked of it.
struct Row<'a> {
    logits: &'a [f32],
    largest: f64,
    params: &'a SamplingParams,
}

impl Row<'_> {
    /// The logarithm of an id's weight.
    fn scaled(&self, logit: f32) -> f64 {
        (f64::from(logit) - self.largest) / self.params.temperature
    }

    /// As the top of this file says, with an exponential for each id that may be drawn.
    fn draw_exactly(&self, top_k: Option<usize>, u: f64, scratch: &mut Scratch) -> (TokenId, usize) {
        let Scratch { candidates, top, .. } = scratch;
        candidates.clear();
        // A weight below min_p needs no exp; the margin keeps rounding of the logarithm out of the decision.
        let floor = libm::log(self.params.min_p) - 1e-6;
        let mut consider = |id: TokenId, logit: f32| {
            let scaled = self.scaled(logit);
            if scaled < floor {
                return;
            }
            let weight = libm::exp(scaled);
            if weight > 0.0 && weight >= self.params.min_p {
                candidates.push(Candidate { id, logit, weight });
            }
        };
        match top_k {
            Some(k) => {
                select_top(self.logits, k, top);
                top.sort_unstable();
                for &id in top.iter() {
                    consider(id, self.logits[id as usize]);
                }
            }
            None => {
                let bar = self.bar(floor);
                for (n, span) in self.logits.chunks(scan::SPAN).enumerate() {
                    if scan::largest(span) < bar {
                        continue;
                    }
                    for (at, &logit) in span.iter().enumerate() {
                        consider((n * scan::SPAN + at) as TokenId, logit);
                    }
                }
            }
        }
        if self.params.top_p < 1.0 {
            cut_top_p(candidates, self.params.top_p);
        }
        (pick(candidates, u), candidates.len())
    }

    /// A logit below which every scaled one is surely below `floor`, also after rounding to f32.
    fn bar(&self, floor: f64) -> f32 {
        let bar = self.largest + floor * self.params.temperature;
        (bar - (bar.abs() + self.largest.abs() + 1.0) * 1e-6) as f32
    }
}

/// Keeps the shortest prefix by (logit down, id up) that holds `top_p` of the weight; ascending ids again.
fn cut_top_p(candidates: &mut Vec<Candidate>, top_p: f64) {
    let enough = top_p * total(candidates);
    let order = |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id));
    let (mut sorted, mut held, mut kept) = (0, 0.0, 0);
    // Sorting all of a vocabulary costs more than the forward pass of a small model: sort the head only, and
    // four times more each time that it was too short.
    let mut step = 64;
    'grow: while sorted < candidates.len() {
        let rest = &mut candidates[sorted..];
        let here = step.min(rest.len());
        if here < rest.len() {
            rest.select_nth_unstable_by(here - 1, order);
        }
        rest[..here].sort_unstable_by(order);
        for candidate in &rest[..here] {
            kept += 1;
            held += candidate.weight;
            if held >= enough {
                break 'grow;
            }
        }
        sorted += here;
        step *= 4;
    }
    candidates.truncate(kept);
    candidates.sort_unstable_by_key(|candidate| candidate.id);
}

/// Sum of all weights, span by span.
fn total(candidates: &[Candidate]) -> f64 {
    candidates.chunks(SPAN).map(span_weight).sum()
}

fn span_weight(span: &[Candidate]) -> f64 {
    span.iter().map(|candidate| candidate.weight).sum()
}

/// The candidate in whose share of the total `u` falls.
fn pick(candidates: &[Candidate], u: f64) -> TokenId {
    let target = u * total(candidates);
    let mut before = 0.0;
    for span in candidates.chunks(SPAN) {
        let weight = span_weight(span);
        if before + weight > target {
            let mut within = before;
            for candidate in span {
                within += candidate.weight;
                if within > target {
                    return candidate.id;
                }
            }
        }
        before += weight;
    }
    // Rounding can leave the sum a hair under the target: the last candidate owns that hair.
    candidates.last().map_or(0, |candidate| candidate.id)
}

#[cfg(test)]
mod tests {
    use super::super::params::SamplingFields;
    use super::*;

    /// What the cuts leave; both ways to draw agree on it.
    fn kept(logits: &[f32], fields: SamplingFields) -> Vec<TokenId> {
        let params = SamplingParams::parse(fields).unwrap();
        let mut scratch = Scratch::default();
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let drawn = draw(logits, largest, &params, 0.5, &mut scratch);
        let row = Row { logits, largest: f64::from(largest), params: &params };
        let top_k = params.top_k.filter(|&k| k < logits.len());
        let (id, n) = row.draw_exactly(top_k, 0.5, &mut scratch);
        assert_eq!(drawn, (id, n));
        let kept: Vec<TokenId> = scratch.candidates.iter().map(|candidate| candidate.id).collect();
        assert_eq!(kept.len(), n);
        assert!(kept.contains(&id) && kept.is_sorted());
        kept
    }

    fn fields() -> SamplingFields {
        SamplingFields::default()
    }

    #[test]
    fn h18_temperature_comes_before_top_p() {
        let logits = [3.0, 2.0, 1.0];
        assert_eq!(kept(&logits, SamplingFields { temperature: 0.5, top_p: 0.8, ..fields() }), [0]);
        assert_eq!(kept(&logits, SamplingFields { temperature: 1.0, top_p: 0.8, ..fields() }), [0, 1]);
    }

    #[test]
    fn h18_every_cut_keeps_at_least_one_candidate() {
        let logits = [0.0, 100.0, 90.0, f32::NEG_INFINITY];
        for top_p in [0.0, 1e-9] {
            assert_eq!(kept(&logits, SamplingFields { top_p, temperature: 1e30, ..fields() }), [1]);
        }
        assert_eq!(kept(&logits, SamplingFields { min_p: 1.0, ..fields() }), [1]);
        assert_eq!(kept(&logits, SamplingFields { top_k: 1, temperature: 1e30, ..fields() }), [1]);
        for top_k in [0, -1, 4, 1_000_000_000] {
            assert_eq!(kept(&logits, SamplingFields { top_k, temperature: 1e30, ..fields() }), [0, 1, 2]);
        }
    }

    #[test]
    fn ties_at_a_cut_go_to_the_lower_id() {
        assert_eq!(kept(&[1.0; 300], SamplingFields { top_k: 3, ..fields() }), [0, 1, 2]);
        assert_eq!(kept(&[1.0; 300], SamplingFields { top_p: 0.01, ..fields() }), [0, 1, 2]);
        assert_eq!(kept(&[1.0, 2.0, 2.0, 2.0], SamplingFields { top_k: 2, ..fields() }), [1, 2]);
    }

    #[test]
    fn min_p_is_a_share_of_the_largest_weight() {
        let logits: Vec<f32> = [1.0f64, 0.5, 0.25, 0.1].iter().map(|p| p.ln() as f32).collect();
        assert_eq!(kept(&logits, SamplingFields { min_p: 0.24, ..fields() }), [0, 1, 2]);
        assert_eq!(kept(&logits, SamplingFields { min_p: 0.26, ..fields() }), [0, 1]);
    }

    /// The fast selections agree with a plain sort of everything.
    #[test]
    fn selections_agree_with_a_full_sort() {
        let logits: Vec<f32> = (0u64..5000)
            .map(|i| (super::super::random::uniform(1, 0, i) * 40.0).round() as f32 / 4.0)
            .collect();
        let mut sorted: Vec<TokenId> = (0..5000).collect();
        sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        for k in [1, 2, 31, 64, 65, 1000, 4999] {
            let mut expected = sorted[..k].to_vec();
            expected.sort_unstable();
            assert_eq!(kept(&logits, SamplingFields { top_k: k as i64, ..fields() }), expected, "k {k}");
        }
        for top_p in [0.1, 0.5, 0.9, 0.999] {
            let weights: Vec<f64> =
                sorted.iter().map(|id| libm::exp(f64::from(logits[*id as usize]) - 10.0)).collect();
            let enough = top_p * weights.iter().sum::<f64>();
            let mut held = 0.0;
            let n = weights.iter().position(|weight| {
                held += weight;
                held >= enough
            });
            let mut expected = sorted[..=n.unwrap()].to_vec();
            expected.sort_unstable();
            assert_eq!(kept(&logits, SamplingFields { top_p, ..fields() }), expected, "top_p {top_p}");
        }
    }
}
