//! What all requests share: the engine, the model's formats, and whether the server is about to end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kipp::TokenId;
use kipp::chat::ChatFormat;
use kipp::engine::EngineHandle;
use kipp::sampling::SamplingFields;
use kipp::sampling::constraint::ConstraintCompiler;
use kipp::tokenizer::Tokenizer;
use tokio::sync::watch;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::metrics::Metrics;

/// Notes on requests that are remembered, so that each is told once; a client that invents names of fields without end is
/// told no more.
const REMEMBERED_NOTES: usize = 1000;

/// What the server tells whoever runs it: one line of a log.
#[derive(Clone, Debug, PartialEq)]
pub enum LogLine {
    /// A request was answered to its end, or its client left.
    Request {
        /// The request's id, as in the answer's `x-request-id`.
        id: String,
        /// GET, POST, ...
        method: String,
        /// The route, not the client's own spelling; `other` for none.
        endpoint: String,
        /// HTTP status; 499 where the client left before there was one.
        status: u16,
        /// From the request's head to the end of the answer.
        duration_ms: f64,
        /// What the engine did for it, where it was asked.
        tokens: Option<TokenCounts>,
        /// Whether the whole answer was sent, without an error on its way.
        complete: bool,
    },
    /// Something that a person may want to know.
    Note(String),
}

/// Tokens of a request, all its prompts and choices together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Tokens of prompts.
    pub prompt: usize,
    /// Of those, the ones that the KV cache had.
    pub cached: usize,
    /// Tokens of answers.
    pub completion: usize,
}

/// Where log lines go. A library prints nothing itself.
pub type Log = Arc<dyn Fn(LogLine) + Send + Sync>;

/// What is served, and on which terms.
#[derive(Clone)]
pub struct ServerInfo {
    /// Names of the model; the first is the one that answers carry.
    pub names: Vec<String>,
    /// Take requests for any name.
    pub any_model: bool,
    /// Seconds since 1970 when the model was loaded.
    pub created: u64,
    /// Version of the program.
    pub version: String,
    /// Positions of a sequence, prompt and completion.
    pub context_tokens: usize,
    /// Tells text from ids.
    pub tokenizer: Tokenizer,
    /// Tokens that end an answer.
    pub end_tokens: Vec<TokenId>,
    /// The model's chat format; without it there are no chats.
    pub chat: Option<ChatFormat>,
    /// Structured output; without it requests for it are refused.
    pub constraints: Option<ConstraintCompiler>,
    /// Sampling where a request says nothing.
    pub sampling: SamplingFields,
    /// Keys that open the interface; none means open to everybody.
    pub keys: Vec<String>,
    /// Origins whose pages may call it.
    pub cors_origins: Vec<String>,
    /// Refuse fields that are not known, instead of ignoring them.
    pub strict_fields: bool,
    /// Tell the metrics by vLLM's names too.
    pub vllm_metrics: bool,
    /// Bytes of a body at most.
    pub max_body_bytes: usize,
    /// Seconds that a body may take to arrive.
    pub body_seconds: u64,
    /// Where log lines go.
    pub log: Log,
}

/// Bytes a token that no text has throughout.
const LONG_TOKEN_BYTES: usize = 64;

/// Bytes of a text that may be tokenized whatever the context is: who counts tokens may have longer ones.
const LEAST_TEXT_BYTES: usize = 1 << 20;

/// How much longer the server goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// What runs may end; nothing new is taken.
    Draining,
    /// What still runs is to end now.
    Ending,
}

/// The shared state.
pub(crate) struct App {
    pub(crate) info: ServerInfo,
    pub(crate) engine: EngineHandle,
    pub(crate) metrics: Metrics,
    pub(crate) phase: watch::Sender<Phase>,
    told: Mutex<BTreeSet<String>>,
    next_id: AtomicU64,
    /// Part of every id, so that ids of two runs differ.
    run: u64,
    pub(crate) started: Instant,
}

impl App {
    pub(crate) fn new(engine: EngineHandle, info: ServerInfo) -> App {
        let run = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), info.created);
        App {
            info,
            engine,
            metrics: Metrics::default(),
            phase: watch::Sender::new(Phase::Serving),
            told: Mutex::default(),
            next_id: AtomicU64::new(0),
            run,
            started: Instant::now(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// The ids of a raw prompt, in which control tokens count as such; an error for a text so long that looking at it would
    /// only take memory.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<TokenId>, ApiError> {
        let limit = self.info.context_tokens.saturating_mul(LONG_TOKEN_BYTES).max(LEAST_TEXT_BYTES);
        match text.len() > limit {
            true => Err(ApiError::text_too_long(text.len(), limit)),
            false => Ok(self.info.tokenizer.encode_with_control(text)),
        }
    }

    /// A new id.
    pub(crate) fn new_id(&self, prefix: &str) -> String {
        let n = self.next_id.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}{:016x}{n:08x}", self.run)
    }

    /// A seed for a request that brings none.
    pub(crate) fn new_seed(&self) -> u64 {
        // Keyed by the system's chance, and different each time.
        std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), self.run)
    }

    /// Seconds since 1970, as answers carry them.
    pub(crate) fn now(&self) -> u64 {
        self.info.created + self.started.elapsed().as_secs()
    }

    /// The name that answers carry.
    pub(crate) fn model(&self) -> &str {
        self.info.names.first().map_or("", String::as_str)
    }

    /// Refuses a model that is not served; null and absent are the one that is.
    pub(crate) fn check_model(&self, fields: &Fields<'_>) -> Result<(), ApiError> {
        match fields.text("model")? {
            Some(name) => self.check_name(name),
            None => Ok(()),
        }
    }

    pub(crate) fn check_name(&self, name: &str) -> Result<(), ApiError> {
        if self.info.any_model || self.info.names.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(ApiError::unknown_model(name, self.model()))
    }

    /// Tells fields that nobody asked for, each name once, or refuses them.
    pub(crate) fn check_unknown(&self, unknown: Vec<String>) -> Result<(), ApiError> {
        let Some(first) = unknown.first() else { return Ok(()) };
        if self.info.strict_fields {
            return Err(ApiError::field(
                first.escape_debug().to_string(),
                "is not known, and --strict-fields is on",
            ));
        }
        for name in unknown {
            let name: String = name.chars().take(100).collect();
            self.tell_once(&format!("unknown field {name:?} is ignored"));
        }
        Ok(())
    }

    /// A note that would otherwise come with every request.
    pub(crate) fn tell_once(&self, text: &str) {
        let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < REMEMBERED_NOTES && told.insert(text.clone()) {
            drop(told);
            self.note(text);
        }
    }

    pub(crate) fn note(&self, text: String) {
        (self.info.log)(LogLine::Note(text));
    }
}
