//! `kipp verify`: the gates, held on the user's own machine, file and flags.

use std::path::PathBuf;

use clap::Args;
use kipp::ModelSpec;
use kipp::artifact::Artifact;
use kipp::backend::oracle::OracleForward;
use kipp::gates::{self, Gate, Loader, Reference, Subject, Variant};
use kipp::model::ModelOptions;
use serde::Serialize;

use crate::args::{AttentionArgs, BackendArgs, BackendName, JsonArg, ModelArg};
use crate::load::{BackendReport, ModelReport};
use crate::outcome::Outcome;
use crate::{load, open, report};

/// Flags of `kipp verify`. The gates choose their own lengths and steps, so there is no flag for them.
#[derive(Args, Debug)]
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
    passed: usize,
    failed: usize,
    model: ModelReport,
    backend: BackendReport,
}

#[derive(Serialize)]
struct GateReport {
    name: String,
    value: f64,
    bound: f64,
    detail: String,
    passed: bool,
}

/// Holds all gates; the exit code says whether every one passed.
pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<Outcome> {
    let artifact = open::artifact(&args.model.model)?;
    let spec = load::spec(&artifact, &args.attention)?;
    let reference =
        args.reference.as_deref().map(|folder| Reference::open(folder, spec.vocab_size)).transpose()?;
    // One position is enough to learn what the flags choose, and to refuse what they cannot have.
    let room = ModelOptions::for_one_sequence(args.attention.kv, 1, 1);
    let chosen = load::forward(&artifact, spec.clone(), &args.backend, room)?;
    let backend = BackendReport::new(&*chosen.forward);
    drop(chosen);

    let (mut passed, mut failed, mut printed) = (0, 0, Ok(()));
    let mut seen = |gate: &Gate| {
        if gate.passed {
            passed += 1;
        } else {
            failed += 1;
        }
        if !args.json.json && printed.is_ok() {
            printed = report::text(&line(gate));
        }
    };
    let gates = hold(args, &artifact, &spec, reference.as_ref(), &mut seen)?;
    if args.json.json {
        let gates = gates.into_iter().map(GateReport::from).collect();
        printed = report::json(&VerifyReport {
            gates,
            passed,
            failed,
            model: ModelReport::new(&artifact),
            backend,
        });
    } else if printed.is_ok() {
        printed = report::text(&format!("{passed} passed, {failed} failed\n"));
    }
    // First the gates: whether somebody reads the table does not change what it says.
    if failed > 0 {
        if let Err(error) = printed {
            report::note(&format!("error: {error:#}"));
        }
        return Ok(Outcome::GateFailed);
    }
    printed.map(|()| Outcome::Done)
}

fn hold(
    args: &VerifyArgs,
    artifact: &Artifact,
    spec: &ModelSpec,
    reference: Option<&Reference>,
    seen: &mut dyn FnMut(&Gate),
) -> anyhow::Result<Vec<Gate>> {
    let cpu = load::cpu_options(&args.backend)?;
    let on_cpu = gates::on_cpu(artifact, spec, cpu);
    let on_oracle = |variant: Variant| -> Result<Box<dyn kipp::model::Forward>, kipp::model::LoadError> {
        let Variant { kv, kv_blocks, max_rows, .. } = variant;
        Ok(Box::new(OracleForward::new(artifact, spec.clone(), ModelOptions { kv, kv_blocks, max_rows })))
    };
    let is_cpu = args.backend.backend != BackendName::Oracle;
    let loader: &Loader<'_> = if is_cpu { &on_cpu } else { &on_oracle };
    let activations = args.backend.activations;
    let subject = Subject { artifact, spec, load: loader, activations, kv: args.attention.kv };
    Ok(gates::run(&subject, is_cpu.then_some(cpu), reference, seen)?)
}

/// One row of the table, printed as the gate falls: holding all of them takes minutes on a large model.
fn line(gate: &Gate) -> String {
    let verdict = if gate.passed { "ok" } else { "FAILED" };
    let row = [verdict.to_owned(), format!("{:.2e}", gate.value), format!("<= {:.0e}", gate.bound)];
    let [verdict, value, bound] = row;
    format!("{verdict:<6}  {value:>8}  {bound:<8}  {:<56}  {}\n", gate.name, gate.detail)
}

impl From<Gate> for GateReport {
    fn from(gate: Gate) -> GateReport {
        let Gate { name, bound, value, detail, passed } = gate;
        GateReport { name, value, bound, detail, passed }
    }
}
