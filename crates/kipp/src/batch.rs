//! What one step computes. A [`Batch`] is the only message from above (session, perplexity, engine) to a model: rows of
//! tokens, cut into segments of one sequence each, and what every row is asked for. It knows no device.

use std::ops::Range;

use crate::kv::{BLOCK_TOKENS, BlockId};
use crate::sampling::logprobs::TokenLogProb;
use crate::token::TokenId;

/// What a row is asked for after the last layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ask {
    /// Nothing: the row only fills the KV cache.
    #[default]
    Nothing,
    /// All logits.
    Logits,
    /// The id of the largest logit, the lowest one on a tie.
    Argmax,
    /// The most likely ids and their log-probabilities.
    TopK(usize),
    /// The log-probability of one id.
    LogProb(TokenId),
    /// The hidden state after the final norm.
    Hidden,
}

/// Consecutive rows of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its rows in the batch.
    pub rows: Range<usize>,
    /// Absolute position of its first row.
    pub start: usize,
    /// Physical blocks of the whole sequence so far, these rows included.
    pub table: Vec<BlockId>,
}

impl Segment {
    /// Physical block and slot of each row; the table must reach them.
    pub fn slots(&self) -> impl Iterator<Item = (BlockId, usize)> + '_ {
        (self.start..self.start + self.rows.len()).map(|p| (self.table[p / BLOCK_TOKENS], p % BLOCK_TOKENS))
    }
}

/// One step: prefill chunks and decode tokens side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The token of each row.
    pub tokens: Vec<TokenId>,
    /// What each row is asked for; as long as `tokens`.
    pub asks: Vec<Ask>,
    /// The sequences, covering the rows in ascending order without a gap.
    pub segments: Vec<Segment>,
    /// Blocks to zero before the step: everything handed out since the last one.
    pub zero: Vec<BlockId>,
    /// Blocks to copy before the step, from and to.
    pub copy: Vec<(BlockId, BlockId)>,
}

impl Batch {
    /// Adds one sequence's next `tokens`, which start at position `start`; every row asks for nothing but the last.
    pub fn push(&mut self, tokens: &[TokenId], start: usize, table: &[BlockId], last: Ask) {
        let first = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        self.asks.resize(self.tokens.len(), Ask::Nothing);
        if let Some(ask) = self.asks.last_mut() {
            *ask = last;
        }
        self.segments.push(Segment { rows: first..self.tokens.len(), start, table: table.to_vec() });
    }

    /// Absolute position of every row.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.segments.iter().flat_map(|s| (0..s.rows.len()).map(move |i| s.start + i))
    }

    /// The rows that ask for something.
    pub fn asking(&self) -> impl Iterator<Item = (usize, Ask)> + '_ {
        self.asks.iter().copied().enumerate().filter(|(_, ask)| *ask != Ask::Nothing)
    }
}

/// The answer to one row's [`Ask`].
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// `[vocab_size]`.
    Logits(Vec<f32>),
    /// The id of the largest logit.
    Argmax(TokenId),
    /// The most likely ids, most likely first (the lower id first on a tie).
    TopK(Vec<TokenLogProb>),
    /// Natural logarithm of the probability.
    LogProb(f64),
    /// `[hidden_size]`.
    Hidden(Vec<f32>),
}

/// The answers of a step, by ascending row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// Row and answer; rows that asked for nothing are absent.
    pub answers: Vec<(usize, Answer)>,
}

impl Outputs {
    /// The logits of the last row that asked for them.
    pub fn last_logits(&mut self) -> Option<&mut Vec<f32>> {
        self.answers.iter_mut().rev().find_map(|(_, answer)| match answer {
            Answer::Logits(logits) => Some(logits),
            _ => None,
        })
    }
}

/// Why a batch cannot be run: the fault of whoever built it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// No rows at all.
    #[error("the batch is empty")]
    Empty,
    /// More rows than the model's workspace holds.
    #[error("the batch has {rows} rows, the workspace holds {limit}")]
    TooManyRows {
        /// Rows asked for.
        rows: usize,
        /// Rows that fit.
        limit: usize,
    },
    /// Asks or segments do not cover the rows.
    #[error("asks or segments do not cover the rows of the batch in ascending order")]
    Uncovered,
    /// An id that the embedding has no row for.
    #[error("token {token} of row {row} is outside the vocabulary of {vocab_size}")]
    Token {
        /// Row in the batch.
        row: usize,
        /// The id.
        token: TokenId,
        /// Rows of the embedding.
        vocab_size: usize,
    },
    /// A position that the block table does not reach.
    #[error("segment {segment} needs {needed} blocks, its table has {found}")]
    Table {
        /// Index of the segment.
        segment: usize,
        /// Blocks that its last position needs.
        needed: usize,
        /// Blocks in its table.
        found: usize,
    },
    /// A block that the store does not have.
    #[error("block {block} is outside the store of {blocks}")]
    Block {
        /// The block.
        block: BlockId,
        /// Blocks in the store.
        blocks: usize,
    },
}

/// What a batch is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows that the workspace holds.
    pub rows: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Blocks of the KV store.
    pub blocks: usize,
}

impl Batch {
    /// Checks everything that a device relies on, so that no device checks again.
    pub fn check(&self, limits: Limits) -> Result<(), BatchError> {
        let rows = self.tokens.len();
        if rows == 0 {
            return Err(BatchError::Empty);
        }
        if rows > limits.rows {
            return Err(BatchError::TooManyRows { rows, limit: limits.rows });
        }
        self.check_tokens(limits.vocab_size)?;
        let mut next = 0;
        for (segment, s) in self.segments.iter().enumerate() {
            if s.rows.start != next || s.rows.is_empty() {
                return Err(BatchError::Uncovered);
            }
            next = s.rows.end;
            let needed = s.start.saturating_add(s.rows.len()).div_ceil(BLOCK_TOKENS);
            if s.table.len() < needed {
                return Err(BatchError::Table { segment, needed, found: s.table.len() });
            }
        }
        if next != rows || self.asks.len() != rows {
            return Err(BatchError::Uncovered);
        }
        let copied = self.copy.iter().flat_map(|(from, to)| [from, to]);
        let named = self.segments.iter().flat_map(|s| &s.table).chain(&self.zero).chain(copied);
        match named.into_iter().find(|block| **block as usize >= limits.blocks) {
            Some(block) => Err(BatchError::Block { block: *block, blocks: limits.blocks }),
            None => Ok(()),
        }
    }

    fn check_tokens(&self, vocab_size: usize) -> Result<(), BatchError> {
        let asked = self.asks.iter().enumerate().filter_map(|(row, ask)| match ask {
            Ask::LogProb(token) => Some((row, *token)),
            _ => None,
        });
        let rows = self.tokens.iter().copied().enumerate();
        match rows.chain(asked).find(|(_, token)| *token as usize >= vocab_size) {
            Some((row, token)) => Err(BatchError::Token { row, token, vocab_size }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { rows: 8, vocab_size: 10, blocks: 4 };

    #[test]
    fn a_batch_that_lies_is_refused() {
        let mut batch = Batch::default();
        assert_eq!(batch.check(LIMITS), Err(BatchError::Empty));
        batch.push(&[1, 2], 31, &[0, 3], Ask::Logits);
        batch.push(&[9], 0, &[1], Ask::Argmax);
        assert_eq!(batch.check(LIMITS), Ok(()));
        assert_eq!(batch.positions().collect::<Vec<_>>(), [31, 32, 0]);
        assert_eq!(batch.asking().collect::<Vec<_>>(), [(1, Ask::Logits), (2, Ask::Argmax)]);

        let with = |change: fn(&mut Batch)| {
            let mut changed = batch.clone();
            change(&mut changed);
            changed.check(LIMITS)
        };
        assert_eq!(with(|b| b.tokens[1] = 10), Err(BatchError::Token { row: 1, token: 10, vocab_size: 10 }));
        assert!(matches!(with(|b| b.asks[0] = Ask::LogProb(10)), Err(BatchError::Token { .. })));
        assert_eq!(
            with(|b| b.segments[0].table.truncate(1)),
            Err(BatchError::Table { segment: 0, needed: 2, found: 1 })
        );
        assert_eq!(with(|b| b.segments[0].table[1] = 4), Err(BatchError::Block { block: 4, blocks: 4 }));
        assert_eq!(with(|b| b.zero.push(7)), Err(BatchError::Block { block: 7, blocks: 4 }));
        assert_eq!(with(|b| b.copy.push((0, 5))), Err(BatchError::Block { block: 5, blocks: 4 }));
        assert_eq!(with(|b| b.segments[1].rows = 1..3), Err(BatchError::Uncovered));
        assert_eq!(with(|b| b.asks.truncate(2)), Err(BatchError::Uncovered));
        assert!(matches!(
            with(|b| b.tokens.resize(9, 0)),
            Err(BatchError::TooManyRows { rows: 9, limit: 8 })
        ));
    }
}
