//! One sequence: append tokens, get the logits of the last one.

mod coding;
mod file;
mod identity;

use crate::backend::BackendError;
use crate::batch::{Answer, Ask, Batch, Outputs};
use crate::kv::{BlockTable, KvError, KvPool};
use crate::model::Forward;
use crate::token::TokenId;

pub use file::{SessionFile, SessionFileError, save};
pub use identity::ModelIdentity;

/// Why a session cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The KV cache holds no more positions.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// The model failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Nothing was appended, so there are no logits.
    #[error("a session needs at least one token")]
    Empty,
}

/// One sequence on a model.
pub struct Session<'m> {
    model: &'m mut dyn Forward,
    table: BlockTable,
    tokens: Vec<TokenId>,
    outputs: Outputs,
    /// Of the last token appended. `[vocab_size]`
    logits: Vec<f32>,
}

impl<'m> Session<'m> {
    /// An empty sequence; its blocks come from `pool`, which counts those of `model`.
    pub fn new(model: &'m mut dyn Forward, pool: &KvPool) -> Session<'m> {
        Session::empty(model, pool.table())
    }

    fn empty(model: &'m mut dyn Forward, table: BlockTable) -> Session<'m> {
        Session { model, table, tokens: Vec::new(), outputs: Outputs::default(), logits: Vec::new() }
    }

    /// Appends tokens and returns the logits of the last one (`[vocab_size]`). On an error the sequence is what it was
    /// before.
    pub fn append(&mut self, tokens: &[TokenId]) -> Result<&mut [f32], SessionError> {
        let last = tokens.len().wrapping_sub(1);
        let mut answers = self.evaluate(tokens, |i| if i == last { Ask::Logits } else { Ask::Nothing })?;
        match answers.pop() {
            Some(Answer::Logits(logits)) => self.logits = logits,
            _ => return Err(SessionError::Empty),
        }
        Ok(&mut self.logits)
    }

    /// Appends tokens, in steps of as many rows as the model takes; token `i` of them is asked for `ask(i)`, and the
    /// answers come back in order. On an error the sequence is what it was before.
    pub fn evaluate(
        &mut self,
        tokens: &[TokenId],
        ask: impl Fn(usize) -> Ask,
    ) -> Result<Vec<Answer>, SessionError> {
        let before = self.len();
        let mut answers = Vec::new();
        for step in tokens.chunks(self.model.max_rows().max(1)) {
            let first = self.len() - before;
            let asks = (first..first + step.len()).map(&ask).collect();
            if let Err(error) = self.step(step, asks, &mut answers) {
                self.truncate(before);
                return Err(error);
            }
        }
        Ok(answers)
    }

    /// Forgets all but the first `len_tokens` tokens.
    pub fn truncate(&mut self, len_tokens: usize) {
        self.tokens.truncate(len_tokens);
        // A session adopts, publishes and forks nothing: all its blocks are its own, so nothing is to be copied and
        // nothing can fail.
        let _ = self.table.truncate(self.tokens.len());
    }

    /// The tokens so far.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// How many tokens so far.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// No token so far.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    fn step(
        &mut self,
        tokens: &[TokenId],
        asks: Vec<Ask>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), SessionError> {
        let zero = self.table.reserve(self.len() + tokens.len())?.to_vec();
        let mut batch = Batch { zero, ..Batch::default() };
        batch.push(tokens, self.len(), self.table.blocks(), Ask::Nothing);
        batch.asks = asks;
        self.model.submit(&batch)?;
        self.model.wait(&mut self.outputs)?;
        answers.extend(self.outputs.answers.drain(..).map(|(_, answer)| answer));
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }
}
