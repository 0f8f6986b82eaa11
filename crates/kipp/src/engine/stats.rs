//! Counts and times: of a request, of a step, and of the engine since it was opened. What is shown of them, and how, is
//! not known here.

use std::time::Duration;

use crate::kv::KvStats;

/// What became of one choice of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestStats {
    /// From the submission until the request left the queue.
    pub queue: Duration,
    /// From there to the first token: the prompt's evaluation, and the choice of that token.
    pub prefill: Duration,
    /// From the first token to the end.
    pub decode: Duration,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, the ones that the KV cache had when the request left the queue: whole blocks, at most all but one.
    pub cached_tokens: usize,
    /// Tokens of the prompt that were evaluated; those that a preemption made necessary again not counted.
    pub evaluated_tokens: usize,
    /// Tokens of the answer.
    pub completion_tokens: usize,
    /// Tokens that a drafter proposed.
    pub drafted_tokens: usize,
    /// Of those, the ones that became part of the answer.
    pub accepted_tokens: usize,
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Rows that continue an answer, drafts not counted.
    pub decode_rows: usize,
    /// Rows of drafts.
    pub draft_rows: usize,
    /// Rows that evaluate prompts, or again what a preemption threw away.
    pub prefill_rows: usize,
    /// How long it took.
    pub duration: Duration,
}

impl StepReport {
    /// Rows of the batch.
    pub fn rows(&self) -> usize {
        self.decode_rows + self.draft_rows + self.prefill_rows
    }
}

/// Upper bounds, in seconds, by which steps are counted: from a token of a small model to a prompt's chunk of a large one.
pub const STEP_SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// How long steps took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// Steps above the bound before and up to each of [`STEP_SECONDS`].
    pub counts: [u64; STEP_SECONDS.len()],
    /// All of them together.
    pub total: Duration,
}

impl StepTimes {
    /// A step took so long.
    pub(super) fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let counts = STEP_SECONDS.iter().zip(&mut self.counts);
        if let Some((_, count)) = counts.into_iter().find(|(bound, _)| seconds <= **bound) {
            *count += 1;
        }
        self.total += duration;
    }
}

/// What an engine did since it was opened, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests that have left the queue and not ended.
    pub running_requests: usize,
    /// Requests in the queue.
    pub waiting_requests: usize,
    /// Requests whose choices all finished.
    pub finished_requests: u64,
    /// Requests that were cancelled, by whoever sent them or because nobody took their events.
    pub cancelled_requests: u64,
    /// Requests that failed.
    pub failed_requests: u64,
    /// Steps.
    pub steps: u64,
    /// How long they took.
    pub step_times: StepTimes,
    /// Prompt tokens of requests that left the queue, adopted ones too.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub generated_tokens: u64,
    /// Looks for a known prefix, one each time that a sequence is admitted.
    pub prefix_queries: u64,
    /// Of those, the ones that found some.
    pub prefix_hits: u64,
    /// Tokens that were adopted instead of evaluated.
    pub prefix_tokens_reused: u64,
    /// Sequences that gave their blocks to older ones and started again.
    pub preemptions: u64,
    /// Tokens that drafters proposed.
    pub drafted_tokens: u64,
    /// Of those, the ones that became part of an answer.
    pub accepted_tokens: u64,
    /// The blocks.
    pub kv: KvStats,
}
