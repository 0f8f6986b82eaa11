//! The threads that compute: a fixed set that spins for tens of microseconds between jobs, then parks. Threads divide
//! work, never a sum, so their number cannot change a bit.
//!
//! The pool takes `&mut self` for a job: two jobs at once, or a job within a job, cannot be written. A job costs no lock
//! and no system call while the workers spin: the caller publishes it by a counter, and whoever is about to park says so
//! first and looks once more.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::affinity::{self, Elsewhere};
use super::cores::{self, Core, usable_cores};

/// How long a thread looks for work before it parks. A step has some 200 regions a few microseconds apart, and waking a
/// parked thread takes 20 to 50 microseconds; on shared cores a longer spin takes the core from whoever else needs it.
const SPIN: Duration = Duration::from_micros(40);

/// Looks between two readings of the clock, which cost as much as a few of them.
const LOOKS: usize = 16;

/// A job as every thread sees it: called once with the thread's index.
type Job = dyn Fn(usize) + Sync;

/// A value on cache lines of its own (two: processors fetch them in pairs), so that a thread that polls it is disturbed
/// by nothing else.
#[repr(align(128))]
struct Alone<T>(T);

/// What all threads share.
struct Shared {
    /// Counts jobs; a worker that sees it change takes the job.
    round: Alone<AtomicUsize>,
    /// Workers still at the current job.
    busy: Alone<AtomicUsize>,
    /// Workers that are parked or about to be.
    parked: Alone<AtomicUsize>,
    /// The current job; it lies on the caller's stack.
    job: AtomicPtr<&'static Job>,
    /// A worker panicked in the current job.
    panicked: AtomicBool,
    /// The caller is parked or about to be.
    caller_parked: AtomicBool,
    caller: Mutex<Option<Thread>>,
    closing: AtomicBool,
    /// Whether a thread spins before it parks.
    spins: bool,
}

/// A fixed set of threads, the caller's among them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// The core that no worker has, where each of them has one.
    caller_core: Option<Core>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included; at least one.
    pub(crate) fn new(threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            round: Alone(AtomicUsize::new(0)),
            busy: Alone(AtomicUsize::new(0)),
            parked: Alone(AtomicUsize::new(0)),
            job: AtomicPtr::new(null_mut()),
            panicked: AtomicBool::new(false),
            caller_parked: AtomicBool::new(false),
            caller: Mutex::new(None),
            closing: AtomicBool::new(false),
            // With more threads than cores a spinning one keeps the core from the one it waits for.
            spins: threads <= usable_cores(),
        });
        // With a thread for each core the scheduler has nothing to choose, but puts two threads on one core all the same
        // when others want to run; with fewer, two programs that bind theirs would choose the same cores.
        let cores = cores::fast_cores().filter(|cores| cores.len() == threads && threads <= usable_cores());
        let mut workers = Vec::new();
        for index in 1..threads {
            let shared = Arc::clone(&shared);
            let core = cores.as_ref().and_then(|cores| cores.get(index).cloned());
            let named = std::thread::Builder::new().name(format!("kipp-{index}"));
            // A machine that cannot start another thread computes with those it has: the bits are the same.
            match named.spawn(move || shared.work(index, core)) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        let caller_core = cores.and_then(|cores| cores.into_iter().next());
        Pool { shared, caller_core, workers }
    }

    /// Threads that compute.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Takes the calling thread to the core that no worker has, until it is told to go back; `None` where threads are not
    /// bound to cores. For the length of a step: the thread is the caller's, who may start others from it.
    pub(super) fn visit_core(&self) -> Option<Elsewhere> {
        self.caller_core.as_ref().and_then(affinity::visit)
    }

    /// Runs `job` once on every thread and returns when all are done. A panic in any of them is raised again here, after
    /// every thread has left the job.
    pub(crate) fn run(&mut self, job: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return job(0);
        }
        let shared = &*self.shared;
        shared.job.store((&raw const job).cast::<&'static Job>().cast_mut(), Ordering::Relaxed);
        shared.panicked.store(false, Ordering::Relaxed);
        shared.busy.0.store(self.workers.len(), Ordering::Relaxed);
        self.start_round();
        let mine = catch_unwind(AssertUnwindSafe(|| job(0)));
        shared.wait_for_workers();
        if let Err(panic) = mine {
            resume_unwind(panic);
        }
        if shared.panicked.load(Ordering::Relaxed) {
            resume_unwind(Box::new("a worker thread panicked"));
        }
    }

    /// Calls `work` with the thread's index for each number below `count`; whichever thread is free takes the next one.
    /// A single one does not wake anybody.
    pub(crate) fn for_each_index(&mut self, count: usize, work: impl Fn(usize, usize) + Sync) {
        if count <= 1 || self.workers.is_empty() {
            return (0..count).for_each(|index| work(0, index));
        }
        let next = Alone(AtomicUsize::new(0));
        self.run(&|thread| {
            loop {
                let index = next.0.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return;
                }
                work(thread, index);
            }
        });
    }

    /// Calls `work` with the thread's index for each of `parts`; whichever thread is free takes the next one.
    pub(crate) fn for_each_mut<T: Send>(&mut self, parts: &mut [T], work: impl Fn(usize, &mut T) + Sync) {
        let first = AtomicPtr::new(parts.as_mut_ptr());
        self.for_each_index(parts.len(), |thread, index| {
            // SAFETY: `for_each_index` gives each index below the slice's length to one thread, once, while the slice is
            // borrowed here; so this is the only reference to the part.
            let part = unsafe { &mut *first.load(Ordering::Relaxed).add(index) };
            work(thread, part);
        });
    }

    /// As [`Pool::for_each_mut`], for parts that are made on the way and given away.
    pub(crate) fn for_each<T: Send>(
        &mut self,
        parts: impl Iterator<Item = T>,
        work: impl Fn(usize, T) + Sync,
    ) {
        let mut parts: Vec<Option<T>> = parts.map(Some).collect();
        self.for_each_mut(&mut parts, |thread, part| {
            if let Some(part) = part.take() {
                work(thread, part);
            }
        });
    }

    /// Publishes what was stored before. Sequentially consistent like the looks of a worker that parks: either it sees
    /// the new round, or this sees it parked.
    fn start_round(&self) {
        self.shared.round.0.fetch_add(1, Ordering::SeqCst);
        if self.shared.parked.0.load(Ordering::SeqCst) > 0 {
            self.workers.iter().for_each(|worker| worker.thread().unpark());
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        self.start_round();
        for worker in self.workers.drain(..) {
            // A worker's panic was raised by the `run` it happened in.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// A worker's life, on its core if it has one: wait for a round, run its job, say so.
    fn work(&self, index: usize, core: Option<Core>) {
        core.iter().for_each(affinity::stay_on);
        let mut seen = 0;
        loop {
            self.wait_for_round(seen);
            // No round begins before every worker has finished the last.
            seen = seen.wrapping_add(1);
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: `Pool::run` stored the job before the round began and keeps it alive until `busy` is 0, which this
            // worker has not reached yet.
            let job = unsafe { &*self.job.load(Ordering::Relaxed) };
            if catch_unwind(AssertUnwindSafe(|| job(index))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            if self.busy.0.fetch_sub(1, Ordering::SeqCst) == 1 && self.caller_parked.load(Ordering::SeqCst) {
                let caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
                caller.iter().for_each(Thread::unpark);
            }
        }
    }

    fn wait_for_round(&self, seen: usize) {
        if self.spin_until(|| self.round.0.load(Ordering::Acquire) != seen) {
            return;
        }
        self.parked.0.fetch_add(1, Ordering::SeqCst);
        while self.round.0.load(Ordering::SeqCst) == seen {
            std::thread::park();
        }
        self.parked.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_for_workers(&self) {
        if self.spin_until(|| self.busy.0.load(Ordering::Acquire) == 0) {
            return;
        }
        *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        self.caller_parked.store(true, Ordering::SeqCst);
        while self.busy.0.load(Ordering::SeqCst) != 0 {
            std::thread::park();
        }
        self.caller_parked.store(false, Ordering::SeqCst);
    }

    /// True once `ready` is; false when it took too long to spin for.
    fn spin_until(&self, ready: impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        if !self.spins {
            return false;
        }
        let started = Instant::now();
        while started.elapsed() < SPIN {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if ready() {
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_done_once() {
        for threads in [1, 2, 3] {
            let mut pool = Pool::new(threads);
            for round in 0..200 {
                let sum = AtomicUsize::new(0);
                pool.for_each(0..round, |_, part| {
                    sum.fetch_add(part, Ordering::Relaxed);
                });
                assert_eq!(sum.into_inner(), round * round.saturating_sub(1) / 2);
                let mut counts = vec![0; round];
                pool.for_each_mut(&mut counts, |_, count| *count += 1);
                assert!(counts.iter().all(|count| *count == 1));
            }
        }
    }

    #[test]
    fn rounds_after_every_pause_reach_every_thread() {
        // Pauses around the time at which threads park, where a wake-up could be lost.
        for threads in [2, 4] {
            let mut pool = Pool::new(threads);
            for pause_us in (0..120).step_by(3) {
                let started = Instant::now();
                while started.elapsed() < Duration::from_micros(pause_us) {}
                let count = AtomicUsize::new(0);
                pool.run(&|_| {
                    count.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(count.into_inner(), threads);
            }
        }
    }

    #[test]
    fn a_panic_in_a_worker_releases_everybody_and_the_pool_goes_on() {
        let mut pool = Pool::new(2);
        for thrower in [0, 1] {
            let result = catch_unwind(AssertUnwindSafe(|| pool.run(&|i| assert_ne!(i, thrower))));
            assert!(result.is_err());
        }
        let count = AtomicUsize::new(0);
        pool.run(&|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 2);
    }

    /// User and system time of the calling thread, in the kernel's ticks of 10 ms.
    #[cfg(target_os = "linux")]
    fn cpu_ticks() -> usize {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = stat.rsplit(')').next().unwrap();
        after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<usize>().unwrap()).sum()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_idle_pool_takes_no_cpu_time() {
        let mut pool = Pool::new(2);
        let ticks = AtomicUsize::new(0);
        let of_worker = |thread: usize| {
            if thread == 1 {
                ticks.store(cpu_ticks(), Ordering::Relaxed);
            }
        };
        pool.run(&of_worker);
        let before = ticks.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(200));
        pool.run(&of_worker);
        assert!(ticks.load(Ordering::Relaxed) <= before + 1);
    }

    /// Prints the cost of a parallel region; run it in a release build, alone.
    #[test]
    #[ignore = "a measurement"]
    fn region_overhead() {
        let mut pool = Pool::new(2);
        let work = |us: u64| {
            let started = Instant::now();
            while started.elapsed() < Duration::from_micros(us) {}
        };
        for (pause_us, work_us) in [(0, 0), (0, 20), (0, 200), (5, 20), (1000, 20)] {
            let mut times: Vec<Duration> = (0..2000)
                .map(|_| {
                    work(pause_us);
                    let started = Instant::now();
                    pool.run(&|_| work(work_us));
                    started.elapsed().saturating_sub(Duration::from_micros(work_us))
                })
                .collect();
            times.sort_unstable();
            let at = |share: usize| times[times.len() * share / 100];
            println!("after {pause_us} us, {work_us} us of work: median {:?}, p90 {:?}", at(50), at(90));
        }
    }
}
