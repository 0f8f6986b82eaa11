//! Masks while the model computes: a job takes the tokens that came, then masks the next one and, after each drafted one,
//! the token that would follow. Nobody but a job's own answer waits for it: whoever has waited long enough looks again
//! later, or drops the job, and that stops it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use llguidance::CancellationHandle;

use super::state::is_set;
use super::{Constraint, ConstraintError};
use crate::TokenId;
use crate::artifact::Escaped;
use crate::sampling::AllowedTokens;

/// Stack of a thread: following a grammar is flat, its regular expressions are trees.
const STACK_BYTES: usize = 8 << 20;

/// What a job gives back: the constraint where the tokens that came have taken it, and the masks.
type Done = Result<(Constraint, Masks), ConstraintError>;

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
            // The copy stays and the original goes ahead: it is the one that can be stopped from outside.
            let stays = self.clone();
            for (row, token) in draft.iter().enumerate() {
                let allowed = is_set(&words[row * words_a_row..], *token) && !self.is_end(*token);
                if !allowed || self.accept(*token).is_err() {
                    break;
                }
                let Ok(next) = self.allowed() else { break };
                words.extend_from_slice(next.0);
            }
            *self = stays;
        }
        Ok(Masks { words, words_a_row })
    }
}

struct Work {
    constraint: Constraint,
    taken: Vec<TokenId>,
    draft: Vec<TokenId>,
    reply: SyncSender<Done>,
}

impl Work {
    fn run(self) {
        let Work { mut constraint, taken, draft, reply } = self;
        let done = move || {
            taken.into_iter().try_for_each(|token| constraint.accept(token))?;
            let masks = constraint.masks(&draft)?;
            Ok((constraint, masks))
        };
        // Without a reply, whoever waits is told that there is none.
        if let Ok(done) = catch_unwind(AssertUnwindSafe(done)) {
            // Nobody waits where the sequence was cancelled.
            let _ = reply.send(done);
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Work>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    closing: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// A job was put into the queue, or there will be none any more.
    arrived: Condvar,
}

impl Shared {
    /// No change of the queue can be left half done, so a poisoned lock is still good.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life. One that finds another waiting when it comes back from a job was stood in for, and ends.
    fn work(&self) {
        let mut queue = self.queue();
        loop {
            if let Some(work) = queue.jobs.pop_front() {
                drop(queue);
                work.run();
                queue = self.queue();
                continue;
            }
            if queue.closing || queue.idle > 0 {
                queue.threads -= 1;
                return;
            }
            queue.idle += 1;
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

/// Computes masks on a thread of its own, one job after the other, and on a second one while the first is held up. Dropping
/// it waits for nobody.
#[derive(Default)]
pub struct MaskWorker(Arc<Shared>);

impl MaskWorker {
    /// A worker that starts its thread with the first job.
    pub fn new() -> MaskWorker {
        MaskWorker::default()
    }

    /// Starts a job: `constraint` takes the tokens `taken`, then the masks of a step that checks `draft` are computed.
    /// Where the system gives no thread, it is done at once.
    pub fn start(&self, constraint: Constraint, taken: Vec<TokenId>, draft: Vec<TokenId>) -> MaskJob {
        let (reply, done) = mpsc::sync_channel(1);
        let stop = constraint.cancellation();
        let job = MaskJob { done, stop };
        let mut queue = self.0.queue();
        queue.jobs.push_back(Work { constraint, taken, draft, reply });
        if queue.threads == 0 {
            self.add_thread(queue);
        } else {
            drop(queue);
            self.0.arrived.notify_one();
        }
        job
    }

    /// Gives the jobs that wait behind one that takes long a thread of their own.
    pub fn stand_in(&self) {
        let queue = self.0.queue();
        if !queue.jobs.is_empty() && queue.idle == 0 {
            self.add_thread(queue);
        }
    }

    fn add_thread(&self, mut queue: MutexGuard<'_, Queue>) {
        queue.threads += 1;
        drop(queue);
        let shared = Arc::clone(&self.0);
        let named = std::thread::Builder::new().name("kipp-masks".to_owned()).stack_size(STACK_BYTES);
        if named.spawn(move || shared.work()).is_ok() {
            return;
        }
        let mut queue = self.0.queue();
        queue.threads -= 1;
        let jobs = if queue.threads == 0 { std::mem::take(&mut queue.jobs) } else { VecDeque::new() };
        drop(queue);
        jobs.into_iter().for_each(Work::run);
    }
}

impl Drop for MaskWorker {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.closing = true;
        queue.jobs.clear();
        drop(queue);
        self.0.arrived.notify_all();
    }
}

/// Masks that are being computed. Dropping it stops the computation soon, and waits for nothing.
pub struct MaskJob {
    done: Receiver<Done>,
    stop: Option<CancellationHandle>,
}

impl MaskJob {
    /// The masks and the constraint after the tokens that came, once they are there; none after `patience`. Once they were
    /// given, there are none any more.
    pub fn wait(&mut self, patience: Duration) -> Option<Done> {
        let done = match self.done.recv_timeout(patience) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => {
                Err(ConstraintError::TooComplex { reason: Escaped::text("its masks could not be computed") })
            }
        };
        // The constraint goes on: it is not to be stopped any more.
        self.stop = None;
        Some(done)
    }
}

impl Drop for MaskJob {
    fn drop(&mut self) {
        if let Some(stop) = &self.stop {
            stop.cancel();
        }
    }
}
