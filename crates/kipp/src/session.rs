//! One sequence: append tokens, get the logits of the last one.

use crate::backend::BackendError;
use crate::batch::{Ask, Batch, Outputs};
use crate::kv::{BlockTable, KvError, KvPool};
use crate::model::Forward;
use crate::token::TokenId;

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
    len_tokens: usize,
    outputs: Outputs,
}

impl<'m> Session<'m> {
    /// An empty sequence; its blocks come from `pool`, which counts those of `model`.
    pub fn new(model: &'m mut dyn Forward, pool: &KvPool) -> Session<'m> {
        Session { model, table: pool.table(), len_tokens: 0, outputs: Outputs::default() }
    }

    /// Appends tokens, in steps of as many rows as the model takes, and returns the logits of the last one
    /// (`[vocab_size]`). On an error the sequence is what it was before.
    pub fn append(&mut self, tokens: &[TokenId]) -> Result<&mut [f32], SessionError> {
        if tokens.is_empty() {
            return Err(SessionError::Empty);
        }
        let before = self.len_tokens;
        if let Err(error) = self.evaluate(tokens) {
            self.truncate(before);
            return Err(error);
        }
        self.outputs.last_logits().map(Vec::as_mut_slice).ok_or(SessionError::Empty)
    }

    /// Forgets all but the first `len_tokens` tokens.
    pub fn truncate(&mut self, len_tokens: usize) {
        self.len_tokens = self.len_tokens.min(len_tokens);
        self.table.truncate(self.len_tokens);
    }

    /// Tokens so far.
    pub fn len(&self) -> usize {
        self.len_tokens
    }

    /// No token so far.
    pub fn is_empty(&self) -> bool {
        self.len_tokens == 0
    }

    fn evaluate(&mut self, tokens: &[TokenId]) -> Result<(), SessionError> {
        let steps = tokens.chunks(self.model.max_rows());
        let last = steps.len() - 1;
        for (index, step) in steps.enumerate() {
            let zero = self.table.reserve(self.len_tokens + step.len())?.to_vec();
            let mut batch = Batch { zero, ..Batch::default() };
            let ask = if index == last { Ask::Logits } else { Ask::Nothing };
            batch.push(step, self.len_tokens, self.table.blocks(), ask);
            self.model.submit(&batch)?;
            self.model.wait(&mut self.outputs)?;
            self.len_tokens += step.len();
        }
        Ok(())
    }
}
