//! From a grammar to a constraint, within limits of time and memory, whatever the grammar.
//!
//! Compiling runs on a thread of its own: it needs a deep stack, and a caller can stop waiting for it. One that is given up
//! ends by itself, for the compiler counts its steps; until then it counts among those that may run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::calls::{self, ToolFunction};
use super::{Constraint, ConstraintError, schema, vocabulary};
use crate::TokenId;
use crate::artifact::Escaped;
use crate::tokenizer::Tokenizer;

/// Text of a grammar that is read. Schemas of whole interfaces are shorter.
const MAX_BYTES: usize = 256 << 10;

/// Brackets within brackets in a grammar or regular expression, and values within values in a schema: parsers of these call
/// themselves for each.
const MAX_DEPTH: usize = 64;

/// How long a caller waits. Requests are promised an answer within two seconds.
const TIME_LIMIT: Duration = Duration::from_millis(1800);

/// Grammars that may compile at once, those given up included.
const MAX_RUNNING: usize = 4;

/// Stack of a compiling thread: 128 levels of combining at 2.5 KiB each and parsing at `MAX_DEPTH`, with room.
const STACK_BYTES: usize = 32 << 20;

/// States of a grammar's lexer, which take 1-2 kB each: at most 64 MB a grammar, where 250,000 is the compiler's own limit.
const MAX_LEXER_STATES: usize = 1 << 15;

/// Symbols of a grammar, a tenth of the compiler's own limit: it is for machines with many users.
const MAX_GRAMMAR_SIZE: usize = 100_000;

/// What an answer must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// A JSON schema, as JSON text. `{}` allows any JSON value.
    JsonSchema(String),
    /// A regular expression (Rust's syntax) that the whole answer matches.
    Regex(String),
    /// A Lark grammar in `llguidance`'s variant.
    Lark(String),
    /// Calls of functions, in the form that Qwen's chat templates ask for.
    ToolCalls {
        /// At least one.
        functions: Vec<ToolFunction>,
        /// More than one call may come.
        parallel: bool,
    },
}

/// Compiles grammars for one tokenizer. Clones are cheap and share it.
#[derive(Clone)]
pub struct ConstraintCompiler(Arc<Shared>);

pub(super) struct Shared {
    factory: ParserFactory,
    pub(super) vocabulary: Allowed,
    running: AtomicUsize,
}

/// The sets of tokens that are allowed outside the grammar, and tokens that mean something there.
pub(super) struct Allowed {
    /// Tokens that end an answer, sorted.
    pub(super) end_tokens: Vec<TokenId>,
    /// Bit `id % 32` of word `id / 32`: every token that has a text but those that end an answer.
    pub(super) thinking: Vec<u32>,
    pub(super) think: Option<TokenId>,
    pub(super) think_end: Option<TokenId>,
    /// The token of a blank line, which models write after thinking.
    pub(super) blank_line: Option<TokenId>,
}

impl ConstraintCompiler {
    /// A compiler for answers in the tokens of `tokenizer` that `end_tokens` end. Takes some tenths of a second for a large
    /// vocabulary.
    ///
    /// # Errors
    /// No end token, or a vocabulary beyond all bounds.
    pub fn new(tokenizer: &Tokenizer, end_tokens: &[TokenId]) -> Result<ConstraintCompiler, ConstraintError> {
        let environment = vocabulary::environment(tokenizer, end_tokens)?;
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
            .map_err(|error| refused(&error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            max_lexer_states: MAX_LEXER_STATES,
            max_grammar_size: MAX_GRAMMAR_SIZE,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        let trie = environment.tok_trie();
        let mut end_tokens = trie.eos_tokens().to_vec();
        end_tokens.sort_unstable();
        let mut thinking = vec![0u32; tokenizer.len().div_ceil(32)];
        let spelled = (0..tokenizer.len() as TokenId)
            .filter(|id| !trie.token(*id).is_empty() && end_tokens.binary_search(id).is_err());
        for id in spelled {
            thinking[id as usize / 32] |= 1 << (id % 32);
        }
        let blank_line = match tokenizer.encode("\n\n").as_slice() {
            [one] => Some(*one),
            _ => None,
        };
        let vocabulary = Allowed {
            end_tokens,
            thinking,
            think: tokenizer.token_id("<think>"),
            think_end: tokenizer.token_id("</think>"),
            blank_line,
        };
        Ok(ConstraintCompiler(Arc::new(Shared { factory, vocabulary, running: AtomicUsize::new(0) })))
    }

    /// Compiles a grammar, in less than two seconds or not at all.
    ///
    /// # Errors
    /// A grammar that is invalid, beyond a limit or not compiled in time.
    pub fn compile(&self, grammar: &Grammar) -> Result<Constraint, ConstraintError> {
        let top = parse(grammar)?;
        let place = Place::take(&self.0).ok_or(ConstraintError::Busy { running: MAX_RUNNING })?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let shared = Arc::clone(&self.0);
        let work = move || {
            let place = place;
            let made = make(&shared, top);
            drop(place);
            // Nobody may be waiting any more.
            let _ = sender.send(made);
        };
        std::thread::Builder::new()
            .name("kipp-grammar".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(work)
            .map_err(|error| ConstraintError::NoThread { reason: Escaped::text(&error.to_string()) })?;
        match receiver.recv_timeout(TIME_LIMIT) {
            Ok(made) => made,
            Err(RecvTimeoutError::Timeout) => {
                Err(ConstraintError::TooSlow { limit_ms: TIME_LIMIT.as_millis() as u64 })
            }
            Err(RecvTimeoutError::Disconnected) => Err(refused("the compiler failed")),
        }
    }

    pub(super) fn vocabulary(&self) -> &Allowed {
        &self.0.vocabulary
    }
}

/// A place among the grammars that compile, given back when dropped.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Place> {
        let place = Place(Arc::clone(shared));
        // Dropping `place` takes the count back.
        (shared.running.fetch_add(1, Ordering::AcqRel) < MAX_RUNNING).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

fn make(shared: &Arc<Shared>, grammar: TopLevelGrammar) -> Result<Constraint, ConstraintError> {
    let parser = shared.factory.create_parser(grammar).map_err(|error| refused(&format!("{error:#}")))?;
    let mut matcher = Matcher::new(Ok(parser)).into_cancellable();
    let complete = matcher.is_accepting().map_err(|error| refused(&error.to_string()))?;
    Ok(Constraint::new(Arc::clone(shared), matcher, complete))
}

pub(super) fn refused(reason: &str) -> ConstraintError {
    ConstraintError::Refused { reason: Escaped::text(words(reason)) }
}

/// What the compiler said, without its mark for the state that it left out and what a panic prints.
pub(super) fn words(reason: &str) -> &str {
    let end = reason.find("\n<").unwrap_or(reason.len());
    reason[..end].trim().trim_start_matches("panic: ")
}

/// The grammar as the compiler takes it, checked for what it does not bound.
fn parse(grammar: &Grammar) -> Result<TopLevelGrammar, ConstraintError> {
    Ok(match grammar {
        Grammar::JsonSchema(text) => {
            check_text(text)?;
            TopLevelGrammar::from_json_schema(compact(text)?)
        }
        Grammar::Regex(regex) => {
            check_text(regex)?;
            TopLevelGrammar::from_regex(regex)
        }
        Grammar::Lark(lark) => {
            check_text(lark)?;
            TopLevelGrammar::from_lark(lark.clone())
        }
        Grammar::ToolCalls { functions, parallel } => {
            let schema = |function: &ToolFunction| {
                check_text(&function.schema)?;
                compact(&function.schema)
            };
            let schemas = functions.iter().map(schema).collect::<Result<Vec<_>, _>>()?;
            let lark = calls::lark(functions, &schemas, *parallel);
            check_text(&lark)?;
            TopLevelGrammar::from_lark(lark)
        }
    })
}

/// Refuses text that is too long or too deep to be read.
fn check_text(text: &str) -> Result<(), ConstraintError> {
    if text.len() > MAX_BYTES {
        return Err(ConstraintError::TooLong { bytes: text.len(), limit: MAX_BYTES });
    }
    let depth = depth(text);
    if depth > MAX_DEPTH {
        return Err(ConstraintError::TooDeep { depth, limit: MAX_DEPTH });
    }
    Ok(())
}

/// The schema with the options for compact JSON; options that it brought itself are dropped.
fn compact(text: &str) -> Result<Value, ConstraintError> {
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| ConstraintError::NotJson { reason: Escaped::text(&error.to_string()) })?;
    schema::check(&schema)?;
    let mut schema = match schema {
        Value::Object(schema) => schema,
        Value::Bool(true) => serde_json::Map::new(),
        Value::Bool(false) => return Err(refused("the schema is false: nothing matches it")),
        _ => return Err(refused("a schema is an object or a boolean")),
    };
    schema.insert("x-guidance".to_owned(), json!({"whitespace_flexible": false}));
    Ok(Value::Object(schema))
}

/// Opening brackets that are not closed yet, at most; those in strings and comments count too.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
