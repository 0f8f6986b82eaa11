//! Speculation: tokens proposed ahead of the model, so that one step checks several. It never changes an answer: a drafted
//! token counts only where the sampler, with its seed, chose the same one.
//!
//! Who drafts: `ngram`, `model`. What a step costs: `cost`. Whether a draft pays: `gate`. All of it for one sequence:
//! `speculator`. Nothing here builds the target's batches, samples, or knows a scheduler.

mod cost;
mod gate;
mod model;
mod ngram;
mod speculator;

pub use cost::{DraftSeconds, StepCosts, TokenCosts};
pub use gate::{Gate, MAX_DRAFT_TOKENS};
pub use model::{DraftModel, DraftModelError, ModelDrafter};
pub use ngram::NgramDrafter;
pub use speculator::Speculator;

use crate::TokenId;

/// Proposes the next tokens of one sequence.
pub trait Drafter: Send {
    /// Replaces `draft` by up to `max_tokens` tokens that may follow `history` (prompt and answer so far); by none where
    /// nothing is worth proposing. Between two calls a history usually grows; where it shrank or begins elsewhere, drafts
    /// may be worse or take longer, and nothing else.
    fn draft(&mut self, history: &[TokenId], max_tokens: usize, draft: &mut Vec<TokenId>);

    /// The first `accepted` of `drafted` tokens were what the sampler chose.
    fn accepted(&mut self, drafted: usize, accepted: usize);

    /// Whether a draft costs next to nothing beside a step of the model, so that it may be made only to be watched.
    fn is_free(&self) -> bool {
        false
    }

    /// What a draft takes, where that is known before the first one.
    fn seconds(&self) -> Option<DraftSeconds> {
        None
    }
}
