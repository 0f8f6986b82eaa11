//! `kipp bench run`: prefill and decode of one model. Every run is a process of its own, so that none inherits caches,
//! threads or a clock from the one before; the limits of the machine are probed before and after each.

use anyhow::Context;
use clap::Args;
use clap::ValueEnum;
use clap::builder::FalseyValueParser;
use kipp::artifact::Artifact;
use kipp::backend::cpu::default_threads;
use kipp_kernels::{KernelClass, select};
use serde::Serialize;

use super::cases::Case;
use super::limits::{Limits, Prober};
use super::single::{self, SingleRun};
use super::statistics::{Summary, median};
use super::work::{Bound, Work, bound};
use super::{format, process};
use crate::args::{self, AttentionArgs, BackendArgs, EMBEDDED_MODEL, StepArgs};
use crate::outcome::{Outcome, UsageError};
use crate::{load, open, report};

/// How the results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table, with shares of the machine's limits
    Md,
    /// One JSON document, all runs included
    Json,
    /// A table with the columns of llama-bench
    LlamaBench,
}

/// Flags of `kipp bench run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// A .gguf file, a Hugging Face folder, or kipp-tiny, which is part of the program
    #[arg(env = "KIPP_MODEL", default_value = EMBEDDED_MODEL)]
    pub(crate) model: String,
    /// Prompt lengths to measure, such as 512,2048; 0 for none
    #[arg(short = 'p', long, value_name = "N,...", env = "KIPP_PREFILL", default_value = "512", value_delimiter = ',', value_parser = args::bench_tokens)]
    prefill: Vec<usize>,
    /// Tokens to decode; 0 for none
    #[arg(short = 'n', long, value_name = "N,...", env = "KIPP_DECODE", default_value = "64", value_delimiter = ',', value_parser = args::bench_tokens)]
    decode: Vec<usize>,
    /// Positions in the cache before decoding starts
    #[arg(short = 'd', long, value_name = "N,...", env = "KIPP_DEPTH", default_value = "0", value_delimiter = ',', value_parser = args::bench_tokens)]
    depth: Vec<usize>,
    /// Sequences that decode together, one token each in a batch; tok/s are those of all
    #[arg(long, value_name = "N,...", env = "KIPP_PARALLEL", default_value = "1", value_delimiter = ',', value_parser = args::bench_sequences)]
    parallel: Vec<usize>,
    /// Runs of each case
    #[arg(long, value_name = "N", env = "KIPP_RUNS", default_value = "5", value_parser = args::bench_runs)]
    runs: usize,
    /// Print the results so
    #[arg(long, value_enum, value_name = "FORMAT", env = "KIPP_FORMAT", default_value = "md")]
    format: Format,
    /// The same as --format json
    #[arg(long, env = "KIPP_JSON", value_parser = FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    pub(crate) attention: AttentionArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    #[command(flatten)]
    pub(crate) step: StepArgs,
}

/// One case with all its runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseResult {
    pub(crate) name: String,
    /// Median of the runs.
    pub(crate) tok_s: f64,
    pub(crate) mad: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The limit that this case is held against: bare read in GB/s for decode, peak loop in GOP/s for prefill; median of
    /// the probes beside the runs.
    pub(crate) limit: f64,
    /// The part of it that the case reaches.
    pub(crate) share: f64,
    pub(crate) runs: Vec<MeasuredRun>,
    #[serde(skip)]
    pub(crate) case: Case,
}

/// A run between its probes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MeasuredRun {
    #[serde(flatten)]
    pub(crate) run: SingleRun,
    pub(crate) before: Limits,
    pub(crate) after: Limits,
}

impl RunArgs {
    /// What to measure, prompts first.
    fn cases(&self) -> Result<Vec<Case>, UsageError> {
        let mut cases: Vec<Case> = Vec::new();
        let prompts = self.prefill.iter().map(|&tokens| Case::Prefill { tokens });
        cases.extend(prompts.filter(|case| case.measured_tokens() > 0));
        for &sequences in &self.parallel {
            for &depth in &self.depth {
                let decode = self.decode.iter().map(|&tokens| Case::Decode { tokens, depth, sequences });
                cases.extend(decode.filter(|case| case.measured_tokens() > 0));
            }
        }
        if cases.is_empty() {
            return Err(UsageError::new("--prefill", "0 with --decode 0 leaves nothing to measure"));
        }
        Ok(cases)
    }

    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Measures all cases and prints them.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Outcome> {
    let cases = args.cases()?;
    let artifact = open::artifact(&args.model)?;
    let context = load::spec(&artifact, &args.attention)?.context();
    for case in &cases {
        single::check_context(*case, context)?;
    }
    let work = Work::new(&artifact, args.attention.kv, args.backend.activations);
    let results = measure(args, &cases, &work)?;
    report::text(&match args.format() {
        Format::Json => format::json(&results)?,
        Format::Md => format::table(&artifact, &results, &work),
        Format::LlamaBench => format::llama_bench(&artifact, &results),
    })?;
    Ok(Outcome::Done)
}

/// All runs of all cases: the cases in turn, so that a drift of the machine meets each of them.
fn measure(args: &RunArgs, cases: &[Case], work: &Work) -> anyhow::Result<Vec<CaseResult>> {
    let prober = prober(&args.backend, work.step_bytes())?;
    let mut runs: Vec<Vec<MeasuredRun>> = vec![Vec::new(); cases.len()];
    let mut before = prober.probe();
    for turn in 1..=args.runs {
        for (case, runs) in cases.iter().zip(&mut runs) {
            let run = process::single(*case)?;
            let after = prober.probe();
            report::note(&format!("run {turn} of {}: {case} {:.2} tok/s", args.runs, run.tok_s));
            runs.push(MeasuredRun { run, before, after: after.clone() });
            before = after;
        }
    }
    let results = cases.iter().zip(runs).map(|(case, runs)| CaseResult::new(*case, runs, work));
    results.collect::<Option<Vec<_>>>().context("no runs")
}

/// Probes with the kernels and threads that the runs will have.
pub(crate) fn prober(flags: &BackendArgs, bytes: f64) -> anyhow::Result<Prober> {
    let options = load::cpu_options(flags)?;
    let class = options.class.unwrap_or_else(KernelClass::best);
    let kernels = select(class).with_context(|| format!("{} cannot run here", class.name()))?;
    Prober::new(kernels, options.threads.unwrap_or_else(default_threads), bytes as u64)
}

impl CaseResult {
    fn new(case: Case, runs: Vec<MeasuredRun>, work: &Work) -> Option<CaseResult> {
        let rates: Vec<f64> = runs.iter().map(|run| run.run.tok_s).collect();
        let limits: Vec<f64> = runs.iter().map(|run| run.limit(case, work)).collect();
        let Summary { median: tok_s, mad, min, max } = Summary::of(&rates)?;
        let shares: Vec<f64> =
            rates.iter().zip(&limits).map(|(rate, limit)| work.share(case, *rate, *limit)).collect();
        Some(CaseResult {
            name: case.to_string(),
            tok_s,
            mad,
            min,
            max,
            limit: median(&limits)?,
            share: median(&shares)?,
            runs,
            case,
        })
    }
}

impl MeasuredRun {
    /// The limit that binds the case, as it was beside this run: the mean of before and after.
    pub(crate) fn limit(&self, case: Case, work: &Work) -> f64 {
        let of = |limits: &Limits| match bound(case) {
            Bound::Memory => limits.read_gb_s,
            Bound::Compute => work.peak(limits).map_or(f64::NAN, |peak| peak.gop_s),
        };
        (of(&self.before) + of(&self.after)) / 2.0
    }
}

/// The model's name beside results.
pub(crate) fn model_line(artifact: &Artifact) -> String {
    let registered = artifact.quick_registration().as_str();
    format!("{} ({registered}, {})", artifact.id(), artifact.scheme().name())
}
