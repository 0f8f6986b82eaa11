//! A request from its submission to its end: its sink, its times, and how many of its choices are still to come. It
//! knows no sequence.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::completion::{Completion, Terms};
use super::event::{Event, FinishReason, GeneratedToken, RequestFailure, Sink, TokenScore};
use super::stats::RequestStats;

/// One request.
pub(super) struct Live {
    pub(super) terms: Arc<Terms>,
    pub(super) cache_salt: Vec<u8>,
    /// Alternatives to tell with each token of the prompt.
    pub(super) prompt_logprobs: Option<usize>,
    prompt_tokens: usize,
    cached_tokens: usize,
    /// Tokens of the prompt that were evaluated.
    evaluated_tokens: usize,
    submitted: Duration,
    /// When it left the queue.
    started: Option<Duration>,
    first_token: Option<Duration>,
    /// Choices that have not ended.
    unfinished: u32,
    sink: Box<dyn Sink>,
    /// The sink wants no more.
    closed: bool,
}

/// What a new request brings.
pub(super) struct Arrival {
    pub(super) terms: Arc<Terms>,
    pub(super) cache_salt: Vec<u8>,
    pub(super) prompt_logprobs: Option<usize>,
    pub(super) prompt_tokens: usize,
    pub(super) choices: u32,
    pub(super) at: Duration,
}

impl Live {
    pub(super) fn new(arrival: Arrival, sink: Box<dyn Sink>) -> Live {
        Live {
            terms: arrival.terms,
            cache_salt: arrival.cache_salt,
            prompt_logprobs: arrival.prompt_logprobs,
            prompt_tokens: arrival.prompt_tokens,
            cached_tokens: 0,
            evaluated_tokens: 0,
            submitted: arrival.at,
            started: None,
            first_token: None,
            unfinished: arrival.choices,
            sink,
            closed: false,
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.started.is_some()
    }

    /// Whether the sink wants no more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether every choice has ended.
    pub(super) fn is_complete(&self) -> bool {
        self.unfinished == 0
    }

    fn deliver(&mut self, event: Event) {
        if !self.closed {
            self.closed = self.sink.deliver(event) == ControlFlow::Break(());
        }
    }

    /// It leaves the queue.
    pub(super) fn start(&mut self, now: Duration, cached_tokens: usize) {
        self.started = Some(now);
        self.cached_tokens = cached_tokens;
        let queued = now.saturating_sub(self.submitted);
        self.deliver(Event::Started { cached_tokens, queued });
    }

    /// The prompt is evaluated to here. What a preemption threw away and is evaluated again counts once.
    pub(super) fn evaluated_to(&mut self, prompt_tokens: usize) {
        self.evaluated_tokens = self.evaluated_tokens.max(prompt_tokens.saturating_sub(self.cached_tokens));
    }

    /// The prompt is evaluated, and the first token chosen if there is to be one.
    pub(super) fn begin_answers(&mut self, now: Duration, scores: Vec<TokenScore>) {
        self.first_token.get_or_insert(now);
        if self.prompt_logprobs.is_some() {
            self.deliver(Event::Prompt { scores });
        }
    }

    pub(super) fn tell_tokens(&mut self, choice: u32, tokens: Vec<GeneratedToken>) {
        if !tokens.is_empty() {
            self.deliver(Event::Tokens { choice, tokens });
        }
    }

    /// A choice ends.
    pub(super) fn finish(&mut self, completion: &mut Completion, reason: FinishReason, now: Duration) {
        let stats = self.stats(completion, now);
        let text = completion.finish();
        self.unfinished = self.unfinished.saturating_sub(1);
        self.deliver(Event::Finished { choice: completion.choice, reason, text, stats });
    }

    pub(super) fn fail(mut self, failure: RequestFailure) {
        self.deliver(Event::Failed(failure));
    }

    fn stats(&self, completion: &Completion, now: Duration) -> RequestStats {
        let started = self.started.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        RequestStats {
            queue: started.saturating_sub(self.submitted),
            prefill: first_token.saturating_sub(started),
            decode: now.saturating_sub(first_token),
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            evaluated_tokens: self.evaluated_tokens,
            completion_tokens: completion.n_tokens,
            drafted_tokens: completion.drafting.as_ref().map_or(0, |drafting| drafting.drafted_tokens),
            accepted_tokens: completion.drafting.as_ref().map_or(0, |drafting| drafting.accepted_tokens),
        }
    }
}
