//! What an engine tells about a request: events into a sink that never blocks. What becomes of them (a terminal, a stream
//! to a client, a test) is not known here.

use std::ops::ControlFlow;
use std::time::Duration;

use super::stats::RequestStats;
use crate::backend::BackendError;
use crate::kv::KvError;
use crate::sampling::constraint::ConstraintError;
use crate::sampling::{SampleError, TokenLogProb};
use crate::token::TokenId;
use crate::tokenizer::TokenizerError;

/// A request, for as long as its engine lives. Later requests have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Takes the events of one request.
pub trait Sink: Send {
    /// Takes an event without waiting for anybody. `Break` ends the request: nobody wants more of it.
    fn deliver(&mut self, event: Event) -> ControlFlow<()>;
}

/// Something that happened to a request. Each choice ends with one [`Event::Finished`], unless the request as a whole
/// ends with [`Event::Failed`]; nothing follows either.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The request left the queue.
    Started {
        /// Prompt tokens that need no evaluation, because the KV cache has them.
        cached_tokens: usize,
        /// How long it waited.
        queued: Duration,
    },
    /// What the model thinks of the prompt, if it was asked: the second token and those after it.
    Prompt {
        /// `[prompt_tokens - 1]`
        scores: Vec<TokenScore>,
    },
    /// A choice went on.
    Tokens {
        /// Its number, from 0.
        choice: u32,
        /// At least one token; more where drafts were accepted.
        tokens: Vec<GeneratedToken>,
    },
    /// A choice is complete.
    Finished {
        /// Its number, from 0.
        choice: u32,
        /// Why it ended.
        reason: FinishReason,
        /// Text that was held back until now; after the text of all its tokens.
        text: String,
        /// Counts and times.
        stats: RequestStats,
    },
    /// The request ended without finishing.
    Failed(RequestFailure),
}

/// A token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedToken {
    /// Its id. The end token of an answer is none of it.
    pub id: TokenId,
    /// Text that this token lets out. A character or a stop string that is not decided yet is held back, so this need not
    /// be the text of the id.
    pub text: String,
    /// What the model thinks of it, if it was asked.
    pub score: Option<TokenScore>,
}

/// What the model thinks of a token, from its raw logits.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The token.
    pub token: TokenLogProb,
    /// The most likely ones, as many as were asked for, most likely first.
    pub top: Vec<TokenLogProb>,
}

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token, a stop string, or a constraint that is fulfilled.
    Stop,
    /// As many tokens as asked for, or as the context holds.
    Length,
    /// It was cancelled.
    Cancelled,
}

/// Why a request ended without finishing: our fault, not the caller's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestFailure {
    /// The device failed in a step that this request was part of.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Rejected drafts could not be taken back.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// No token could be chosen.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The model's numbers before a token of the prompt are broken.
    #[error("the logits before token {position} of the prompt are not finite")]
    Score {
        /// The token's position.
        position: usize,
    },
    /// The tokenizer has no such token.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The constraint cannot go on.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// A step gave no answer to a row that asked.
    #[error("the step gave no answer for row {row}")]
    NoAnswer {
        /// The row in its batch.
        row: usize,
    },
    /// The engine met a fault of its own; it takes no more requests.
    #[error("the engine failed: {0}")]
    Panicked(String),
    /// The engine was closed.
    #[error("the engine was closed")]
    Closed,
}
