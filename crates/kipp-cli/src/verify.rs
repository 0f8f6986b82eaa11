//! `kipp verify`: the gates, held on the user's own machine, file and flags, in every kernel class that it runs.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use kipp::ModelSpec;
use kipp::artifact::Artifact;
use kipp::backend::cpu::CpuOptions;
use kipp::backend::oracle::OracleForward;
use kipp::gates::{self, Expected, Gate, Loader, Reference, Subject, Variant};
use kipp::model::{Forward, LoadError, ModelOptions};
use kipp_kernels::KernelClass;
use serde::Serialize;

use crate::args::{AttentionArgs, BackendArgs, BackendName, JsonArg, ModelArg};
use crate::load::{BackendReport, ModelReport};
use crate::outcome::Outcome;
use crate::{load, open, report};

/// Elsewhere only the best runs.
const KERNELS: &str =
    "Kernel class, or matmul=CLASS,attention=CLASS [default: each that this machine runs, in turn]";

/// Flags of `kipp verify`. The gates choose their own lengths and steps, so there is no flag for them.
#[derive(Args, Debug)]
#[command(mut_arg("kernels", |kernels| kernels.help(KERNELS)))]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Compare with another implementation too: tokens.u32 and logits.f32 (last position), or a manifest.json and its files
    #[arg(long, value_name = "DIR", env = "KIPP_REFERENCE")]
    reference: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    attention: AttentionArgs,
    #[command(flatten)]
    backend: BackendArgs,
}

#[derive(Serialize)]
struct VerifyReport {
    gates: Vec<GateReport>,
    classes: Vec<ClassReport>,
    /// Kernel classes of other machines; empty where the flags ask for one class.
    absent: Vec<&'static str>,
    passed: usize,
    failed: usize,
    model: ModelReport,
    backend: BackendReport,
}

#[derive(Serialize)]
struct GateReport {
    kernels: String,
    name: String,
    value: f64,
    bound: f64,
    detail: String,
    passed: bool,
}

/// The verdict on one kernel class.
#[derive(Serialize)]
struct ClassReport {
    kernels: String,
    passed: usize,
    failed: usize,
    /// Of the logits: `equal` to the frozen one or `differs` from it; `none frozen` of this file, class and storage of
    /// keys and values.
    fingerprint: &'static str,
    seconds: f64,
}

/// Holds all gates; the exit code says whether every one passed.
pub(crate) fn run(args: &VerifyArgs) -> Result<Outcome> {
    let artifact = open::artifact(&args.model.model)?;
    let spec = load::spec(&artifact, &args.attention)?;
    let reference =
        args.reference.as_deref().map(|folder| Reference::open(folder, spec.vocab_size)).transpose()?;
    // One position is enough to learn what the flags choose, and to refuse what they cannot have.
    let room = ModelOptions::for_one_sequence(args.attention.kv, 1, 1);
    let chosen = load::forward(&artifact, spec.clone(), &args.backend, room)?;
    let backend = BackendReport::new(&*chosen.forward);
    drop(chosen);
    if args.backend.backend == BackendName::Oracle {
        report::note("note: the oracle begins anew with each step: this takes minutes");
    }

    let paths = paths(&args.backend, &backend)?;
    let expected = Expected::compute(&artifact, &spec, reference.as_ref())?;
    let mut table = Table { json: args.json.json, gates: Vec::new(), classes: Vec::new(), printed: Ok(()) };
    if !expected.gates().is_empty() {
        table.begin("oracle");
        expected.gates().iter().for_each(|gate| table.add("oracle", gate));
    }
    for path in &paths {
        table.hold(path, args, (&artifact, &spec), &expected)?;
    }
    let every_class = args.backend.kernels.is_none() && args.backend.backend != BackendName::Oracle;
    let runs = |class: &KernelClass| !every_class || paths.iter().any(|path| path.kernels == class.name());
    let absent = KernelClass::ALL.iter().filter(|class| !runs(class)).map(|class| class.name()).collect();
    table.end(ModelReport::new(&artifact), backend, absent)
}

/// One way to evaluate the model.
struct Path {
    kernels: String,
    /// `None` for the oracle.
    cpu: Option<CpuOptions>,
}

/// What the flags ask for; every kernel class of this machine, products and attention alike, where they ask for none.
fn paths(flags: &BackendArgs, chosen: &BackendReport) -> Result<Vec<Path>> {
    let one = |cpu| vec![Path { kernels: chosen.kernels.clone(), cpu }];
    if flags.backend == BackendName::Oracle {
        return Ok(one(None));
    }
    let options = load::cpu_options(flags)?;
    if flags.kernels.is_some() {
        return Ok(one(Some(options)));
    }
    let of_class = |class: KernelClass| Path {
        kernels: class.name().to_owned(),
        cpu: Some(CpuOptions { class: Some(class), attention: Some(class), ..options }),
    };
    Ok(KernelClass::available().into_iter().map(of_class).collect())
}

/// The verdicts, printed as the gates fall: holding all of them takes minutes on a large model.
struct Table {
    json: bool,
    gates: Vec<GateReport>,
    classes: Vec<ClassReport>,
    printed: Result<()>,
}

impl Table {
    /// Holds the gates of one path.
    fn hold(
        &mut self,
        path: &Path,
        args: &VerifyArgs,
        (artifact, spec): (&Artifact, &ModelSpec),
        expected: &Expected<'_>,
    ) -> Result<()> {
        let started = Instant::now();
        let on_cpu = gates::on_cpu(artifact, spec, path.cpu.unwrap_or_default());
        let on_oracle = |variant: Variant| -> Result<Box<dyn Forward>, LoadError> {
            let Variant { kv, kv_blocks, max_rows, .. } = variant;
            Ok(Box::new(OracleForward::new(artifact, spec.clone(), ModelOptions { kv, kv_blocks, max_rows })))
        };
        let loader: &Loader<'_> = if path.cpu.is_some() { &on_cpu } else { &on_oracle };
        let (activations, kv) = (args.backend.activations, args.attention.kv);
        let subject = Subject { artifact, spec, load: loader, activations, kv };
        self.begin(&path.kernels);
        let gates = gates::run(&subject, path.cpu, expected, &mut |gate| self.add(&path.kernels, gate))?;
        let class = ClassReport::new(&path.kernels, &gates, started);
        self.print(&format!("{}\n", class.line()));
        self.classes.push(class);
        Ok(())
    }

    fn begin(&mut self, kernels: &str) {
        self.print(&format!("{kernels}:\n"));
    }

    fn add(&mut self, kernels: &str, gate: &Gate) {
        self.print(&line(gate));
        let Gate { name, bound, value, detail, passed } = gate.clone();
        self.gates.push(GateReport { kernels: kernels.to_owned(), name, value, bound, detail, passed });
    }

    fn print(&mut self, text: &str) {
        if !self.json && self.printed.is_ok() {
            self.printed = report::text(text);
        }
    }

    /// The total. Whether somebody reads the table does not change what it says.
    fn end(
        mut self,
        model: ModelReport,
        backend: BackendReport,
        absent: Vec<&'static str>,
    ) -> Result<Outcome> {
        let passed = self.gates.iter().filter(|gate| gate.passed).count();
        let failed = self.gates.len() - passed;
        if self.json {
            let Table { gates, classes, .. } = self;
            let document = VerifyReport { gates, classes, absent, passed, failed, model, backend };
            self.printed = report::json(&document);
        } else {
            if !absent.is_empty() {
                self.print(&format!("not on this machine: {}\n", absent.join(", ")));
            }
            self.print(&format!("all: {passed} passed, {failed} failed\n"));
        }
        if failed > 0 {
            if let Err(error) = self.printed {
                report::note(&format!("error: {error:#}"));
            }
            return Ok(Outcome::GateFailed);
        }
        self.printed.map(|()| Outcome::Done)
    }
}

impl ClassReport {
    fn new(kernels: &str, gates: &[Gate], started: Instant) -> ClassReport {
        let passed = gates.iter().filter(|gate| gate.passed).count();
        let fingerprint = match gates.iter().find(|gate| gate.name == gates::FINGERPRINT) {
            Some(gate) if gate.passed => "equal",
            Some(_) => "differs",
            None => "none frozen",
        };
        let (failed, seconds) = (gates.len() - passed, started.elapsed().as_secs_f64());
        ClassReport { kernels: kernels.to_owned(), passed, failed, fingerprint, seconds }
    }

    fn line(&self) -> String {
        let ClassReport { kernels, passed, failed, fingerprint, seconds } = self;
        format!("{kernels}: {passed} passed, {failed} failed, fingerprint {fingerprint} ({seconds:.1} s)")
    }
}

/// One row of the table.
fn line(gate: &Gate) -> String {
    let verdict = if gate.passed { "ok" } else { "FAILED" };
    let row = [verdict.to_owned(), format!("{:.2e}", gate.value), format!("<= {:.0e}", gate.bound)];
    let [verdict, value, bound] = row;
    format!("{verdict:<6}  {value:>8}  {bound:<8}  {:<56}  {}\n", gate.name, gate.detail)
}
