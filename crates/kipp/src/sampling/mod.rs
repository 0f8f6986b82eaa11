//! From logits to a token. The order is: bias, penalties, constraint, temperature, top-k, min-p, top-p, draw.
//!
//! A draw is a function of (seed, choice, position) alone, so that a batch, a preemption or a speculated token
//! does not change an answer. Log-probabilities are of the raw logits: take them before `sample`, which works
//! in place.

pub mod constraint;
mod exp;
mod filters;
pub mod logprobs;
mod params;
mod penalties;
pub mod random;
mod scan;

pub use logprobs::{TokenLogProb, log_prob, log_sum_exp, top_logprobs};
pub use params::{SamplingError, SamplingFields, SamplingParams};

use crate::TokenId;

/// The sampler of one choice: owns its parameters, its history and its buffers.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    seed: u64,
    choice: u32,
    /// Ids so far, prompt and answer: the position of the next one.
    position: u64,
    valid_tokens: usize,
    penalties: penalties::Penalties,
    scratch: filters::Scratch,
}

/// What one step gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The chosen id.
    pub id: TokenId,
    /// Ids among which it was drawn, after every cut; 1 for a greedy choice.
    pub n_candidates: usize,
}

/// Why no id could be chosen; it concerns this sequence alone.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A logit is NaN or +inf: the model's numbers are broken.
    #[error("the logit of id {id} is {value}")]
    NotFinite {
        /// Its id.
        id: TokenId,
        /// NaN or +inf.
        value: f32,
    },
    /// Every id is banned, or there is none.
    #[error("no id is left to choose from: all {n_tokens} logits are -inf")]
    NoCandidate {
        /// Ids looked at.
        n_tokens: usize,
    },
}

/// The ids that a grammar allows next: bit `id % 32` of word `id / 32`. Ids past the last word are not allowed.
#[derive(Clone, Copy, Debug)]
pub struct AllowedTokens<'a>(pub &'a [u32]);

impl Sampler {
    /// A sampler for the answer to `prompt`. `choice` counts the answers of one request from 0.
    pub fn new(params: SamplingParams, seed: u64, choice: u32, prompt: &[TokenId]) -> Self {
        let penalties = penalties::Penalties::new(&params, prompt);
        let position = prompt.len() as u64;
        let scratch = filters::Scratch::default();
        Self { params, seed, choice, position, valid_tokens: usize::MAX, penalties, scratch }
    }

    /// Never chooses an id of `valid_tokens` or more: the head has padding rows that no tokenizer can spell.
    #[must_use]
    pub fn with_valid_tokens(mut self, valid_tokens: usize) -> Self {
        self.valid_tokens = valid_tokens;
        self
    }

    /// The parameters.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Chooses the next id from `logits` (`[vocab_size]`, changed in place). The history does not change: what
    /// was chosen counts from `accept` on.
    ///
    /// # Errors
    /// A NaN or +inf among the logits of valid ids, or no candidate at all.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<Sampled, SampleError> {
        self.sample_allowed(logits, None)
    }

    /// As `sample`, among the ids that a grammar allows.
    ///
    /// # Errors
    /// As `sample`.
    pub fn sample_allowed(
        &mut self,
        logits: &mut [f32],
        allowed: Option<AllowedTokens<'_>>,
    ) -> Result<Sampled, SampleError> {
        let n_tokens = logits.len().min(self.valid_tokens);
        let logits = &mut logits[..n_tokens];
        check_finite(logits)?;
        for &(id, bias) in &self.params.logit_bias {
            penalties::change(logits, id, |logit| logit + bias);
        }
        self.penalties.apply(logits);
        if let Some(AllowedTokens(words)) = allowed {
            ban_others(logits, words);
        }
        let (id, largest) = scan::argmax(logits).ok_or(SampleError::NoCandidate { n_tokens })?;
        if self.params.is_greedy() {
            return Ok(Sampled { id, n_candidates: 1 });
        }
        let u = random::uniform(self.seed, self.choice, self.position);
        let (id, n_candidates) = filters::draw(logits, largest, &self.params, u, &mut self.scratch);
        Ok(Sampled { id, n_candidates })
    }

    /// Takes `id` into the history: the next draw is for the position after it.
    pub fn accept(&mut self, id: TokenId) {
        self.position += 1;
        self.penalties.accept(id);
    }
}

/// Refuses NaN and +inf; -inf is a banned id.
fn check_finite(logits: &[f32]) -> Result<(), SampleError> {
    match scan::first_broken(logits) {
        Some(at) => Err(SampleError::NotFinite { id: at as TokenId, value: logits[at] }),
        None => Ok(()),
    }
}

/// Sets every id whose bit is not set to -inf.
fn ban_others(logits: &mut [f32], words: &[u32]) {
    for (n, ids) in logits.chunks_mut(32).enumerate() {
        let word = words.get(n).copied().unwrap_or(0);
        for (bit, logit) in ids.iter_mut().enumerate() {
            if word >> bit & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}
