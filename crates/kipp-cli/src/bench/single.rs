//! One run of one case in a process of its own: load, a warm-up that is not counted, the measured span, and what the
//! process knows about itself. Prints one JSON document, for `kipp bench run`.

use std::time::Instant;

use clap::Args;
use kipp::backend::BackendInfo;
use kipp::batch::Ask;
use kipp::kv::BLOCK_TOKENS;
use kipp::model::ModelOptions;
use serde::{Deserialize, Serialize};

use super::cases::Case;
use super::process;
use super::run::RunArgs;
use super::sequences::Sequences;
use crate::outcome::{Outcome, UsageError};
use crate::{load, open, report};

/// Decoded steps of the warm-up: the first one meets the output head and one row a batch for the first time.
pub(crate) const WARM_UP_STEPS: usize = 2;

/// Flags of the hidden `kipp bench single`.
#[derive(Args, Debug)]
pub(crate) struct SingleArgs {
    /// Which case, by its name
    #[arg(long)]
    case: Case,
    /// Those of `kipp bench run`; what chooses cases and output is not looked at
    #[command(flatten)]
    run: RunArgs,
}

/// What one process measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SingleRun {
    pub(crate) name: String,
    /// Tokens that the time counts.
    pub(crate) tokens: usize,
    pub(crate) ms: f64,
    pub(crate) tok_s: f64,
    /// From the start of the command to a model that is ready.
    pub(crate) load_ms: f64,
    /// From the start of the command to the first answer, that of the warm-up.
    pub(crate) first_answer_ms: f64,
    /// Milliseconds of each decode step; the whole prompt for a prefill.
    pub(crate) steps_ms: Vec<f64>,
    /// The most memory that the process had resident, where the system tells.
    pub(crate) peak_resident_bytes: Option<u64>,
    pub(crate) backend: SingleBackend,
}

/// What evaluated the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SingleBackend {
    pub(crate) name: String,
    pub(crate) kernels: String,
    pub(crate) activations: String,
    pub(crate) threads: usize,
    pub(crate) demoted: Vec<String>,
    pub(crate) kv: String,
    pub(crate) kv_blocks: usize,
    pub(crate) max_rows: usize,
}

/// Runs the case once.
pub(crate) fn run(args: &SingleArgs) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    process::end_with_stdin()?;
    let (case, flags) = (args.case, &args.run);
    let artifact = open::artifact(&flags.model)?;
    let spec = load::spec(&artifact, &flags.attention)?;
    check_context(case, spec.context())?;
    let mut loaded = load::forward(&artifact, spec, &flags.backend, room(case, flags))?;
    let load_ms = ms(started);

    let forward = &mut *loaded.forward;
    let backend = SingleBackend::of(forward);
    let mut sequences = Sequences::new(forward, case.sequences(), case.positions() + WARM_UP_STEPS);
    let (first_answer_ms, steps_ms) = match case {
        Case::Prefill { tokens } => {
            sequences.prefill(tokens, Ask::Argmax)?;
            let first_answer_ms = ms(started);
            sequences.truncate(0);
            let measured = Instant::now();
            sequences.prefill(tokens, Ask::Argmax)?;
            (first_answer_ms, vec![ms(measured)])
        }
        Case::Decode { tokens, depth, .. } => {
            sequences.prefill(depth, Ask::Nothing)?;
            sequences.decode()?;
            let first_answer_ms = ms(started);
            for _ in 1..WARM_UP_STEPS {
                sequences.decode()?;
            }
            sequences.truncate(depth);
            let mut steps_ms = Vec::with_capacity(tokens);
            for _ in 0..tokens {
                let step = Instant::now();
                sequences.decode()?;
                steps_ms.push(ms(step));
            }
            (first_answer_ms, steps_ms)
        }
    };
    let (tokens, total_ms) = (case.measured_tokens(), steps_ms.iter().sum::<f64>());
    report::json(&SingleRun {
        name: case.to_string(),
        tokens,
        ms: total_ms,
        tok_s: tokens as f64 / total_ms * 1e3,
        load_ms,
        first_answer_ms,
        steps_ms,
        peak_resident_bytes: peak_resident_bytes(),
        backend,
    })?;
    Ok(Outcome::Done)
}

/// A case that does not fit the model's positions is wrong usage, told before anything is measured.
pub(crate) fn check_context(case: Case, context: usize) -> Result<(), UsageError> {
    if case.positions() <= context {
        return Ok(());
    }
    let flag = match case {
        Case::Prefill { .. } => "--prefill",
        Case::Decode { .. } => "--depth",
    };
    let reason = format!("{case} needs {} positions, the model has {context}", case.positions());
    Err(UsageError::new(flag, reason))
}

/// Room for the case, in steps that are no longer than it.
fn room(case: Case, flags: &RunArgs) -> ModelOptions {
    let positions = case.positions() + WARM_UP_STEPS;
    ModelOptions {
        kv: flags.attention.kv,
        kv_blocks: case.sequences() * positions.div_ceil(BLOCK_TOKENS),
        max_rows: flags.step.step_tokens.min(positions).max(case.sequences()),
    }
}

impl SingleBackend {
    /// What this is.
    pub(super) fn of(forward: &dyn kipp::model::Forward) -> SingleBackend {
        let BackendInfo { name, kernels, activations, threads, demoted } = forward.describe();
        SingleBackend {
            name: name.to_owned(),
            kernels,
            activations,
            threads,
            demoted,
            kv: forward.kv_scheme().name().to_owned(),
            kv_blocks: forward.kv_blocks(),
            max_rows: forward.max_rows(),
        }
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// `VmHWM` of this process; only Linux tells.
pub(super) fn peak_resident_bytes() -> Option<u64> {
    peak_resident_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The same of any process's status.
pub(super) fn peak_resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_wrong_usage() {
        assert!(check_context(Case::Prefill { tokens: 64 }, 64).is_ok());
        let error = check_context(Case::Prefill { tokens: 65 }, 64).unwrap_err().to_string();
        assert!(error.contains("--prefill") && error.contains("65"), "{error}");
        let error = check_context(Case::Decode { tokens: 8, depth: 60, sequences: 2 }, 64).unwrap_err();
        assert!(error.to_string().contains("--depth"), "{error}");
    }
}
