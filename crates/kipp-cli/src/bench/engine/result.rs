//! What runs through the engine come to: named figures of each case, a summary over the runs that count.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::super::format::markdown;
use super::super::schedule::MeasuredRun;
use super::super::single::SingleBackend;
use super::super::statistics::{Summary, median};
use super::super::work::{Bound, Work};
use super::Judged;

/// A figure of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Its name in JSON.
    pub(crate) figure: &'static str,
    /// Its name for people.
    pub(crate) header: &'static str,
    pub(crate) decimals: usize,
}

/// One case in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseRun {
    pub(crate) name: String,
    /// By the names of [`Column`]s. One that has no value in this run, such as a rate of nothing, is absent.
    pub(crate) figures: BTreeMap<String, f64>,
}

impl CaseRun {
    /// Figures that are no number are left out.
    pub(crate) fn new(name: impl Into<String>, figures: &[(&str, f64)]) -> CaseRun {
        let figures = figures.iter().filter(|(_, value)| value.is_finite());
        CaseRun {
            name: name.into(),
            figures: figures.map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        }
    }
}

/// What one process measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EngineRun<P = Process> {
    pub(crate) cases: Vec<CaseRun>,
    pub(crate) process: P,
}

/// The process of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Process {
    /// From the start of the command to a model that is ready.
    pub(crate) load_ms: f64,
    pub(crate) peak_resident_bytes: Option<u64>,
    pub(crate) backend: SingleBackend,
}

/// One case in one run, with what is known of the run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RawRun<P = Process> {
    pub(crate) figures: BTreeMap<String, f64>,
    #[serde(flatten)]
    pub(crate) process: P,
}

/// One case with all its runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseResult<P = Process> {
    pub(crate) name: String,
    /// Over the runs that count; foreign ones do not.
    pub(crate) figures: BTreeMap<String, Summary>,
    /// The limit that tells the state of the machine: bare read in GB/s or peak loop in GOP/s, median beside the runs.
    pub(crate) limit: f64,
    /// MAD of the figure that is judged, as a part of its median.
    pub(crate) dispersion: f64,
    pub(crate) foreign_runs: usize,
    pub(crate) runs: Vec<MeasuredRun<RawRun<P>>>,
}

impl<P: Clone> CaseResult<P> {
    /// All cases of `runs`, which had the same ones.
    pub(crate) fn of(
        runs: &[MeasuredRun<EngineRun<P>>],
        judged: Judged,
        bound: Bound,
        work: &Work,
    ) -> Result<Vec<CaseResult<P>>> {
        let first = runs.first().context("no runs")?;
        (0..first.run.cases.len()).map(|case| CaseResult::new(case, runs, judged, bound, work)).collect()
    }

    /// The case of this number.
    pub(crate) fn new(
        case: usize,
        runs: &[MeasuredRun<EngineRun<P>>],
        judged: Judged,
        bound: Bound,
        work: &Work,
    ) -> Result<CaseResult<P>> {
        let raw = runs.iter().filter_map(|run| {
            let case = run.run.cases.get(case)?;
            Some((case.name.clone(), raw(run, case.figures.clone())))
        });
        let (names, runs): (Vec<String>, Vec<MeasuredRun<RawRun<P>>>) = raw.unzip();
        let name = names.into_iter().next().context("a run without its cases")?;
        let native: Vec<&MeasuredRun<RawRun<P>>> = runs.iter().filter(|run| !run.foreign).collect();
        let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (figure, value) in native.iter().flat_map(|run| &run.run.figures) {
            values.entry(figure.clone()).or_default().push(*value);
        }
        let summaries = values.iter().filter_map(|(name, values)| Some((name.clone(), Summary::of(values)?)));
        let limits: Vec<f64> = native.iter().map(|run| run.beside(bound, work)).collect();
        let judged: Vec<f64> = native
            .iter()
            .map(|run| match judged {
                Judged::Ratio(figure) => figure_of(run, figure),
                Judged::Rate(figure) => figure_of(run, figure) / run.beside(bound, work),
            })
            .collect();
        let judged = Summary::of(&judged).context("every run is foreign")?;
        Ok(CaseResult {
            name,
            figures: summaries.collect(),
            limit: median(&limits).unwrap_or(f64::NAN),
            dispersion: judged.mad / judged.median,
            foreign_runs: runs.len() - native.len(),
            runs,
        })
    }

    /// Runs that count.
    pub(crate) fn native_runs(&self) -> usize {
        self.runs.len() - self.foreign_runs
    }
}

fn raw<P: Clone>(run: &MeasuredRun<EngineRun<P>>, figures: BTreeMap<String, f64>) -> MeasuredRun<RawRun<P>> {
    let MeasuredRun { foreign, run, before, after, stolen_ms } = run.clone();
    MeasuredRun { foreign, run: RawRun { figures, process: run.process }, before, after, stolen_ms }
}

fn figure_of<P>(run: &MeasuredRun<RawRun<P>>, figure: &str) -> f64 {
    run.run.figures.get(figure).copied().unwrap_or(f64::NAN)
}

/// A table for people, as Markdown.
pub(crate) fn table(results: &[CaseResult], columns: &[Column]) -> String {
    let mut header = vec!["case".to_owned()];
    header.extend(columns.iter().map(|column| column.header.to_owned()));
    header.extend(["spread".to_owned(), "runs".to_owned()]);
    let mut rows = vec![header];
    for result in results {
        let mut row = vec![result.name.clone()];
        row.extend(columns.iter().map(|Column { figure, decimals, .. }| match result.figures.get(*figure) {
            Some(summary) => format!("{:.*}", *decimals, summary.median),
            None => "-".to_owned(),
        }));
        row.push(format!("{:.1} %", result.dispersion * 100.0));
        row.push(match result.foreign_runs {
            0 => result.runs.len().to_string(),
            foreign => format!("{} ({foreign} foreign)", result.runs.len()),
        });
        rows.push(row);
    }
    markdown(&rows)
}

#[cfg(test)]
mod tests {
    use super::super::super::limits::Limits;
    use super::*;

    fn run(ratio: f64, read_gb_s: f64, foreign: bool) -> MeasuredRun<EngineRun> {
        let limits = Limits { read_one_thread_gb_s: read_gb_s, read_gb_s, peaks: Vec::new() };
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
        let process = Process { load_ms: 1.0, peak_resident_bytes: None, backend };
        let cases = vec![CaseRun::new("one", &[("ratio", ratio), ("none", f64::NAN)])];
        let run = EngineRun { cases, process };
        MeasuredRun { foreign, run, before: limits.clone(), after: limits, stolen_ms: None }
    }

    #[test]
    fn ratios_are_judged_as_they_are_and_rates_by_their_probe() {
        let work = Work::of_numbers(1.0, 1.0);
        let runs =
            [run(2.0, 40.0, false), run(3.0, 60.0, false), run(2.5, 50.0, false), run(9.0, 90.0, true)];
        let of = |judged| CaseResult::of(&runs, judged, Bound::Memory, &work).unwrap().remove(0);
        let ratio = of(Judged::Ratio("ratio"));
        assert_eq!((ratio.figures["ratio"].median, ratio.limit, ratio.native_runs()), (2.5, 50.0, 3));
        assert_eq!((ratio.dispersion, ratio.foreign_runs, ratio.runs.len()), (0.2, 1, 4));
        assert!(of(Judged::Rate("ratio")).dispersion < 1e-9);
        assert!(of(Judged::Ratio("none")).dispersion.is_nan(), "a record of this is refused");
        let columns = ["ratio", "none"].map(|figure| Column { figure, header: figure, decimals: 2 });
        let table = table(&[ratio], &columns);
        assert!(table.contains("| one  |  2.50 |    - | 20.0 % | 4 (1 foreign) |"), "{table}");
    }
}
