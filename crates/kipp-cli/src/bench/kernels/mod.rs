//! `kipp bench kernels`: isolated projections and attention at a model's shapes, in every kernel class of this machine,
//! each beside the limits of that class: the loop in registers and the bare read.

mod attention;
mod input;
mod products;
mod table;
mod timing;

use anyhow::{Context, Result};
use clap::Args;
use kipp::ModelSpec;
use kipp::backend::cpu::{CpuBackend, CpuOptions, default_threads};
use kipp::kv::KvScheme;
use kipp_kernels::probe::PeakLoop;
use kipp_kernels::{Activations, KernelClass, Kernels, Scheme, select};
use serde_json::{Value, json};

use super::limits::{Limits, Prober};
use super::record::{Measurement, RecordArgs, Recorder};
use crate::args::{self, EMBEDDED_MODEL};
use crate::outcome::{Outcome, UsageError};
use crate::{load, open, report};
use attention::AttentionCase;
use products::{Projection, Weights};
use table::{Measured, Probed, Work};

/// Weights that take turns are at most so many: more than second caches hold, and on most machines than the last one. A
/// bare read of as many bytes stands beside them, so what a larger cache still holds helps both.
const MOST_ROTATED_BYTES: u64 = 128 << 20;
/// And at least so many, where the model is small.
const LEAST_ROTATED_BYTES: u64 = 16 << 20;

/// A case that would take plain Rust longer than this is left out, and said so.
const LONGEST_SECONDS: f64 = 2.0;

/// Flags of `kipp bench kernels`.
#[derive(Args, Debug)]
pub(crate) struct KernelsArgs {
    /// The model whose shapes are taken; its weights are not
    #[arg(env = "KIPP_MODEL", default_value = EMBEDDED_MODEL)]
    model: String,
    /// Weight schemes, or all [default: the model's]
    #[arg(long, value_name = "SCHEME,...", env = "KIPP_SCHEMES", value_delimiter = ',', value_parser = args::value::weight_schemes)]
    schemes: Vec<args::value::Schemes>,
    /// Kernel classes [default: all that this machine runs]
    #[arg(long, value_name = "CLASS,...", env = "KIPP_CLASSES", value_delimiter = ',', value_parser = args::value::class)]
    classes: Vec<KernelClass>,
    /// Rows of the input; 1,2,4,8,32,128,512 shows the whole curve
    #[arg(long, value_name = "M,...", env = "KIPP_TOKENS", default_value = "1,8,128", value_delimiter = ',', value_parser = args::value::step_tokens)]
    tokens: Vec<usize>,
    /// Positions before attention's rows
    #[arg(short = 'd', long, value_name = "N,...", env = "KIPP_DEPTH", default_value = "0,512,4096", value_delimiter = ',', value_parser = args::bench_tokens)]
    depth: Vec<usize>,
    /// Threads beside one [default: as everywhere]
    #[arg(long, value_name = "N", env = "KIPP_THREADS", value_parser = args::value::threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    /// Coding of activations [default: each scheme's]
    #[arg(long, value_name = "CODING", env = "KIPP_ACTIVATIONS", value_parser = args::value::activations)]
    activations: Option<Activations>,
    /// Storage of keys and values
    #[arg(long, value_name = "SCHEME", env = "KIPP_KV", default_value = "bf16", value_parser = args::value::kv)]
    kv: KvScheme,
    /// Print one JSON document instead
    #[arg(long, env = "KIPP_JSON", value_parser = args::value::switch, action = clap::ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    record: RecordArgs,
}

/// Measures every class in turn.
pub(crate) fn run(args: &KernelsArgs) -> Result<Outcome> {
    let artifact = open::artifact(&args.model)?;
    let classes = args.classes()?;
    let recorder = Recorder::new("bench kernels", &args.record, &artifact)?;
    if let Some(recorder) = &recorder
        && let Some(refused) = recorder.refuses(None)?
    {
        return Ok(refused);
    }
    load::tell_many_threads(args.threads);
    let threads = args.threads.unwrap_or_else(default_threads);
    let schemes = args.schemes(artifact.scheme());
    if let Some(coding) =
        args.activations.filter(|asked| schemes.iter().all(|it| asked.for_scheme(*it) != *asked))
    {
        let reason = format!("{} is not taken by any of the schemes", coding.name());
        return Err(UsageError::new("--activations", reason).into());
    }
    let twice = artifact.file().bytes.saturating_mul(2);
    let mut bench = Bench {
        rotated_bytes: twice.clamp(LEAST_ROTATED_BYTES, MOST_ROTATED_BYTES) as usize,
        spec: artifact.spec(),
        schemes,
        args,
        // One thread and all: once where these are the same.
        threads: if threads == 1 { vec![1] } else { vec![1, threads] },
        measured: Vec::new(),
    };
    for class in classes {
        bench.class(class)?;
    }
    report::text(&match args.json {
        true => table::json(&bench.measured)?,
        false => table::markdown(&artifact, args.kv, &bench.measured),
    })?;
    let Some(recorder) = recorder else { return Ok(Outcome::Done) };
    recorder.write(Measurement {
        name: "kernels".to_owned(),
        backend: None,
        settings: json!({"rotated_bytes": bench.rotated_bytes, "tokens": args.tokens, "kv": args.kv.name()}),
        protocol: Value::Null,
        runs: None,
        dispersion: table::dispersion(&bench.measured),
        results: serde_json::to_value(&bench.measured).context("the result as JSON")?,
        fingerprint: None,
    })
}

impl KernelsArgs {
    fn classes(&self) -> Result<Vec<KernelClass>, UsageError> {
        let available = KernelClass::available();
        match self.classes.iter().find(|class| !available.contains(class)) {
            Some(class) => {
                let names: Vec<&str> = available.iter().map(|class| class.name()).collect();
                let reason =
                    format!("{} cannot run on this machine, which runs {}", class.name(), names.join(", "));
                Err(UsageError::new("--classes", reason))
            }
            None if self.classes.is_empty() => Ok(available),
            None => Ok(self.classes.clone()),
        }
    }

    fn schemes(&self, of_model: Scheme) -> Vec<Scheme> {
        if self.schemes.is_empty() {
            return vec![of_model];
        }
        self.schemes.iter().flat_map(|schemes| schemes.0.iter().copied()).collect()
    }
}

/// What is measured, and what came of it.
struct Bench<'a> {
    args: &'a KernelsArgs,
    spec: &'a ModelSpec,
    schemes: Vec<Scheme>,
    threads: Vec<usize>,
    rotated_bytes: usize,
    measured: Vec<Measured>,
}

impl Bench<'_> {
    fn class(&mut self, class: KernelClass) -> Result<()> {
        let kernels = select(class).with_context(|| format!("{} cannot run here", class.name()))?;
        let mut machines = Vec::new();
        for &threads in &self.threads {
            let options = CpuOptions {
                threads: Some(threads),
                class: Some(class),
                activations: self.args.activations,
                ..CpuOptions::default()
            };
            let prober = Prober::new(kernels, threads, self.rotated_bytes as u64)?;
            machines.push(Machine {
                backend: CpuBackend::new(options)?,
                prober,
                kernels,
                threads,
                last: None,
            });
        }
        for &scheme in &self.schemes.clone() {
            for projection in Projection::of(self.spec) {
                self.projection(&mut machines, scheme, &projection)?;
            }
        }
        self.attention(&mut machines)
    }

    fn projection(
        &mut self,
        machines: &mut [Machine],
        scheme: Scheme,
        projection: &Projection,
    ) -> Result<()> {
        // Prepared weights belong to a class, not to a number of threads.
        let Some(all) = machines.last_mut() else { return Ok(()) };
        let weights = Weights::prepare(&mut all.backend, projection, scheme, self.rotated_bytes)?;
        for machine in machines {
            let loops = [PeakLoop::of(machine.kernels.coding(scheme, self.activations()))];
            machine.last = None;
            for &tokens in &self.args.tokens {
                let name = format!("{} {} M={tokens}", scheme.name(), projection.name);
                if machine.skips(&name, projection.operations(tokens)) {
                    continue;
                }
                let before = machine.before();
                let times = weights.measure(&mut machine.backend, self.spec, tokens)?;
                let work = Work {
                    time: times.rotating,
                    operations: times.operations,
                    bytes: weights.set_bytes as f64,
                };
                self.add(machine.measured(name, &loops, work, before).reused(times.reused));
            }
        }
        Ok(())
    }

    fn attention(&mut self, machines: &mut [Machine]) -> Result<()> {
        let prompt = self.args.tokens.iter().copied().max().unwrap_or(1);
        let loops = attention::loops(self.args.kv);
        for machine in machines {
            machine.last = None;
            for &depth in &self.args.depth {
                for rows in std::collections::BTreeSet::from([1, prompt]) {
                    let case = AttentionCase { depth, rows };
                    let name = format!("{} attention M={rows} @ d{depth}", self.args.kv.name());
                    if machine.skips(&name, case.operations(self.spec)) {
                        continue;
                    }
                    let before = machine.before();
                    let work =
                        case.measure(&mut machine.backend, self.spec, self.args.kv, self.rotated_bytes)?;
                    self.add(machine.measured(name, loops, work, before));
                }
            }
        }
        Ok(())
    }

    /// The coarsest coding that is allowed.
    fn activations(&self) -> Activations {
        self.args.activations.unwrap_or(Activations::S8)
    }

    fn add(&mut self, measured: Measured) {
        report::note(&measured.line());
        self.measured.push(measured);
    }
}

/// One class with a number of threads.
struct Machine {
    backend: CpuBackend,
    prober: Prober,
    kernels: &'static dyn Kernels,
    threads: usize,
    /// The probe after the last case, where nothing has happened since.
    last: Option<Limits>,
}

impl Machine {
    /// Whether plain Rust would take too long. Lanes never do.
    fn skips(&self, name: &str, operations: f64) -> bool {
        // What the scalar class reached on every machine met so far, in operations a second.
        const SCALAR_RATE: f64 = 0.5e9;
        let too_long =
            self.kernels.class() == KernelClass::Scalar && operations / SCALAR_RATE > LONGEST_SECONDS;
        if too_long {
            report::note(&format!("left out: scalar {name}, which takes seconds a call"));
        }
        too_long
    }

    /// The limits before a case.
    fn before(&mut self) -> Limits {
        self.last.take().unwrap_or_else(|| self.prober.probe())
    }

    /// A case with the limits beside it.
    fn measured(&mut self, name: String, loops: &[PeakLoop], work: Work, before: Limits) -> Measured {
        let after = self.prober.probe();
        let probed = Probed { before: &before, after: &after };
        let measured = Measured::new((self.kernels.class(), self.threads), name, loops, work, probed);
        self.last = Some(after);
        measured
    }
}
