//! The constraint of one choice: what may come next is found on another thread while the model computes, and nobody but
//! the choice itself waits for that.

use std::time::{Duration, Instant};

use super::event::RequestFailure;
use crate::sampling::AllowedTokens;
use crate::sampling::constraint::{Constraint, ConstraintError, MaskJob, MaskWorker, Masks};
use crate::token::TokenId;

/// How long a choice waits for a mask, after which its request is ended: as long as a grammar may take to compile. Masks
/// of schemas as they are used take milliseconds.
const LIMIT: Duration = Duration::from_secs(2);

/// Time between two steps that counts at most: where a machine stood still meanwhile, so did the thread that computes.
const LONGEST_STEP: Duration = Duration::from_millis(500);

/// How long a step waits for masks when the model is done. Few masks take so long, and a pause like this is not seen in a
/// flowing answer; a choice whose mask takes longer sits out, and its row is evaluated again.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);

/// What a choice knows of its constraint.
pub(super) struct Masking {
    /// Not here while a job has it, nor after it failed.
    constraint: Option<Constraint>,
    job: Option<MaskJob>,
    /// How long the job has been waited for since it began, and when that was counted last. In real time, whatever clock
    /// the engine was handed: the thread that computes runs in it.
    waited: Duration,
    counted_at: Instant,
    /// Of the next token and of those after drafted ones.
    masks: Result<Masks, ConstraintError>,
    /// The draft that the masks are for.
    draft: Vec<TokenId>,
    /// Tokens that came after the constraint was asked.
    taken: Vec<TokenId>,
}

impl Masking {
    pub(super) fn new(constraint: Constraint) -> Masking {
        Masking {
            constraint: Some(constraint),
            job: None,
            waited: Duration::ZERO,
            counted_at: Instant::now(),
            masks: Ok(Masks::default()),
            draft: Vec::new(),
            taken: Vec::new(),
        }
    }

    /// Begins to find the mask of the next token and those along `draft`, unless it is known or being found.
    pub(super) fn ask(&mut self, worker: &MaskWorker, draft: &[TokenId]) {
        if self.is_known() {
            return;
        }
        let Some(constraint) = self.constraint.take() else { return };
        self.draft = draft.to_vec();
        let taken = std::mem::take(&mut self.taken);
        (self.waited, self.counted_at) = (Duration::ZERO, Instant::now());
        self.job = Some(worker.start(constraint, taken, self.draft.clone()));
    }

    /// Takes what was found, waiting for it until `until` at most; false where it is still to come.
    pub(super) fn wait(&mut self, until: Instant) -> bool {
        let Some(job) = &mut self.job else { return true };
        let Some(done) = job.wait(until.saturating_duration_since(Instant::now())) else { return false };
        self.job = None;
        self.masks = done.map(|(constraint, masks)| {
            self.constraint = Some(constraint);
            masks
        });
        true
    }

    /// Counts the time since the step before, and whether it is more than a mask may take. Time in which the mask waited
    /// for a thread is not its own.
    pub(super) fn exceeds_limit(&mut self) -> bool {
        let now = Instant::now();
        if self.job.as_ref().is_some_and(MaskJob::has_begun) {
            self.waited += now.saturating_duration_since(self.counted_at).min(LONGEST_STEP);
        }
        self.counted_at = now;
        !self.wait(now) && self.waited > LIMIT
    }

    /// Whether there is an answer about the next token, if only that there is none.
    pub(super) fn is_known(&self) -> bool {
        self.masks.is_err() || matches!(self.allowed(), Ok(Some(_)))
    }

    /// The tokens that may come next, where it is known.
    pub(super) fn allowed(&self) -> Result<Option<AllowedTokens<'_>>, ConstraintError> {
        let masks = self.masks.as_ref().map_err(Clone::clone)?;
        // After a token that was not drafted, or that nobody has looked past.
        let follows = self.job.is_none() && self.draft.starts_with(&self.taken);
        Ok(if follows { masks.allowed(self.taken.len()) } else { None })
    }

    /// A token came.
    pub(super) fn accept(&mut self, id: TokenId) {
        self.taken.push(id);
    }
}

/// Why a request ends that has waited for a mask.
pub(super) fn too_slow() -> RequestFailure {
    ConstraintError::MaskTooSlow { limit_ms: LIMIT.as_millis() as u64 }.into()
}
