//! Masks while the model computes: a job takes the tokens that came, then masks the next one and, after each drafted one,
//! the token that would follow. Nobody but a job's own answer waits for it: whoever has waited long enough looks again
//! later, or drops the job, and that stops it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use llguidance::CancellationHandle;

use super::state::is_set;
use super::{Constraint, ConstraintError};
use crate::TokenId;
use crate::artifact::Escaped;
use crate::sampling::AllowedTokens;

/// Stack of a thread: following a grammar is flat, its regular expressions are trees.
const STACK_BYTES: usize = 8 << 20;

/// First masks that are computed at once, at least: one that takes long must not keep the next request waiting.
const LEAST_FIRST_MASKS: usize = 2;

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
    begun: Arc<AtomicBool>,
    reply: SyncSender<Done>,
}

impl Work {
    fn run(self) {
        let Work { mut constraint, taken, draft, begun, reply } = self;
        begun.store(true, Ordering::Relaxed);
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

/// Jobs that wait, and the threads for them. What an answer that is under way waits for goes first, and has a thread that
/// no first mask takes: whether a grammar is slow nobody knows before its first mask is there.
#[derive(Default)]
struct Queue {
    under_way: VecDeque<Work>,
    first_masks: VecDeque<Work>,
    /// First masks that are being computed.
    running_first_masks: usize,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    closing: bool,
}

impl Queue {
    /// The next job that may begin, and whether it is a first mask.
    fn next(&mut self, first_masks: usize) -> Option<(Work, bool)> {
        if let Some(work) = self.under_way.pop_front() {
            return Some((work, false));
        }
        if self.running_first_masks >= first_masks {
            return None;
        }
        let work = self.first_masks.pop_front()?;
        self.running_first_masks += 1;
        Some((work, true))
    }

    fn has_next(&self, first_masks: usize) -> bool {
        let first = !self.first_masks.is_empty() && self.running_first_masks < first_masks;
        !self.under_way.is_empty() || first
    }
}

struct Shared {
    queue: Mutex<Queue>,
    /// First masks that may be computed at once; there is one thread more.
    most_first_masks: usize,
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
            if let Some((work, first)) = queue.next(self.most_first_masks) {
                drop(queue);
                work.run();
                queue = self.queue();
                queue.running_first_masks -= usize::from(first);
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

/// Computes masks on a thread of its own, one job after the other, and on others while that is held up: on as many as
/// the machine has processors, and one more. Dropping it waits for nobody.
pub struct MaskWorker(Arc<Shared>);

impl Default for MaskWorker {
    fn default() -> MaskWorker {
        MaskWorker::new()
    }
}

impl MaskWorker {
    /// A worker that starts its thread with the first job.
    pub fn new() -> MaskWorker {
        let most_first_masks = available_parallelism().map_or(1, usize::from).max(LEAST_FIRST_MASKS);
        let (queue, arrived) = (Mutex::default(), Condvar::new());
        MaskWorker(Arc::new(Shared { queue, most_first_masks, arrived }))
    }

    /// Starts a job: `constraint` takes the tokens `taken`, then the masks of a step that checks `draft` are computed.
    /// Where the system gives no thread, it is done at once.
    pub fn start(&self, constraint: Constraint, taken: Vec<TokenId>, draft: Vec<TokenId>) -> MaskJob {
        let (reply, done) = mpsc::sync_channel(1);
        let stop = constraint.cancellation();
        let begun = Arc::new(AtomicBool::new(false));
        let job = MaskJob { done, stop, begun: Arc::clone(&begun) };
        let is_first = constraint.is_fresh() && taken.is_empty();
        let work = Work { constraint, taken, draft, begun, reply };
        let mut queue = self.0.queue();
        match is_first {
            true => queue.first_masks.push_back(work),
            false => queue.under_way.push_back(work),
        }
        if queue.threads == 0 {
            self.add_thread(queue);
        } else {
            drop(queue);
            self.0.arrived.notify_one();
        }
        job
    }

    /// Gives the jobs that wait behind one that takes long a thread of their own, if there may be another.
    pub fn stand_in(&self) {
        let queue = self.0.queue();
        let most = self.0.most_first_masks;
        if queue.has_next(most) && queue.idle == 0 && queue.threads <= most {
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
        if queue.threads > 0 {
            return;
        }
        let jobs = [std::mem::take(&mut queue.under_way), std::mem::take(&mut queue.first_masks)];
        drop(queue);
        jobs.into_iter().flatten().for_each(Work::run);
    }
}

impl Drop for MaskWorker {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.closing = true;
        queue.under_way.clear();
        queue.first_masks.clear();
        drop(queue);
        self.0.arrived.notify_all();
    }
}

/// Masks that are being computed. Dropping it stops the computation soon, and waits for nothing.
pub struct MaskJob {
    done: Receiver<Done>,
    stop: Option<CancellationHandle>,
    begun: Arc<AtomicBool>,
}

impl MaskJob {
    /// Whether it is being computed, or was: it may wait for a thread.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

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
