//! `kipp bench run`: prefill and decode of one model. Every run is a process of its own, so that none inherits caches,
//! threads or a clock from the one before; the limits of the machine are probed before and after each.

use anyhow::{Context, Result};
use clap::{ArgAction, Args, ValueEnum};
use kipp::artifact::Artifact;
use kipp::backend::cpu::default_threads;
use kipp_kernels::probe::PeakLoop;
use kipp_kernels::{Activations, KernelClass, Kernels, Scheme, select};
use serde_json::{Value, json};

use super::cases::Case;
use super::format;
use super::limits::Prober;
use super::record::{Fingerprint, Measurement, RecordArgs, Recorder};
use super::schedule::{CaseResult, Protocol, Schedule};
use super::single::{self, WARM_UP_STEPS};
use super::work::Work;
use crate::args::{self, AttentionArgs, BackendArgs, BackendName, EMBEDDED_MODEL, StepArgs};
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
    /// What happens before the runs [default: cool-start for a record, else nothing]
    #[arg(long, value_enum, value_name = "NAME", env = "KIPP_PROTOCOL")]
    protocol: Option<Protocol>,
    /// Print the results so
    #[arg(long, value_enum, value_name = "FORMAT", env = "KIPP_FORMAT", default_value = "md")]
    format: Format,
    /// The same as --format json
    #[arg(long, env = "KIPP_JSON", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    pub(crate) attention: AttentionArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    #[command(flatten)]
    pub(crate) step: StepArgs,
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

    fn protocol(&self) -> Option<Protocol> {
        self.protocol.or(self.record.record.is_some().then_some(Protocol::CoolStart))
    }

    /// What a record says of a case beside its results.
    fn settings(&self, case: Case) -> Value {
        let (prompt_tokens, depth, decoded) = match case {
            Case::Prefill { tokens } => (tokens, 0, 0),
            Case::Decode { tokens, depth, .. } => (0, depth, tokens),
        };
        json!({
            "prompt_tokens": prompt_tokens,
            "depth_tokens": depth,
            "generated_tokens": decoded,
            "sequences": case.sequences(),
            "step_tokens": self.step.step_tokens,
            "ids": "kipp::gates::gate_tokens",
            "sampling": "argmax of every decoded row and of the prompt's last",
            "warm_up": match case {
                Case::Prefill { .. } => "the same prompt once, in the same process".to_owned(),
                Case::Decode { .. } => format!("{WARM_UP_STEPS} steps at the same depth, in the same process"),
            },
            "runs": self.runs,
        })
    }
}

/// Measures all cases and prints them.
pub(crate) fn run(args: &RunArgs) -> Result<Outcome> {
    let cases = args.cases()?;
    let artifact = open::artifact(&args.model)?;
    let context = load::spec(&artifact, &args.attention)?.context();
    for case in &cases {
        single::check_context(*case, context)?;
    }
    load::check_flags(&artifact, &args.backend)?;
    load::tell_many_threads(args.backend.threads);
    let recorder = Recorder::new("bench run", &args.record, &artifact)?;
    if let Some(recorder) = &recorder
        && let Some(refused) = recorder.refuses(Some(args.runs))?
    {
        return Ok(refused);
    }
    let (work, prober) = work_and_prober(&artifact, &args.attention, &args.backend)?;
    let schedule = Schedule {
        prober: &prober,
        work: &work,
        protocol: args.protocol(),
        runs: args.runs,
        repeats: recorder.is_some(),
    };
    let results = schedule.measure(&cases)?;
    report::text(&match args.format() {
        Format::Json => format::json(&results)?,
        Format::Md => format::table(&artifact, &results, &work),
        Format::LlamaBench => format::llama_bench(&artifact, &results),
    })?;
    recorder.map_or(Ok(Outcome::Done), |recorder| record(args, &artifact, &recorder, &results))
}

/// One file a case.
fn record(
    args: &RunArgs,
    artifact: &Artifact,
    recorder: &Recorder<'_>,
    results: &[CaseResult],
) -> Result<Outcome> {
    let fingerprint = fingerprint(artifact, &args.attention, &args.backend)?;
    recorder.write_all(results.iter().map(|result| {
        Ok(Measurement {
            name: result.name.clone(),
            backend: result.runs.first().map(|run| run.run.backend.clone()),
            settings: args.settings(result.case),
            protocol: Protocol::describe(args.protocol()),
            results: serde_json::to_value(result).context("the result as JSON")?,
            dispersion: Some(result.dispersion),
            runs: Some((result.native_runs(), args.runs)),
            fingerprint: fingerprint.clone(),
        })
    }))
}

/// Of what the runs computed with; the oracle has none.
pub(super) fn fingerprint(
    artifact: &Artifact,
    attention: &AttentionArgs,
    backend: &BackendArgs,
) -> Result<Option<Fingerprint>> {
    if backend.backend == BackendName::Oracle {
        return Ok(None);
    }
    let spec = load::spec(artifact, attention)?;
    let options = load::cpu_options(backend)?;
    Fingerprint::measure(artifact, &spec, options, attention.kv).map(Some)
}

/// What a step costs, and probes with the kernels and threads that the runs will have.
pub(super) fn work_and_prober(
    artifact: &Artifact,
    attention: &AttentionArgs,
    backend: &BackendArgs,
) -> Result<(Work, Prober)> {
    let class = load::cpu_options(backend)?.class.unwrap_or_else(KernelClass::best);
    let kernels = select(class).with_context(|| format!("{} cannot run here", class.name()))?;
    let work = Work::new(artifact, attention.kv, peak_loop(backend, kernels, artifact.scheme()));
    let threads = backend.threads.unwrap_or_else(default_threads);
    let prober = Prober::new(kernels, threads, work.step_bytes() as u64)?;
    Ok((work, prober))
}

/// What the products of most weights are made of. The oracle's are plain loops over f32.
fn peak_loop(flags: &BackendArgs, kernels: &dyn Kernels, scheme: Scheme) -> PeakLoop {
    match flags.backend {
        BackendName::Oracle => PeakLoop::F32Fma,
        _ => PeakLoop::of(kernels.coding(scheme, flags.activations.unwrap_or(Activations::S8))),
    }
}
