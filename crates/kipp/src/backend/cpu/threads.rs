//! The threads that compute: a fixed set that spins for tens of microseconds between jobs, then parks. Threads divide
//! work, never a sum, so their number cannot change a bit.
//!
//! The pool takes `&mut self` for a job: two jobs at once, or a job within a job, cannot be written.

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Spins before a thread parks. About 20 microseconds: a step has some 200 regions a few microseconds apart, and on two
/// shared cores a longer spin takes the core from whoever else needs it.
const SPINS: usize = 1_000;

/// A job as every thread sees it: called once with the thread's index.
type Job = dyn Fn(usize) + Sync;

/// A job on its way to the workers.
#[derive(Clone, Copy)]
struct JobPointer(*const Job);

// SAFETY: the pointee is `Sync`, and `Pool::run` does not return before every worker is done with it.
unsafe impl Send for JobPointer {}

/// What all threads share.
struct Shared {
    /// Counts jobs; a worker that sees it change takes the job.
    round: AtomicUsize,
    /// Workers still at the current job.
    busy: AtomicUsize,
    /// A worker panicked in the current job.
    panicked: AtomicBool,
    job: Mutex<Option<JobPointer>>,
    /// Signalled with `job` held, when a round starts or the pool closes.
    start: Condvar,
    /// Signalled when the last worker is done.
    done: Condvar,
    closing: AtomicBool,
    /// How often a thread looks before it parks.
    spins: usize,
}

/// A fixed set of threads, the caller's among them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included; at least one.
    pub(crate) fn new(threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            round: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            job: Mutex::new(None),
            start: Condvar::new(),
            done: Condvar::new(),
            closing: AtomicBool::new(false),
            // With more threads than cores a spinning one keeps the core from the one it waits for.
            spins: if threads <= usable_cores() { SPINS } else { 0 },
        });
        let mut workers = Vec::new();
        for index in 1..threads {
            let shared = Arc::clone(&shared);
            let named = std::thread::Builder::new().name(format!("kipp-{index}"));
            // A machine that cannot start another thread computes with those it has: the bits are the same.
            match named.spawn(move || work(&shared, index)) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        Pool { shared, workers }
    }

    /// Threads that compute.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` once on every thread and returns when all are done. A panic in any of them is raised again here, after
    /// every thread has left the job.
    pub(crate) fn run(&mut self, job: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return job(0);
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime is erased; the job is not touched after `wait_for_workers`, which runs before this
        // function returns or unwinds.
        let erased = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const Job>(job) };
        {
            let mut slot = lock(&shared.job);
            *slot = Some(JobPointer(erased));
            shared.panicked.store(false, Ordering::Relaxed);
            shared.busy.store(self.workers.len(), Ordering::Relaxed);
            shared.round.fetch_add(1, Ordering::Release);
            shared.start.notify_all();
        }
        let mine = catch_unwind(AssertUnwindSafe(|| job(0)));
        wait_for_workers(shared);
        if let Err(panic) = mine {
            resume_unwind(panic);
        }
        if shared.panicked.load(Ordering::Acquire) {
            resume_unwind(Box::new("a worker thread panicked"));
        }
    }

    /// Calls `work` with the thread's index for each part; whichever thread is free takes the next one.
    pub(crate) fn for_each<T: Send>(
        &mut self,
        parts: impl Iterator<Item = T> + Send,
        work: impl Fn(usize, T) + Sync,
    ) {
        let parts = Mutex::new(parts);
        self.run(&|thread| {
            loop {
                let Some(part) = lock(&parts).next() else { return };
                work(thread, part);
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let _slot = lock(&self.shared.job);
            self.shared.closing.store(true, Ordering::Relaxed);
            self.shared.round.fetch_add(1, Ordering::Release);
            self.shared.start.notify_all();
        }
        for worker in self.workers.drain(..) {
            // A worker's panic was raised by the `run` it happened in.
            let _ = worker.join();
        }
    }
}

/// A worker's life: wait for a round, run its job, say so.
fn work(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        spin_while(shared.spins, || shared.round.load(Ordering::Acquire) == seen);
        let mut slot = lock(&shared.job);
        while shared.round.load(Ordering::Acquire) == seen {
            slot = shared.start.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        seen = shared.round.load(Ordering::Acquire);
        if shared.closing.load(Ordering::Relaxed) {
            return;
        }
        let job = *slot;
        drop(slot);
        if let Some(JobPointer(job)) = job {
            // SAFETY: `Pool::run` keeps the job alive until `busy` is 0, which this worker has not reached yet.
            let job = unsafe { &*job };
            if catch_unwind(AssertUnwindSafe(|| job(index))).is_err() {
                shared.panicked.store(true, Ordering::Release);
            }
        }
        if shared.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _slot = lock(&shared.job);
            shared.done.notify_all();
        }
    }
}

fn wait_for_workers(shared: &Shared) {
    spin_while(shared.spins, || shared.busy.load(Ordering::Acquire) != 0);
    let mut slot = lock(&shared.job);
    while shared.busy.load(Ordering::Acquire) != 0 {
        slot = shared.done.wait(slot).unwrap_or_else(PoisonError::into_inner);
    }
    *slot = None;
}

fn spin_while(spins: usize, condition: impl Fn() -> bool) {
    for _ in 0..spins {
        if !condition() {
            return;
        }
        std::hint::spin_loop();
    }
}

/// No lock here is held across code that can panic, so a poisoned one is still good.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads to compute with when nobody says: one for each physical core that has a CPU on which the calling thread
/// may run, and no more than the control group's CPU time allows.
///
/// `available_parallelism` knows affinity and quotas but counts hyperthreads, which only take turns on the units that the
/// kernels keep full.
pub fn default_threads() -> usize {
    let usable = usable_cores();
    physical_cores().map_or(usable, |cores| cores.min(usable)).max(1)
}

fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Cores of the CPUs that the calling thread may run on, as Linux tells; `None` elsewhere.
fn physical_cores() -> Option<usize> {
    let allowed = allowed_cpus(&std::fs::read_to_string("/proc/thread-self/status").ok()?)?;
    let siblings = |cpu: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).ok()
    };
    Some(count_cores(&allowed, siblings))
}

/// The CPUs that a thread's `status` in `/proc` allows it; `None` where it does not say or names none.
fn allowed_cpus(status: &str) -> Option<BTreeSet<usize>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    cpu_list(list).filter(|cpus| !cpus.is_empty())
}

/// More CPUs than Linux can be built for, so that a range allocates no more.
const MAX_CPUS: usize = 1 << 16;

/// Linux' list of CPUs: numbers and ranges with both ends, `0-3,8`. `None` for what is no such list.
fn cpu_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Distinct cores among `cpus`. `siblings` has the list of CPUs on the same core as one; a CPU that has none is a core.
fn count_cores(cpus: &BTreeSet<usize>, siblings: impl Fn(usize) -> Option<String>) -> usize {
    let core = |cpu: usize| siblings(cpu).and_then(|list| cpu_list(&list)?.first().copied()).unwrap_or(cpu);
    cpus.iter().map(|cpu| core(*cpu)).collect::<BTreeSet<usize>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_whole_or_not_at_all() {
        let list = |text: &str| cpu_list(text).map(|cpus| cpus.into_iter().collect::<Vec<usize>>());
        assert_eq!(list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list("\t5\n"), Some(vec![5]));
        assert_eq!(list("\n"), Some(vec![]));
        for bad in ["3-1", "x", "1-", "-1", "0-4294967295", "1 2"] {
            assert_eq!(list(bad), None, "{bad}");
        }
        let status = "Name:\tkipp\nCpus_allowed:\tc\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t0\n";
        assert_eq!(allowed_cpus(status), Some(BTreeSet::from([2, 3])));
        assert_eq!(allowed_cpus("Name:\tkipp\n"), None);
        assert_eq!(allowed_cpus("Cpus_allowed_list:\t\n"), None);
    }

    #[test]
    fn cores_are_counted_among_the_allowed_cpus_only() {
        let allowed = |text: &str| cpu_list(text).unwrap();
        // Eight CPUs, `n` and `n + 4` on one core.
        let siblings = |cpu: usize| Some(format!("{},{}\n", cpu % 4, cpu % 4 + 4));
        assert_eq!(count_cores(&allowed("0-7"), siblings), 4);
        assert_eq!(count_cores(&allowed("0-1"), siblings), 2);
        assert_eq!(count_cores(&allowed("1,5"), siblings), 1);
        assert_eq!(count_cores(&allowed("4-6"), siblings), 3);
        // Neighbours on one core, as some machines number them; and a system that does not tell.
        assert_eq!(count_cores(&allowed("0-3"), |cpu| Some(format!("{}-{}", cpu & !1, cpu | 1))), 2);
        assert_eq!(count_cores(&allowed("0-3"), |_| None), 4);
        assert!((1..=usable_cores()).contains(&default_threads()));
    }

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
}
