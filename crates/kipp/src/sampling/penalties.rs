//! What the ids so far do to the next logits: repetition over a window of prompt and answer, presence and
//! frequency over the answer alone. Not the bias (a constant of the request).

use std::collections::VecDeque;

use super::params::{SamplingParams, Window};
use crate::TokenId;

/// The ids so far, kept only as far as the asked penalties need them.
#[derive(Clone, Debug)]
pub(super) struct Penalties {
    repetition: f64,
    presence: f64,
    frequency: f64,
    window: Window,
    /// The last ids under `Window::Last`, every distinct id under `Window::All`.
    recent: VecDeque<TokenId>,
    /// `[n_tokens]`, grown to the largest id: the pass in which an id was last met.
    met: Vec<u64>,
    pass: u64,
    /// `[n_tokens]`, grown to the largest id: how often the answer has an id.
    counts: Vec<u32>,
    /// The distinct ids of the answer.
    generated: Vec<TokenId>,
}

impl Penalties {
    pub(super) fn new(params: &SamplingParams, prompt: &[TokenId]) -> Self {
        let mut penalties = Self {
            repetition: params.repetition_penalty,
            presence: params.presence_penalty,
            frequency: params.frequency_penalty,
            window: params.repetition_window,
            recent: VecDeque::new(),
            met: Vec::new(),
            pass: 1,
            counts: Vec::new(),
            generated: Vec::new(),
        };
        let start = match penalties.window {
            Window::All => 0,
            Window::Last(n) => prompt.len().saturating_sub(n),
        };
        for &id in prompt.get(start..).unwrap_or_default() {
            penalties.remember(id);
        }
        penalties
    }

    /// Notes an id of the answer.
    pub(super) fn accept(&mut self, id: TokenId) {
        self.remember(id);
        if self.presence == 0.0 && self.frequency == 0.0 {
            return;
        }
        let count = entry(&mut self.counts, id);
        *count = count.saturating_add(1);
        if *count == 1 {
            self.generated.push(id);
        }
    }

    /// Puts an id into the repetition window.
    fn remember(&mut self, id: TokenId) {
        if self.repetition == 1.0 {
            return;
        }
        match self.window {
            Window::All => {
                if std::mem::replace(entry(&mut self.met, id), 1) == 0 {
                    self.recent.push_back(id);
                }
            }
            Window::Last(0) => {}
            Window::Last(n) => {
                if self.recent.len() >= n {
                    self.recent.pop_front();
                }
                self.recent.push_back(id);
            }
        }
    }

    /// Applies all three to `logits` (`[n_tokens]`). Repetition goes once per distinct id: positive logits are
    /// divided, negative ones multiplied; then count times frequency and once presence are taken off.
    pub(super) fn apply(&mut self, logits: &mut [f32]) {
        self.pass += 1;
        for &id in &self.recent {
            if self.window != Window::All
                && std::mem::replace(entry(&mut self.met, id), self.pass) == self.pass
            {
                continue;
            }
            change(
                logits,
                id,
                |logit| if logit > 0.0 { logit / self.repetition } else { logit * self.repetition },
            );
        }
        for &id in &self.generated {
            let count = self.counts.get(id as usize).copied().unwrap_or(0);
            change(logits, id, |logit| logit - f64::from(count) * self.frequency - self.presence);
        }
    }
}

/// The entry of `id`; the table grows to it. An id is at most what a tokenizer holds, and the growth happens
/// once, so that later tokens allocate nothing.
fn entry<T: Default + Clone>(table: &mut Vec<T>, id: TokenId) -> &mut T {
    let index = id as usize;
    if index >= table.len() {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}

/// Changes one logit; one that is -inf stays (the id is banned), and no result leaves the finite range.
pub(super) fn change(logits: &mut [f32], id: TokenId, f: impl FnOnce(f64) -> f64) {
    if let Some(logit) = logits.get_mut(id as usize).filter(|logit| logit.is_finite()) {
        *logit = f(f64::from(*logit)).clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::super::params::SamplingFields;
    use super::*;

    fn penalties(fields: SamplingFields, prompt: &[TokenId]) -> Penalties {
        Penalties::new(&SamplingParams::parse(fields).unwrap(), prompt)
    }

    fn logits() -> Vec<f32> {
        vec![0.0, 0.0, 0.0, 0.0, 0.0, 2.0, -2.0, 1.0]
    }

    fn history() -> Vec<TokenId> {
        let mut ids = vec![5; 80];
        ids.push(6);
        ids
    }

    #[test]
    fn h19_repetition_goes_once_per_distinct_id() {
        for repetition_last_n in [-1, 64, 81, 1_000_000_000_000] {
            let fields = SamplingFields { repetition_penalty: 1.1, repetition_last_n, ..Default::default() };
            let mut logits = logits();
            let mut penalties = penalties(fields, &history());
            penalties.apply(&mut logits);
            assert_eq!(logits[5..], [(2.0f64 / 1.1) as f32, -2.2, 1.0]);
            // A second step starts from fresh logits and must do the same.
            let mut again = self::logits();
            penalties.apply(&mut again);
            assert_eq!(again, logits);
        }
    }

    #[test]
    fn h19_the_window_ends_at_its_length() {
        let mut history = vec![6];
        history.extend([5; 64]);
        let fields = SamplingFields { repetition_penalty: 1.1, ..Default::default() };
        let mut logits = logits();
        penalties(fields.clone(), &history).apply(&mut logits);
        assert_eq!(logits[6], -2.0, "distance 65 is outside");
        let mut inside = self::logits();
        penalties(fields.clone(), &history[..64]).apply(&mut inside);
        assert_eq!(inside[6], -2.2, "distance 64 is inside");
        let mut off = self::logits();
        penalties(SamplingFields { repetition_last_n: 0, ..fields }, &history).apply(&mut off);
        assert_eq!(off, self::logits());
    }

    #[test]
    fn h19_frequency_by_count_presence_once_over_generated_ids() {
        for (presence_penalty, frequency_penalty, expected) in [(0.0, 0.5, 2.0 - 40.0), (0.5, 0.0, 1.5)] {
            let fields = SamplingFields { presence_penalty, frequency_penalty, ..Default::default() };
            let mut logits = logits();
            penalties(fields.clone(), &history()).apply(&mut logits);
            assert_eq!(logits, self::logits(), "the prompt does not count");
            let mut penalties = penalties(fields, &[]);
            history().into_iter().for_each(|id| penalties.accept(id));
            penalties.apply(&mut logits);
            assert_eq!((logits[5], logits[7]), (expected, 1.0));
        }
    }

    #[test]
    fn results_stay_finite_and_banned_ids_stay_banned() {
        let fields = SamplingFields { repetition_penalty: 1e-300, ..Default::default() };
        let mut logits = vec![3e38, -3e38, f32::NEG_INFINITY];
        penalties(fields, &[0, 1, 2, 900]).apply(&mut logits);
        assert_eq!(logits, [f32::MAX, -0.0, f32::NEG_INFINITY]);
    }
}
