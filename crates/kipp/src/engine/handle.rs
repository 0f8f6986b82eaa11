//! An engine on a thread of its own: the only thread of this room that lasts. Callers leave requests in a mailbox that
//! has a bound, and get events through sinks that never block. Whatever happens to the engine, the thread lives on to say
//! so: nobody waits for ever.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::Engine;
use super::event::{Event, RequestFailure, RequestId, Sink};
use super::request::{Limits, Request, RequestError};
use super::stats::EngineStats;

/// Events of one request that may lie undelivered. Whoever is further behind has stopped reading, and is cancelled
/// rather than waited for.
pub const UNDELIVERED_EVENTS: usize = 1024;

/// A sink into a bounded channel. A receiver that is gone, or that left [`UNDELIVERED_EVENTS`] events lying, ends the
/// request.
#[derive(Debug)]
pub struct ChannelSink(SyncSender<Event>);

impl ChannelSink {
    /// A sink and where its events come out.
    pub fn new() -> (ChannelSink, Receiver<Event>) {
        let (sender, receiver) = sync_channel(UNDELIVERED_EVENTS);
        (ChannelSink(sender), receiver)
    }
}

impl Sink for ChannelSink {
    fn deliver(&mut self, event: Event) -> ControlFlow<()> {
        match self.0.try_send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// What waits for the engine's thread.
#[derive(Default)]
struct Mailbox {
    submitted: VecDeque<(RequestId, Request, Box<dyn Sink>)>,
    /// Requests to cancel; those that are not there any more are dropped when it is emptied.
    cancelled: BTreeSet<RequestId>,
    next_id: u64,
    /// Requests that have not left the queue: those above and the engine's own.
    waiting: usize,
    closing: bool,
    healthy: bool,
    stats: EngineStats,
}

struct Shared {
    mailbox: Mutex<Mailbox>,
    /// Something was put into the mailbox.
    arrived: Condvar,
}

impl Shared {
    /// No change of the mailbox can be left half done, so a poisoned lock is still good.
    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle on an engine that runs by itself. Dropping it ends what still runs.
pub struct EngineHandle {
    shared: Arc<Shared>,
    limits: Limits,
    max_waiting: usize,
    thread: Option<JoinHandle<Engine>>,
}

impl EngineHandle {
    /// Gives the engine a thread.
    ///
    /// # Errors
    /// Where the system has no thread left.
    pub fn start(engine: Engine) -> std::io::Result<EngineHandle> {
        let mailbox = Mailbox { healthy: engine.is_healthy(), stats: engine.stats(), ..Mailbox::default() };
        let shared = Arc::new(Shared { mailbox: Mutex::new(mailbox), arrived: Condvar::new() });
        let (limits, max_waiting) = (engine.limits, engine.max_waiting);
        let of_thread = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("kipp-engine".to_owned());
        let thread = named.spawn(move || serve(engine, &of_thread))?;
        Ok(EngineHandle { shared, limits, max_waiting, thread: Some(thread) })
    }

    /// Requests that may wait at most.
    pub fn max_waiting(&self) -> usize {
        self.max_waiting
    }

    /// Leaves a request for the engine and returns at once; what becomes of it goes to `sink`.
    ///
    /// # Errors
    /// What the request asks for cannot be done, too many wait already, or the engine takes none.
    pub fn submit(&self, request: Request, sink: Box<dyn Sink>) -> Result<RequestId, RequestError> {
        self.limits.check(&request)?;
        let mut mailbox = self.shared.mailbox();
        if mailbox.closing {
            return Err(RequestError::Closed);
        }
        if !mailbox.healthy {
            return Err(RequestError::Unhealthy);
        }
        if mailbox.waiting >= self.max_waiting {
            return Err(RequestError::QueueFull { waiting: mailbox.waiting });
        }
        let id = RequestId(mailbox.next_id);
        mailbox.next_id += 1;
        mailbox.waiting += 1;
        mailbox.submitted.push_back((id, request, sink));
        drop(mailbox);
        self.shared.arrived.notify_one();
        Ok(id)
    }

    /// Ends a request, whatever it is doing. Its sink is told, unless it has ended already.
    pub fn cancel(&self, id: RequestId) {
        let mut mailbox = self.shared.mailbox();
        if id.0 < mailbox.next_id {
            mailbox.cancelled.insert(id);
        }
        drop(mailbox);
        self.shared.arrived.notify_one();
    }

    /// What the engine had done after its last step.
    pub fn stats(&self) -> EngineStats {
        let mailbox = self.shared.mailbox();
        EngineStats { waiting_requests: mailbox.waiting, ..mailbox.stats }
    }

    /// Ends what still runs and hands the engine back; `None` where its thread did not survive.
    pub fn close(mut self) -> Option<Engine> {
        self.end()
    }

    fn end(&mut self) -> Option<Engine> {
        self.shared.mailbox().closing = true;
        self.shared.arrived.notify_one();
        self.thread.take()?.join().ok()
    }

    /// Whether requests are taken.
    pub fn is_healthy(&self) -> bool {
        self.shared.mailbox().healthy
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// The life of the engine's thread; the engine is handed back at its end.
fn serve(mut engine: Engine, shared: &Shared) -> Engine {
    loop {
        let (mut submitted, cancelled, closing) = {
            let mut mailbox = shared.mailbox();
            while !engine.has_work()
                && mailbox.submitted.is_empty()
                && mailbox.cancelled.is_empty()
                && !mailbox.closing
            {
                mailbox = shared.arrived.wait(mailbox).unwrap_or_else(PoisonError::into_inner);
            }
            (std::mem::take(&mut mailbox.submitted), std::mem::take(&mut mailbox.cancelled), mailbox.closing)
        };
        // Steps catch their own panics; this is for those of a sink that is told of a cancellation, and of whoever makes
        // a drafter.
        let turn = catch_unwind(AssertUnwindSafe(|| {
            while let Some((id, request, sink)) = submitted.pop_front() {
                engine.submit_as(id, request, sink);
            }
            cancelled.into_iter().for_each(|id| engine.cancel(id));
            if closing {
                engine.fail_all(&RequestFailure::Closed);
            } else {
                engine.step();
            }
        }));
        if let Err(panic) = turn {
            engine.give_up(&*panic);
            // Those that came with it are told, too.
            for (id, request, sink) in submitted {
                let _ = catch_unwind(AssertUnwindSafe(|| engine.submit_as(id, request, sink)));
            }
        }
        let stats = engine.stats();
        let mut mailbox = shared.mailbox();
        mailbox.waiting = mailbox.submitted.len() + stats.waiting_requests;
        mailbox.stats = stats;
        mailbox.healthy = engine.is_healthy();
        if closing {
            return engine;
        }
    }
}
