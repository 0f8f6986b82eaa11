//! Runs of all cases with probes between them: the cases in turn, so that a drift of the machine meets each of them; runs
//! that met the machine in another state are kept, counted, and repeated where a record is wanted.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::cases::Case;
use super::limits::{Limits, Prober, SAME_STATE};
use super::process;
use super::record::stolen_ms;
use super::single::SingleRun;
use super::statistics::{Summary, median};
use super::work::{Bound, Work, bound};
use crate::report;

/// Runs that may be repeated for their state; then the machine is too restless.
pub(super) const MOST_REPEATS: usize = 30;

/// What happens before the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// A pause before each run, as a person meets the machine
    CoolStart,
    /// Two minutes of full load before the first run, none in between, as a server runs
    Sustained,
}

/// Clocks recover from a run of seconds in so much time; heat takes longer, and is what `sustained` is for.
const COOL_DOWN: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(120);

impl Protocol {
    /// What happens before the first run.
    pub(crate) fn begin(protocol: Option<Protocol>, prober: &Prober) {
        if protocol == Some(Protocol::Sustained) {
            report::note(&format!("load for {} seconds", WARM_UP.as_secs()));
            prober.load(WARM_UP);
        }
    }

    /// For a record.
    pub(crate) fn describe(protocol: Option<Protocol>) -> Value {
        match protocol {
            Some(Protocol::CoolStart) => json!({"name": "cool-start", "pause_s": COOL_DOWN.as_secs()}),
            Some(Protocol::Sustained) => json!({"name": "sustained", "load_s": WARM_UP.as_secs()}),
            None => Value::Null,
        }
    }
}

/// One case with all its runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseResult {
    pub(crate) name: String,
    /// Median of the runs that count; foreign ones do not.
    pub(crate) tok_s: f64,
    pub(crate) mad: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The limit that this case is held against: bare read in GB/s for decode, peak loop in GOP/s for prefill; median of
    /// the probes beside the runs.
    pub(crate) limit: f64,
    /// The part of it that the case reaches.
    pub(crate) share: f64,
    /// MAD of the share as a part of its median.
    pub(crate) dispersion: f64,
    /// Runs in another state of the machine.
    pub(crate) foreign_runs: usize,
    pub(crate) runs: Vec<MeasuredRun>,
    #[serde(skip)]
    pub(crate) case: Case,
}

/// A run between its probes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MeasuredRun<R = SingleRun> {
    /// In another state of the machine than most.
    pub(crate) foreign: bool,
    #[serde(flatten)]
    pub(crate) run: R,
    pub(crate) before: Limits,
    pub(crate) after: Limits,
    /// Milliseconds that a hypervisor took from this machine's CPUs meanwhile.
    pub(crate) stolen_ms: Option<u64>,
}

/// What measures all cases.
pub(crate) struct Schedule<'a> {
    pub(crate) prober: &'a Prober,
    pub(crate) work: &'a Work,
    pub(crate) protocol: Option<Protocol>,
    /// Runs of each case.
    pub(crate) runs: usize,
    /// Foreign runs are repeated.
    pub(crate) repeats: bool,
}

impl Schedule<'_> {
    /// All runs of all cases.
    pub(crate) fn measure(&self, cases: &[Case]) -> Result<Vec<CaseResult>> {
        Protocol::begin(self.protocol, self.prober);
        let mut runs: Vec<Vec<MeasuredRun>> = vec![Vec::new(); cases.len()];
        let mut before = self.prober.probe();
        for turn in 1..=self.runs {
            for (case, runs) in cases.iter().zip(&mut runs) {
                let run = self.run(*case, &mut before)?;
                report::note(&format!("run {turn} of {}: {case} {:.2} tok/s", self.runs, run.run.tok_s));
                runs.push(run);
            }
        }
        for (case, runs) in cases.iter().zip(&mut runs) {
            mark_foreign(runs, |run| run.limit(*case, self.work));
            let mut repeats = if self.repeats { MOST_REPEATS } else { 0 };
            while count_native(runs) < self.runs && repeats > 0 {
                let run = self.run(*case, &mut before)?;
                report::note(&format!("repeated for the machine's state: {case} {:.2} tok/s", run.run.tok_s));
                runs.push(run);
                mark_foreign(runs, |run| run.limit(*case, self.work));
                repeats -= 1;
            }
        }
        let results = cases.iter().zip(runs).map(|(case, runs)| CaseResult::new(*case, runs, self.work));
        results.collect::<Option<Vec<_>>>().context("no runs")
    }

    /// One run. `before` is the last probe, and the one after this run when it is done.
    fn run(&self, case: Case, before: &mut Limits) -> Result<MeasuredRun> {
        between_probes(self.prober, self.protocol, before, || process::single(case))
    }
}

/// One run of anything. `before` is the last probe, and the one after this run when it is done.
pub(super) fn between_probes<R>(
    prober: &Prober,
    protocol: Option<Protocol>,
    before: &mut Limits,
    run: impl FnOnce() -> Result<R>,
) -> Result<MeasuredRun<R>> {
    if protocol == Some(Protocol::CoolStart) {
        std::thread::sleep(COOL_DOWN);
        *before = prober.probe();
    }
    let stolen_before = stolen_ms();
    let run = run()?;
    let stolen_ms = stolen_ms().zip(stolen_before).map(|(after, before)| after.saturating_sub(before));
    let after = prober.probe();
    let before = std::mem::replace(before, after.clone());
    Ok(MeasuredRun { foreign: false, run, before, after, stolen_ms })
}

pub(super) fn count_native<R>(runs: &[MeasuredRun<R>]) -> usize {
    runs.iter().filter(|run| !run.foreign).count()
}

/// Marks the runs whose `limit` is that of another state of the machine.
pub(super) fn mark_foreign<R>(runs: &mut [MeasuredRun<R>], limit: impl Fn(&MeasuredRun<R>) -> f64) {
    let limits: Vec<f64> = runs.iter().map(limit).collect();
    for (run, foreign) in runs.iter_mut().zip(foreign(&limits)) {
        run.foreign = foreign;
    }
}

/// Which runs met the machine in another state than most: those whose limit is far from the middle one.
fn foreign(limits: &[f64]) -> Vec<bool> {
    let mut sorted = limits.to_vec();
    sorted.sort_by(f64::total_cmp);
    // One that was measured, so that at least one run is native.
    let middle = sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    limits.iter().map(|limit| (limit / middle - 1.0).abs() > SAME_STATE).collect()
}

impl CaseResult {
    /// `None` without a run.
    pub(crate) fn new(case: Case, mut runs: Vec<MeasuredRun>, work: &Work) -> Option<CaseResult> {
        mark_foreign(&mut runs, |run| run.limit(case, work));
        let native: Vec<(f64, f64)> = runs
            .iter()
            .filter(|run| !run.foreign)
            .map(|run| (run.run.tok_s, run.limit(case, work)))
            .collect();
        let rates: Vec<f64> = native.iter().map(|(rate, _)| *rate).collect();
        let limits: Vec<f64> = native.iter().map(|(_, limit)| *limit).collect();
        let shares: Vec<f64> = native.iter().map(|(rate, limit)| work.share(case, *rate, *limit)).collect();
        let Summary { median: tok_s, mad, min, max } = Summary::of(&rates)?;
        let share = Summary::of(&shares)?;
        Some(CaseResult {
            name: case.to_string(),
            tok_s,
            mad,
            min,
            max,
            limit: median(&limits)?,
            share: share.median,
            dispersion: share.mad / share.median,
            foreign_runs: runs.len() - native.len(),
            runs,
            case,
        })
    }

    /// Runs that count.
    pub(crate) fn native_runs(&self) -> usize {
        self.runs.len() - self.foreign_runs
    }
}

impl MeasuredRun {
    /// The limit that binds the case: prefill is held against the loop, decode against the bare read.
    fn limit(&self, case: Case, work: &Work) -> f64 {
        self.beside(bound(case), work)
    }
}

impl<R> MeasuredRun<R> {
    /// The limit as it was beside this run: the mean of before and after.
    pub(super) fn beside(&self, bound: Bound, work: &Work) -> f64 {
        let of = |limits: &Limits| match bound {
            Bound::Memory => limits.read_gb_s,
            Bound::Compute => work.peak(limits).map_or(f64::NAN, |peak| peak.gop_s),
        };
        (of(&self.before) + of(&self.after)) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::Peak;
    use super::super::single::SingleBackend;
    use super::*;

    fn run(tok_s: f64, read_gb_s: f64, gop_s: f64) -> MeasuredRun {
        let peak = Peak { name: "u8_dot".to_owned(), one_thread_gop_s: gop_s, gop_s };
        let limits = Limits { read_one_thread_gb_s: read_gb_s, read_gb_s, peaks: vec![peak] };
        let backend = SingleBackend {
            name: "cpu".to_owned(),
            kernels: String::new(),
            activations: String::new(),
            threads: 2,
            demoted: Vec::new(),
            kv: String::new(),
            kv_blocks: 1,
            max_rows: 1,
        };
        let run = SingleRun {
            name: String::new(),
            tokens: 1,
            ms: 1.0,
            tok_s,
            load_ms: 1.0,
            first_answer_ms: 1.0,
            steps_ms: Vec::new(),
            peak_resident_bytes: None,
            backend,
        };
        MeasuredRun { foreign: false, run, before: limits.clone(), after: limits, stolen_ms: None }
    }

    const DECODE: Case = Case::Decode { tokens: 0, depth: 0, sequences: 1 };

    #[test]
    fn decode_is_divided_by_the_read_and_prefill_by_the_loop() {
        let work = Work::of_numbers(1e9, 2e9);
        // The bandwidth wanders and takes decode with it, the loop does not.
        let runs = || vec![run(50.0, 50.0, 800.0), run(55.0, 55.0, 800.0), run(52.0, 52.0, 800.0)];
        let decode = CaseResult::new(DECODE, runs(), &work).unwrap();
        assert_eq!((decode.tok_s, decode.limit, decode.share), (52.0, 52.0, 1.0));
        assert!(decode.dispersion < 1e-9 && decode.mad == 2.0);
        let prefill = CaseResult::new(Case::Prefill { tokens: 512 }, runs(), &work).unwrap();
        assert_eq!((prefill.limit, prefill.share), (800.0, 52.0 * 2.0 / 800.0));
        assert!((prefill.dispersion - 2.0 / 52.0).abs() < 1e-9);
    }

    #[test]
    fn runs_in_another_state_are_kept_and_do_not_count() {
        let work = Work::of_numbers(1e9, 2e9);
        let runs = vec![run(50.0, 55.0, 1.0), run(30.0, 38.0, 1.0), run(52.0, 57.0, 1.0)];
        let result = CaseResult::new(DECODE, runs, &work).unwrap();
        assert_eq!((result.tok_s, result.foreign_runs, result.runs.len()), (51.0, 1, 3));
        assert!(result.runs[1].foreign && result.min == 50.0);
        assert_eq!(foreign(&[40.0, 56.0]), [false, true]);
        assert_eq!(foreign(&[]), [false; 0]);
    }
}
