//! The machine's limits, measured beside every run: the bare read of as many bytes as the model has, and loops that stay
//! in registers. A neighbour on a shared machine changes both from minute to minute, so figures are compared after they
//! were divided by them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use kipp_kernels::Kernels;
use kipp_kernels::probe::{CHAINS, PeakLoop};
use memmap2::{MmapMut, MmapOptions};
use serde::{Deserialize, Serialize};

use super::statistics::median;

/// Times that each limit is taken; the median counts.
const PASSES: usize = 3;
/// A loop this long is not disturbed by the clock, and a whole probe stays well below a second.
const LOOP_TIME: Duration = Duration::from_millis(5);
/// Parts of a loop that each thread takes on average, so that one that is disturbed does not keep the others waiting.
const PARTS_A_THREAD: usize = 4;
/// Bytes of a part of the read.
const PART_BYTES: usize = 1 << 20;
/// Fewer are read too fast for the clock; models of more than a gigabyte are read no faster than one of that size.
const BUFFER_BYTES: std::ops::RangeInclusive<usize> = 16 << 20..=1 << 30;

/// How far limits of one state of the machine lie apart. The states of a shared machine lie 40 % apart (36-40 and 50-60
/// GB/s were seen), probes of one state a few percent.
pub(crate) const SAME_STATE: f64 = 0.15;

/// What the machine could do at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// The bare read with one thread, in GB/s.
    pub(crate) read_one_thread_gb_s: f64,
    /// The same with the threads of the run.
    pub(crate) read_gb_s: f64,
    /// Each loop.
    pub(crate) peaks: Vec<Peak>,
}

/// The rate of one loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peak {
    /// The operation.
    pub(crate) name: String,
    /// With one thread, in 10^9 operations a second.
    pub(crate) one_thread_gop_s: f64,
    /// With the threads of the run.
    pub(crate) gop_s: f64,
}

impl Limits {
    /// The rate of a loop with the threads of the run.
    pub(crate) fn peak(&self, which: PeakLoop) -> Option<&Peak> {
        self.peaks.iter().find(|peak| peak.name == which.name())
    }
}

/// What measures the limits again and again.
pub(crate) struct Prober {
    kernels: &'static dyn Kernels,
    threads: usize,
    buffer: MmapMut,
    loops: Vec<Loop>,
}

/// A loop in the form that is fastest here.
struct Loop {
    which: PeakLoop,
    chains: usize,
    /// So many take about [`LOOP_TIME`].
    rounds: usize,
}

impl Prober {
    /// For runs on `threads` threads that read `bytes`.
    pub(crate) fn new(kernels: &'static dyn Kernels, threads: usize, bytes: u64) -> anyhow::Result<Prober> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let len_bytes = bytes.clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end());
        let mut buffer = MmapOptions::new().len(len_bytes).map_anon().context("memory for the bare read")?;
        // As weights are kept.
        #[cfg(target_os = "linux")]
        let _ = buffer.advise(memmap2::Advice::HugePage);
        // Pages that were never written are all the same page of zeros.
        buffer.fill(1);
        let loops = PeakLoop::ALL.iter().map(|which| Loop::fastest(kernels, *which)).collect();
        Ok(Prober { kernels, threads, buffer, loops })
    }

    /// Measures all limits.
    pub(crate) fn probe(&self) -> Limits {
        // One thread first, then all of them, unless that is the same.
        let both = |rate: &dyn Fn(usize) -> f64| match rate(1) {
            one if self.threads == 1 => (one, one),
            one => (one, rate(self.threads)),
        };
        let peak = |it: &Loop| {
            let (one_thread_gop_s, gop_s) = both(&|threads| self.gop_s(it, threads));
            Peak { name: it.which.name().to_owned(), one_thread_gop_s, gop_s }
        };
        let (read_one_thread_gb_s, read_gb_s) = both(&|threads| self.read_gb_s(threads));
        Limits { read_one_thread_gb_s, read_gb_s, peaks: self.loops.iter().map(peak).collect() }
    }

    /// Keeps all threads busy for so long.
    pub(crate) fn load(&self, time: Duration) {
        let started = Instant::now();
        while started.elapsed() < time {
            self.loops.iter().for_each(|it| {
                self.gop_s(it, self.threads);
            });
        }
    }

    /// The bandwidth of the bare read on `threads` threads.
    fn read_gb_s(&self, threads: usize) -> f64 {
        let parts = self.buffer.len().div_ceil(PART_BYTES);
        let seconds = passes(threads, parts, |part| {
            let end = self.buffer.len().min((part + 1) * PART_BYTES);
            std::hint::black_box(self.kernels.read(&self.buffer[part * PART_BYTES..end]));
        });
        self.buffer.len() as f64 / seconds / 1e9
    }

    fn gop_s(&self, it: &Loop, threads: usize) -> f64 {
        let parts = threads * PARTS_A_THREAD;
        let rounds = it.rounds.div_ceil(PARTS_A_THREAD);
        let seconds = passes(threads, parts, |_| {
            self.kernels.peak_loop(it.which, it.chains, rounds);
        });
        let one = self.kernels.peak_loop(it.which, it.chains, 1) as f64;
        one * rounds as f64 * parts as f64 / seconds / 1e9
    }
}

impl Loop {
    fn fastest(kernels: &dyn Kernels, which: PeakLoop) -> Loop {
        let mut best = Loop { which, chains: CHAINS[0], rounds: 1 };
        let mut best_rate = 0.0;
        for &chains in CHAINS {
            let mut rounds = 4;
            let seconds = loop {
                let started = Instant::now();
                std::hint::black_box(kernels.peak_loop(which, chains, rounds));
                match started.elapsed() {
                    time if time >= LOOP_TIME => break time.as_secs_f64(),
                    _ => rounds *= 2,
                }
            };
            let rate = kernels.peak_loop(which, chains, 1) as f64 * rounds as f64 / seconds;
            if rate > best_rate {
                best_rate = rate;
                best = Loop { which, chains, rounds };
            }
        }
        best
    }
}

/// Median seconds of doing all `parts` with `threads` threads.
fn passes(threads: usize, parts: usize, work: impl Fn(usize) + Sync) -> f64 {
    let seconds: Vec<f64> = (0..PASSES).map(|_| pass(threads, parts, &work)).collect();
    median(&seconds).unwrap_or(f64::NAN)
}

/// Seconds from the moment when all threads are there to the end of the last part. Whichever thread is free takes the
/// next part, as in the backend's own pool.
fn pass(threads: usize, parts: usize, work: &(impl Fn(usize) + Sync)) -> f64 {
    let next = AtomicUsize::new(0);
    let all_there = Barrier::new(threads);
    let take_parts = || {
        all_there.wait();
        let started = Instant::now();
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                return (started, Instant::now());
            }
            work(part);
        }
    };
    let spans = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(take_parts)).collect();
        let mut spans = vec![take_parts()];
        // A thread that panicked has no span; nothing in a probe panics.
        spans.extend(others.into_iter().filter_map(|other| other.join().ok()));
        spans
    });
    let started = spans.iter().map(|(started, _)| *started).min();
    let ended = spans.iter().map(|(_, ended)| *ended).max();
    started.zip(ended).map_or(f64::NAN, |(started, ended)| (ended - started).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use kipp_kernels::{KernelClass, select};

    use super::*;

    #[test]
    fn every_limit_is_measured() {
        let kernels = select(KernelClass::best()).unwrap();
        let limits = Prober::new(kernels, 2, 1).unwrap().probe();
        assert!(limits.read_gb_s > 0.0 && limits.read_one_thread_gb_s > 0.0, "{limits:?}");
        for which in PeakLoop::ALL {
            let peak = limits.peak(*which).unwrap();
            assert!(peak.gop_s > 0.0 && peak.one_thread_gop_s > 0.0, "{limits:?}");
        }
    }

    #[test]
    fn every_part_is_done_once() {
        let sum = AtomicUsize::new(0);
        let seconds = pass(3, 100, &|part| {
            sum.fetch_add(part, Ordering::Relaxed);
        });
        assert!(seconds > 0.0);
        assert_eq!(sum.into_inner(), 4950);
    }
}
