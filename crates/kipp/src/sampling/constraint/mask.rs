//! Masks while the model computes: a job is started before the step is submitted and joined after it was waited for. It
//! masks the next token and, after each drafted one, the token that would follow.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

use super::state::is_set;
use super::{Constraint, ConstraintError};
use crate::TokenId;
use crate::artifact::Escaped;
use crate::sampling::AllowedTokens;

/// Stack of the thread: following a grammar is flat, its regular expressions are trees.
const STACK_BYTES: usize = 8 << 20;

/// What a job gives back: the constraint where it was, and the masks.
type Joined = (Constraint, Result<Masks, ConstraintError>);

/// The allowed tokens of the rows of one sequence in a step.
#[derive(Clone, Debug, Default)]
pub struct Masks {
    /// `[rows, words a row]`
    words: Vec<u32>,
    words_a_row: usize,
}

impl Masks {
    /// Rows that have a mask: the first, and one after each drafted token as far as the draft is allowed.
    pub fn rows(&self) -> usize {
        self.words.len().checked_div(self.words_a_row).unwrap_or(0)
    }

    /// The tokens that may be chosen from the logits of `row`, which follow `row` drafted tokens.
    pub fn allowed(&self, row: usize) -> Option<AllowedTokens<'_>> {
        (row < self.rows()).then(|| AllowedTokens(&self.words[row * self.words_a_row..][..self.words_a_row]))
    }
}

impl Constraint {
    /// The masks of a step that checks `draft`. The constraint stays where it is; what goes wrong only along the draft ends
    /// the masks there, for the answer may never go that way.
    ///
    /// # Errors
    /// As [`Constraint::allowed`], for the next token.
    pub fn masks(&mut self, draft: &[TokenId]) -> Result<Masks, ConstraintError> {
        let mut words = self.allowed()?.0.to_vec();
        let words_a_row = words.len();
        if !draft.is_empty() {
            let mut ahead = self.clone();
            for (row, token) in draft.iter().enumerate() {
                let allowed = is_set(&words[row * words_a_row..], *token) && !ahead.is_end(*token);
                if !allowed || ahead.accept(*token).is_err() {
                    break;
                }
                let Ok(next) = ahead.allowed() else { break };
                words.extend_from_slice(next.0);
            }
        }
        Ok(Masks { words, words_a_row })
    }
}

struct Work {
    constraint: Constraint,
    draft: Vec<TokenId>,
    reply: SyncSender<Joined>,
}

impl Work {
    fn run(self) {
        let Work { mut constraint, draft, reply } = self;
        let masks = constraint.masks(&draft);
        // Nobody waits where the sequence was cancelled.
        let _ = reply.send((constraint, masks));
    }
}

/// A thread that computes masks, one job after the other. Ends when it is dropped.
#[derive(Debug)]
pub struct MaskWorker {
    /// None where the system gave no thread: jobs are then done when started.
    sender: Option<Sender<Work>>,
}

impl Default for MaskWorker {
    fn default() -> Self {
        MaskWorker::new()
    }
}

impl MaskWorker {
    /// Starts the thread.
    pub fn new() -> MaskWorker {
        let (sender, receiver) = mpsc::channel::<Work>();
        let work = move || receiver.into_iter().for_each(Work::run);
        let thread =
            std::thread::Builder::new().name("kipp-masks".to_owned()).stack_size(STACK_BYTES).spawn(work);
        MaskWorker { sender: thread.is_ok().then_some(sender) }
    }

    /// Starts a job for a step that checks `draft`.
    pub fn start(&self, constraint: Constraint, draft: Vec<TokenId>) -> MaskJob {
        let (reply, receiver) = mpsc::sync_channel(1);
        let work = Work { constraint, draft, reply };
        let unsent = match &self.sender {
            Some(sender) => sender.send(work).err().map(|unsent| unsent.0),
            None => Some(work),
        };
        if let Some(work) = unsent {
            work.run();
        }
        MaskJob { receiver }
    }
}

/// Masks that are being computed.
#[derive(Debug)]
pub struct MaskJob {
    receiver: Receiver<Joined>,
}

impl MaskJob {
    /// Waits for the masks, and hands the constraint back.
    ///
    /// # Errors
    /// As [`Constraint::allowed`]; the answer cannot go on.
    pub fn join(self) -> Result<(Constraint, Masks), ConstraintError> {
        match self.receiver.recv() {
            Ok((constraint, masks)) => Ok((constraint, masks?)),
            Err(_) => Err(ConstraintError::TooComplex { reason: Escaped::text("the mask thread failed") }),
        }
    }
}
