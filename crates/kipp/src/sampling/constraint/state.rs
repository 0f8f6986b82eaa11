//! A constraint that follows one answer: what is allowed next, and what came.

use std::sync::Arc;

use llguidance::{CancellationHandle, Matcher};

use super::compiler::{Allowed, ConstraintCompiler, Shared, words};
use super::error::ConstraintError;
use crate::TokenId;
use crate::artifact::Escaped;
use crate::sampling::AllowedTokens;

/// Where an answer stands when it begins, as to thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The grammar begins at once.
    Now,
    /// The model may open a thinking part; else the grammar begins at once.
    MayThink,
    /// The prompt ends inside a thinking part.
    Thinking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the first token, which may open a thinking part.
    Before,
    /// Anything goes, but an end of the answer: it would have no content.
    Thinking,
    /// After the thinking part: one blank line may come.
    Gap,
    Grammar,
    /// An end token came.
    Ended,
}

/// What one answer may still be. Clones go on apart, so that a draft can be followed without a way back.
#[derive(Clone)]
pub struct Constraint {
    shared: Arc<Shared>,
    matcher: Matcher,
    phase: Phase,
    /// Tokens that came.
    accepted: usize,
    /// The grammar may end here.
    complete: bool,
    /// Bit `id % 32` of word `id / 32`.
    mask: Vec<u32>,
}

impl ConstraintCompiler {
    /// How an answer to `prompt` begins: after the last of `<think>` and `</think>` in it, if no control token follows.
    pub fn start_after(&self, prompt: &[TokenId]) -> Start {
        let Allowed { think, think_end, end_tokens, .. } = self.vocabulary();
        let marks = |id: &&TokenId| {
            think.as_ref() == Some(*id) || think_end.as_ref() == Some(*id) || end_tokens.contains(id)
        };
        match prompt.iter().rev().find(marks) {
            Some(id) if think.as_ref() == Some(id) => Start::Thinking,
            Some(id) if think_end.as_ref() == Some(id) => Start::Now,
            _ => Start::MayThink,
        }
    }
}

impl Constraint {
    pub(super) fn new(shared: Arc<Shared>, matcher: Matcher, complete: bool) -> Constraint {
        Constraint { shared, matcher, phase: Phase::Grammar, accepted: 0, complete, mask: Vec::new() }
    }

    /// Lets the grammar begin after the thinking part. Without tokens for it in the vocabulary there is no such part.
    #[must_use]
    pub fn starting(mut self, start: Start) -> Constraint {
        let Allowed { think, think_end, .. } = self.shared.vocabulary;
        self.phase = match start {
            Start::MayThink if think.is_some() && think_end.is_some() => Phase::Before,
            Start::Thinking if think_end.is_some() => Phase::Thinking,
            _ => Phase::Grammar,
        };
        self
    }

    /// The tokens that may come next. Once nothing else may follow, these are the end tokens.
    ///
    /// # Errors
    /// [`ConstraintError::TooComplex`], after which the answer cannot go on.
    pub fn allowed(&mut self) -> Result<AllowedTokens<'_>, ConstraintError> {
        let mark = self.mark();
        let vocabulary = &self.shared.vocabulary;
        self.mask.clear();
        match self.phase {
            Phase::Thinking => self.mask.extend_from_slice(&vocabulary.thinking),
            Phase::Ended => {
                self.mask.resize(vocabulary.thinking.len(), 0);
                vocabulary.end_tokens.iter().for_each(|id| set(&mut self.mask, *id));
            }
            Phase::Before | Phase::Gap | Phase::Grammar => {
                let found = self.matcher.compute_mask_or_eos().map_err(too_complex)?;
                let words = found.as_slice().iter().zip(&vocabulary.thinking);
                // Only tokens with a text, and ends where the grammar may end: bits beyond are not trusted.
                self.mask.extend(words.map(|(found, spelled)| found & spelled));
                let ends = vocabulary.end_tokens.iter().filter(|id| found.is_allowed(**id));
                ends.for_each(|id| set(&mut self.mask, *id));
                mark.into_iter().for_each(|id| set(&mut self.mask, id));
            }
        }
        Ok(AllowedTokens(&self.mask))
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// [`ConstraintError::NotAllowed`], and the constraint is as it was; [`ConstraintError::TooComplex`], after which the
    /// answer cannot go on.
    pub fn accept(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        let vocabulary = &self.shared.vocabulary;
        let is_end = vocabulary.end_tokens.binary_search(&token).is_ok();
        let inside = !is_end && self.phase.asks_grammar() && self.grammar_takes(token)?;
        let vocabulary = &self.shared.vocabulary;
        let next = match self.phase {
            _ if inside => Phase::Grammar,
            Phase::Thinking if vocabulary.think_end == Some(token) => Phase::Gap,
            Phase::Thinking if !is_end && is_set(&vocabulary.thinking, token) => Phase::Thinking,
            Phase::Before if vocabulary.think == Some(token) => Phase::Thinking,
            Phase::Gap if vocabulary.blank_line == Some(token) => Phase::Grammar,
            phase if is_end && (phase == Phase::Ended || self.is_complete()) => Phase::Ended,
            _ => return Err(ConstraintError::NotAllowed { token, accepted: self.accepted }),
        };
        self.accepted += 1;
        self.phase = next;
        Ok(())
    }

    /// Lets the grammar take a token, if it allows it.
    fn grammar_takes(&mut self, token: TokenId) -> Result<bool, ConstraintError> {
        if !is_set(&self.shared.vocabulary.thinking, token) {
            return Ok(false);
        }
        if self.matcher.validate_tokens(&[token]).map_err(too_complex)? == 0 {
            return Ok(false);
        }
        self.matcher.consume_token(token).map_err(too_complex)?;
        self.complete = self.matcher.is_accepting().map_err(too_complex)?;
        Ok(true)
    }

    /// Whether the answer may end here.
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::Ended || self.phase.asks_grammar() && self.complete
    }

    /// Whether no token came yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.accepted == 0
    }

    /// What stops a computation from outside, after which the answer cannot go on. A clone has one of its own.
    pub(super) fn cancellation(&self) -> Option<CancellationHandle> {
        self.matcher.cancellation_handle()
    }

    /// Whether a token ends the answer.
    pub(super) fn is_end(&self, token: TokenId) -> bool {
        self.shared.vocabulary.end_tokens.binary_search(&token).is_ok()
    }

    /// A token beside those of the grammar.
    fn mark(&self) -> Option<TokenId> {
        match self.phase {
            Phase::Before => self.shared.vocabulary.think,
            Phase::Gap => self.shared.vocabulary.blank_line,
            Phase::Thinking | Phase::Grammar | Phase::Ended => None,
        }
    }
}

impl Phase {
    /// Whether the next token may be the grammar's.
    fn asks_grammar(self) -> bool {
        matches!(self, Phase::Before | Phase::Gap | Phase::Grammar)
    }
}

/// The compiler's errors are many and internal; all mean that this answer cannot be followed any further.
fn too_complex(error: impl std::fmt::Display) -> ConstraintError {
    ConstraintError::TooComplex { reason: Escaped::text(words(&error.to_string())) }
}

fn set(words: &mut [u32], id: TokenId) {
    if let Some(word) = words.get_mut(id as usize / 32) {
        *word |= 1 << (id % 32);
    }
}

pub(super) fn is_set(words: &[u32], id: TokenId) -> bool {
    words.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)
}
