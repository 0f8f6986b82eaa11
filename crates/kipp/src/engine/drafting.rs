//! The speculation of one choice: its drafter, asked at every step or only while drafts pay.

use super::request::{Request, Speculation};
use crate::speculate::{DraftSeconds, Drafter, Speculator, TokenCosts};
use crate::token::TokenId;

/// Who drafts.
enum Kind {
    Always(Box<dyn Drafter>),
    WherePaying(Box<Speculator>),
}

/// The drafter of one choice, and how much of its drafts was right.
pub(super) struct Drafting {
    kind: Kind,
    /// Whether a draft takes time that is worth measuring.
    takes_time: bool,
    /// What it takes, where the drafter knows.
    pub(super) seconds: Option<DraftSeconds>,
    /// Tokens that were checked.
    pub(super) drafted_tokens: usize,
    /// Of those, the ones that became part of the answer.
    pub(super) accepted_tokens: usize,
}

impl Drafting {
    pub(super) fn new(request: &Request, choice: u32) -> Option<Drafting> {
        let (kind, takes_time, seconds) = match request.speculation.as_ref()? {
            Speculation::Always(new) => (Kind::Always(new(choice)), false, None),
            Speculation::WherePaying(new, max_tokens) => {
                let drafter = new(choice);
                let (takes_time, seconds) = (!drafter.is_free(), drafter.seconds());
                let speculator = Box::new(Speculator::new(drafter, *max_tokens));
                (Kind::WherePaying(speculator), takes_time, seconds)
            }
        };
        Some(Drafting { kind, takes_time, seconds, drafted_tokens: 0, accepted_tokens: 0 })
    }

    /// Replaces `draft` by at most `room_tokens` tokens that may follow `history`, all below `vocab_size`: a drafter is
    /// not trusted with the model's input.
    pub(super) fn draft(&mut self, history: &[TokenId], room: Room, draft: &mut Vec<TokenId>) {
        draft.clear();
        match &mut self.kind {
            Kind::Always(drafter) if room.tokens > 0 => drafter.draft(history, room.tokens, draft),
            Kind::Always(_) => {}
            Kind::WherePaying(speculator) => {
                draft.extend_from_slice(speculator.draft(history, room.tokens, room.costs));
            }
        }
        let unknown = draft.iter().position(|token| *token as usize >= room.vocab_size);
        draft.truncate(unknown.unwrap_or(draft.len()).min(room.tokens));
    }

    /// Tokens that the drafter caught up with for a draft, where its time is worth measuring.
    pub(super) fn timed_catch_up(&self) -> Option<usize> {
        match &self.kind {
            Kind::WherePaying(speculator) if self.takes_time => Some(speculator.caught_up()),
            _ => None,
        }
    }

    /// After a step of which `drafted` rows were drafts.
    pub(super) fn settle(&mut self, drafted: usize, accepted: usize) {
        self.drafted_tokens += drafted;
        self.accepted_tokens += accepted;
        match &mut self.kind {
            Kind::Always(drafter) if drafted > 0 => drafter.accepted(drafted, accepted),
            Kind::Always(_) => {}
            Kind::WherePaying(speculator) => speculator.settle(drafted, accepted),
        }
    }
}

/// What a draft has to fit.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) tokens: usize,
    pub(super) vocab_size: usize,
    pub(super) costs: TokenCosts,
}
