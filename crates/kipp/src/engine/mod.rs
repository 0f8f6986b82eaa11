//! Many sequences on one model: a state machine that takes requests, runs one batch a step and tells sinks what came of
//! it. It has no thread, no socket and no clock of its own; `handle` gives it a thread.
//!
//! ```text
//! step:
//!     every sequence that decodes gets the block that its next token needs; the youngest give theirs up     admission
//!     drafters propose; the token budget is shared; waiting sequences are admitted             scheduler, admission
//!     one batch is written, and run while constraints look at what may follow                          step, masking
//!     rows of logits become tokens; blocks of accepted tokens become findable; sinks are told                 settle
//! ```
//!
//! What a sequence answers depends on nothing of this: not on the company in its batch, the cut of its prompt, prefixes
//! found, preemptions, or drafts.

mod admission;
mod call;
mod call_text;
mod clock;
mod completion;
mod drafting;
mod event;
mod handle;
mod live;
mod masking;
mod pace;
mod request;
mod scheduler;
mod sequence;
mod settle;
mod split;
mod stats;
mod step;
mod stop;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub use clock::{Clock, SystemClock};
pub use event::{Event, FinishReason, GeneratedToken, RequestFailure, RequestId, Sink, TokenScore};
pub use handle::{ChannelSink, EngineHandle, UNDELIVERED_EVENTS};
pub use request::{
    MAX_CHOICES, MAX_LOGPROBS, MAX_STOPS, NewDrafter, Request, RequestError, Speculation, Thinking,
};
pub use split::{Delta, Marks, Opening, Split, SplitTerms};
pub use stats::{EngineStats, RequestStats, STEP_SECONDS, StepReport, StepTimes};
pub use stop::{Released, StopFilter};

use completion::{Completion, Terms};
use live::{Arrival, Live};
use pace::Pace;
use request::Limits;
use sequence::{Held, Sequence};

use crate::batch::Outputs;
use crate::kv::{BLOCK_TOKENS, KvPool};
use crate::model::Forward;
use crate::sampling::constraint::MaskWorker;
use crate::speculate::StepCosts;
use crate::token::TokenId;
use crate::tokenizer::Tokenizer;

/// Rows of logits a step at most: a row of Qwen3 takes 600 kB.
const LOGIT_ROWS: usize = 256;

/// Sequences that an engine runs at once at most: each that decodes has a row of logits.
pub const MAX_SEQUENCES: usize = LOGIT_ROWS;

/// How an engine is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Positions of a sequence, prompt and answer.
    pub context_tokens: usize,
    /// Rows of a step at most; also, never more than the model takes.
    pub step_tokens: usize,
    /// Sequences that run at once at most; also, never more than a step has rows.
    pub max_sequences: usize,
    /// Requests that wait at most; the next one is refused.
    pub max_waiting: usize,
    /// The tokens that end the model's answers.
    pub end_tokens: Vec<TokenId>,
    /// Gives answers their text; without it they are ids.
    pub tokenizer: Option<Tokenizer>,
    /// A pool that knows what the model's blocks hold already, for instance those of a session from a file; else all of
    /// them are free.
    pub pool: Option<KvPool>,
}

impl EngineOptions {
    /// For requests of ids, of up to `context_tokens` positions.
    pub fn new(context_tokens: usize) -> EngineOptions {
        EngineOptions {
            context_tokens,
            // Where prefill is about as fast as it gets on a processor, and a step not much over a tenth of a second.
            step_tokens: 512,
            max_sequences: MAX_SEQUENCES,
            max_waiting: 256,
            end_tokens: Vec::new(),
            tokenizer: None,
            pool: None,
        }
    }
}

/// Why an engine cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A sequence of the context would never fit.
    #[error(
        "the KV cache has {blocks} blocks of {BLOCK_TOKENS} tokens, but one sequence of {context_tokens} tokens needs \
         {needed}"
    )]
    TooFewBlocks {
        /// Blocks of the model's store.
        blocks: usize,
        /// Blocks that one sequence needs.
        needed: usize,
        /// Positions of a sequence.
        context_tokens: usize,
    },
    /// A pool that is not this model's.
    #[error("the pool has {pool} blocks, but the model's store has {store}")]
    OtherPool {
        /// Blocks of the pool.
        pool: usize,
        /// Blocks of the store.
        store: usize,
    },
    /// Steps, sequences or the context are nothing.
    #[error("`{0}` must be at least 1")]
    Zero(&'static str),
}

/// A sequence with blocks.
struct Running {
    sequence: Sequence,
    held: Held,
    role: Role,
}

/// What a running sequence has of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A part of what is left of it is evaluated.
    Prefills,
    /// The one token left is evaluated, and what it drafted.
    Decodes,
    /// Nothing: what its constraint allows next is still being found.
    SitsOut,
}

/// The engine.
pub struct Engine {
    forward: Box<dyn Forward>,
    clock: Box<dyn Clock>,
    tokenizer: Option<Tokenizer>,
    end_tokens: Vec<TokenId>,
    limits: Limits,
    step_tokens: usize,
    max_sequences: usize,
    max_waiting: usize,
    pool: KvPool,
    live: BTreeMap<RequestId, Live>,
    /// The oldest first.
    running: Vec<Running>,
    /// The oldest first; those that were preempted among them.
    waiting: VecDeque<Sequence>,
    next_id: u64,
    masks: MaskWorker,
    pace: Pace,
    /// What rows cost, for speculation that must pay.
    costs: StepCosts,
    outputs: Outputs,
    counts: EngineStats,
    healthy: bool,
}

impl Engine {
    /// An engine on a model, all of whose blocks it uses.
    ///
    /// # Errors
    /// Where one sequence of the context would not fit into the model's blocks.
    pub fn open(
        forward: Box<dyn Forward>,
        clock: Box<dyn Clock>,
        options: EngineOptions,
    ) -> Result<Engine, EngineError> {
        let context_tokens = options.context_tokens;
        let step_tokens = options.step_tokens.min(forward.max_rows());
        let named = [("context_tokens", context_tokens), ("step_tokens", step_tokens)];
        let zero = named.into_iter().chain([("max_sequences", options.max_sequences)]).find(|(_, n)| *n == 0);
        if let Some((name, _)) = zero {
            return Err(EngineError::Zero(name));
        }
        let (blocks, needed) = (forward.kv_blocks(), context_tokens.div_ceil(BLOCK_TOKENS));
        if needed > blocks {
            return Err(EngineError::TooFewBlocks { blocks, needed, context_tokens });
        }
        let pool = options.pool.unwrap_or_else(|| KvPool::new(blocks));
        if pool.stats().total != blocks {
            return Err(EngineError::OtherPool { pool: pool.stats().total, store: blocks });
        }
        let vocab_size = forward.spec().vocab_size;
        let valid_tokens = options.tokenizer.as_ref().map_or(vocab_size, |t| t.len().min(vocab_size));
        let has_tokenizer = options.tokenizer.is_some();
        Ok(Engine {
            limits: Limits { context_tokens, vocab_size, valid_tokens, has_tokenizer },
            step_tokens,
            max_sequences: options.max_sequences.min(step_tokens).min(MAX_SEQUENCES),
            max_waiting: options.max_waiting,
            pool,
            tokenizer: options.tokenizer,
            end_tokens: options.end_tokens,
            forward,
            clock,
            live: BTreeMap::new(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            next_id: 0,
            masks: MaskWorker::new(),
            pace: Pace::default(),
            costs: StepCosts::new(),
            outputs: Outputs::default(),
            counts: EngineStats::default(),
            healthy: true,
        })
    }

    /// Puts a request into the queue; its events go to `sink`, from [`Engine::step`] and [`Engine::cancel`].
    ///
    /// # Errors
    /// What the request asks for cannot be done; nothing of it was begun.
    pub fn submit(&mut self, request: Request, sink: Box<dyn Sink>) -> Result<RequestId, RequestError> {
        if !self.healthy {
            return Err(RequestError::Unhealthy);
        }
        self.limits.check(&request)?;
        let waiting = self.waiting_requests();
        if waiting >= self.max_waiting {
            return Err(RequestError::QueueFull { waiting });
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.submit_as(id, request, sink);
        Ok(id)
    }

    /// Puts a request that was checked into the queue.
    fn submit_as(&mut self, id: RequestId, request: Request, sink: Box<dyn Sink>) {
        let terms = Arc::new(self.terms(&request));
        let arrival = Arrival {
            terms: Arc::clone(&terms),
            prompt_logprobs: request.prompt_logprobs,
            prompt_tokens: request.prompt.len(),
            choices: request.choices,
            cache_salt: request.cache_salt.clone(),
            at: self.clock.now(),
        };
        let live = Live::new(arrival, sink);
        if !self.healthy {
            return live.fail(RequestFailure::Panicked("in an earlier step".to_owned()));
        }
        // Before anything of the caller's is called that may panic: whoever is here is told.
        self.live.insert(id, live);
        let completion = |choice| Completion::new(choice, &request, &terms, self.tokenizer.as_ref());
        let sequence = Sequence {
            request: id,
            completion: completion(0),
            others: (1..request.choices).map(completion).collect(),
            prompt_tokens: request.prompt.len(),
            tokens: request.prompt,
            computed_tokens: 0,
            draft: Vec::new(),
            scored_tokens: 0,
            scores: Vec::new(),
        };
        if let Some(seconds) = sequence.completion.drafting.as_ref().and_then(|drafting| drafting.seconds) {
            self.costs.expect_draft(seconds);
        }
        self.waiting.push_back(sequence);
    }

    fn terms(&self, request: &Request) -> Terms {
        let mut ends = request.stop_tokens.clone();
        if !request.ignore_eos || request.constraint.is_some() {
            ends.extend(&self.end_tokens);
        }
        Terms {
            max_tokens: request.max_tokens.min(self.limits.context_tokens - request.prompt.len()),
            min_tokens: request.min_tokens,
            ends,
            thinking: request.thinking,
            logprobs: request.logprobs,
            valid_tokens: self.limits.valid_tokens,
        }
    }

    /// Ends a request: each choice that has not ended is told to be cancelled. A request that is not there (any more) is
    /// left alone.
    pub fn cancel(&mut self, id: RequestId) {
        let Some(mut live) = self.live.remove(&id) else { return };
        let now = self.clock.now();
        self.counts.cancelled_requests += 1;
        for mut sequence in self.take_sequences(id) {
            let others = std::mem::take(&mut sequence.others);
            for mut completion in std::iter::once(sequence.completion).chain(others) {
                live.finish(&mut completion, FinishReason::Cancelled, now);
            }
        }
    }

    /// Ends every request, for instance because the engine is to be closed.
    pub fn fail_all(&mut self, failure: &RequestFailure) {
        let requests: Vec<RequestId> = self.live.keys().copied().collect();
        requests.into_iter().for_each(|id| self.fail(id, failure.clone()));
    }

    /// Runs one step of the requests that there are; nothing where there are none.
    ///
    /// A fault of the device ends the requests that were part of the step. A panic ends all of them, and the engine
    /// takes no more.
    pub fn step(&mut self) -> StepReport {
        if !self.healthy || !self.has_work() {
            return StepReport::default();
        }
        // What a panic leaves half done is not looked at again: everything is dropped, and nothing is taken.
        match catch_unwind(AssertUnwindSafe(|| self.advance())) {
            Ok(report) => report,
            Err(panic) => {
                self.give_up(&*panic);
                StepReport::default()
            }
        }
    }

    fn give_up(&mut self, panic: &(dyn Any + Send)) {
        self.healthy = false;
        self.running.clear();
        self.waiting.clear();
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        let failure = RequestFailure::Panicked(said.unwrap_or_else(|| "a panic".to_owned()));
        for (_, live) in std::mem::take(&mut self.live) {
            self.counts.failed_requests += 1;
            let failure = failure.clone();
            // The sink may be what panicked.
            let _ = catch_unwind(AssertUnwindSafe(|| live.fail(failure)));
        }
    }

    /// The model and the pool that knows what its blocks hold. Requests that have not ended are ended.
    pub fn into_parts(mut self) -> (Box<dyn Forward>, KvPool) {
        self.fail_all(&RequestFailure::Closed);
        (self.forward, self.pool)
    }

    /// Whether a step would do something.
    pub fn has_work(&self) -> bool {
        !self.live.is_empty()
    }

    /// Whether requests are taken. Once they are not, they never are again.
    pub fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// What was done and what is held.
    pub fn stats(&self) -> EngineStats {
        let waiting_requests = self.waiting_requests();
        EngineStats {
            waiting_requests,
            running_requests: self.live.len() - waiting_requests,
            kv: self.pool.stats(),
            ..self.counts
        }
    }

    fn waiting_requests(&self) -> usize {
        self.live.values().filter(|live| !live.has_started()).count()
    }

    /// The sequences of a request, out of wherever they are; their blocks return to the pool.
    fn take_sequences(&mut self, id: RequestId) -> Vec<Sequence> {
        let mut taken = Vec::new();
        taken.extend(self.running.extract_if(.., |r| r.sequence.request == id).map(|r| r.sequence));
        let (theirs, others) = std::mem::take(&mut self.waiting).into_iter().partition(|s| s.request == id);
        self.waiting = others;
        let theirs: VecDeque<Sequence> = theirs;
        taken.extend(theirs);
        taken.sort_by_key(Sequence::id);
        taken
    }

    fn fail(&mut self, id: RequestId, failure: RequestFailure) {
        drop(self.take_sequences(id));
        if let Some(live) = self.live.remove(&id) {
            self.counts.failed_requests += 1;
            live.fail(failure);
        }
    }
}
