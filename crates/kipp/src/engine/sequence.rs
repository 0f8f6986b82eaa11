//! A sequence: the history of one choice, how much of it the KV cache holds, and what that still needs from a device.
//! While it waits it has no table; losing the table loses nothing but time.

use std::iter::once;
use std::time::Instant;

use super::completion::Completion;
use super::drafting::Room;
use super::event::{RequestId, TokenScore};
use crate::kv::{BLOCK_TOKENS, BlockId, BlockTable, KvError};
use crate::sampling::constraint::MaskWorker;
use crate::token::TokenId;

/// Which sequence: the older one is the smaller. Choices of a request are as old as the request, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SequenceId {
    pub(super) request: RequestId,
    pub(super) choice: u32,
}

/// Blocks of a running sequence, and what has to happen to them before its next rows are evaluated.
pub(super) struct Held {
    pub(super) table: BlockTable,
    /// Handed out and not yet zeroed.
    pub(super) zero: Vec<BlockId>,
    /// To be copied, from and to. The sequence that holds the source is older, of the same request and running.
    pub(super) copy: Vec<(BlockId, BlockId)>,
}

impl Held {
    pub(super) fn new(table: BlockTable) -> Held {
        Held { table, zero: Vec::new(), copy: Vec::new() }
    }

    /// Grows to hold `tokens` positions.
    pub(super) fn reserve(&mut self, tokens: usize) -> Result<(), KvError> {
        self.zero.extend_from_slice(self.table.reserve(tokens)?);
        Ok(())
    }

    /// Positions that fit without another block.
    pub(super) fn capacity_tokens(&self) -> usize {
        self.table.blocks().len() * BLOCK_TOKENS
    }
}

/// One sequence.
pub(super) struct Sequence {
    pub(super) request: RequestId,
    pub(super) completion: Completion,
    /// Prompt and answer so far; accepted tokens only.
    pub(super) tokens: Vec<TokenId>,
    pub(super) prompt_tokens: usize,
    /// Tokens whose keys and values the blocks hold.
    pub(super) computed_tokens: usize,
    /// Tokens after `tokens` that a drafter proposes for this step.
    pub(super) draft: Vec<TokenId>,
    /// Other choices of its request, which begin when the prompt is evaluated.
    pub(super) others: Vec<Completion>,
    /// Rows of the prompt whose scores are known, where they were asked for.
    pub(super) scored_tokens: usize,
    /// The scores, until they are told.
    pub(super) scores: Vec<TokenScore>,
}

impl Sequence {
    pub(super) fn id(&self) -> SequenceId {
        SequenceId { request: self.request, choice: self.completion.choice }
    }

    /// Tokens to evaluate before the next one can be chosen; at least one.
    pub(super) fn left_tokens(&self) -> usize {
        self.tokens.len() - self.computed_tokens
    }

    /// Only the last token of an answer is left: every step brings at least one new one. The last token of a prompt is
    /// still prefill, for what follows it begins every choice.
    pub(super) fn decodes(&self) -> bool {
        self.left_tokens() == 1 && self.tokens.len() > self.prompt_tokens
    }

    /// Tokens of the prompt that are not evaluated yet.
    pub(super) fn left_prompt_tokens(&self) -> usize {
        self.prompt_tokens.saturating_sub(self.computed_tokens)
    }

    /// Begins to find what its constraints allow next.
    pub(super) fn ask_constraints(&mut self, worker: &MaskWorker) {
        self.completion.ask_constraint(worker, &self.draft);
        self.others.iter_mut().for_each(|other| other.ask_constraint(worker, &[]));
    }

    /// Waits for that until `until` at most; false where some of it is still to come.
    pub(super) fn await_constraints(&mut self, until: Instant) -> bool {
        once(&mut self.completion).chain(&mut self.others).all(|one| one.await_constraint(until))
    }

    /// Whether what a constraint allows next takes longer than it may; asked once a step.
    pub(super) fn exceeds_limit(&mut self) -> bool {
        once(&mut self.completion).chain(&mut self.others).any(Completion::exceeds_limit)
    }

    /// Most draft tokens that can still become part of the answer: the row after the last of them brings one more.
    pub(super) fn room_for_drafts(&self) -> usize {
        self.completion.left_tokens().saturating_sub(1)
    }

    /// Asks the drafter, if there is one; the tokens that it caught up with, where its draft is worth measuring.
    pub(super) fn propose(&mut self, room: Room) -> Option<usize> {
        let drafting = self.completion.drafting.as_mut()?;
        drafting.draft(&self.tokens, room, &mut self.draft);
        drafting.timed_catch_up().filter(|_| !self.draft.is_empty())
    }
}
