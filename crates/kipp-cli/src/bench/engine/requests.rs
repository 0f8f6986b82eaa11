//! Requests on an engine that is driven step by step in this thread: their tokens with the moments at which they came,
//! and what each step did.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use kipp::TokenId;
use kipp::engine::{
    Engine, EngineOptions, Event, Request, RequestFailure, RequestStats, Sink, StepReport, SystemClock,
};
use kipp::gates::gate_tokens;
use kipp::model::Forward;

/// Tokens that the warm-up's answer has: the first step of one row meets much for the first time.
const WARM_UP_TOKENS: usize = 3;

/// What came of a request so far.
#[derive(Clone, Debug, Default)]
struct Told {
    tokens: Vec<TokenId>,
    /// When each of them was told.
    at: Vec<Instant>,
    stats: Option<RequestStats>,
    failure: Option<RequestFailure>,
}

/// A request under way.
#[derive(Clone, Default)]
pub(super) struct Pending(Arc<Mutex<Told>>);

impl Pending {
    fn told(&self) -> Told {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tokens so far.
    pub(super) fn len_tokens(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).tokens.len()
    }

    /// When each token came.
    pub(super) fn token_times(&self) -> Vec<Instant> {
        self.told().at
    }
}

impl Sink for Pending {
    fn deliver(&mut self, event: Event) -> ControlFlow<()> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Started { .. } | Event::Prompt { .. } => {}
            Event::Tokens { tokens, .. } => {
                let now = Instant::now();
                told.at.extend(tokens.iter().map(|_| now));
                told.tokens.extend(tokens.iter().map(|token| token.id));
            }
            Event::Finished { stats, .. } => told.stats = Some(stats),
            Event::Failed(failure) => told.failure = Some(failure),
        }
        ControlFlow::Continue(())
    }
}

/// A request that has finished.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) tokens: Vec<TokenId>,
    pub(super) stats: RequestStats,
}

/// An engine and its steps.
pub(super) struct Requests {
    engine: Engine,
    context_tokens: usize,
    steps: Vec<StepReport>,
}

impl Requests {
    /// An empty engine, with an empty pool.
    pub(super) fn open(
        forward: Box<dyn Forward>,
        step_tokens: usize,
        context_tokens: usize,
    ) -> Result<Requests> {
        let options = EngineOptions { step_tokens, ..EngineOptions::new(context_tokens) };
        let engine = Engine::open(forward, Box::new(SystemClock::default()), options)?;
        Ok(Requests { engine, context_tokens, steps: Vec::new() })
    }

    /// A short answer to a prompt of `prompt_tokens` other tokens, whose prefix nobody finds. Its steps do not count.
    pub(super) fn warm_up(&mut self, vocab_size: usize, prompt_tokens: usize) -> Result<()> {
        let fits = self.context_tokens.saturating_sub(WARM_UP_TOKENS).max(1);
        let mut prompt = gate_tokens(vocab_size, prompt_tokens.min(fits));
        prompt.reverse();
        let request = Request { cache_salt: b"warm-up".to_vec(), ..Request::new(prompt, WARM_UP_TOKENS) };
        self.answer(request)?;
        self.steps.clear();
        Ok(())
    }

    pub(super) fn submit(&mut self, request: Request) -> Result<Pending> {
        let pending = Pending::default();
        self.engine.submit(request, Box::new(pending.clone()))?;
        Ok(pending)
    }

    /// One step; whether there is more to do.
    pub(super) fn step(&mut self) -> bool {
        let report = self.engine.step();
        self.steps.push(report);
        self.engine.has_work()
    }

    /// The answer to a request, once nothing is left to do.
    pub(super) fn finish(&mut self, pending: &Pending) -> Result<Answer> {
        while self.engine.has_work() {
            self.step();
        }
        let Told { tokens, stats, failure, .. } = pending.told();
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        Ok(Answer { tokens, stats: stats.context("a request ended without an answer")? })
    }

    /// One request alone.
    pub(super) fn answer(&mut self, request: Request) -> Result<Answer> {
        let pending = self.submit(request)?;
        self.finish(&pending)
    }

    /// What the steps did since the last call.
    pub(super) fn take_steps(&mut self) -> Vec<StepReport> {
        std::mem::take(&mut self.steps)
    }

    /// The model; requests under way are dropped.
    pub(super) fn into_forward(self) -> Box<dyn Forward> {
        self.engine.into_parts().0
    }
}
