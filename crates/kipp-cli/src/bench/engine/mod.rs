//! Measurements through the engine, each a file: `prefix`, `spec`, `steps`, `parallel`. They share everything else with
//! `bench run`: a run is a process of its own between two probes, medians count, records are refused for the same reasons.
//!
//! `frame` starts those processes and keeps the records, `result` is what they come to, `requests` drives an engine.

mod frame;
mod parallel;
mod prefix;
mod replay;
mod requests;
mod result;
mod spec;
mod steps;
mod texts;

use clap::{ArgAction, Args, Subcommand};
use kipp::ModelSpec;
use kipp::artifact::Artifact;
use kipp::model::{Forward, ModelOptions};
use serde_json::Value;

use super::record::RecordArgs;
use super::schedule::Protocol;
use super::work::Bound;
use crate::args::{self, AttentionArgs, BackendArgs, EMBEDDED_MODEL};
use crate::outcome::{Outcome, UsageError};

pub(crate) use frame::run;
pub(crate) use parallel::ParallelArgs;
pub(crate) use prefix::PrefixArgs;
pub(crate) use spec::SpecBenchArgs;
pub(crate) use steps::StepsArgs;

pub(super) use result::{CaseResult, CaseRun, Column, EngineRun};

/// The hidden `kipp bench once ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum OnceCommand {
    Prefix(Box<PrefixArgs>),
    Spec(Box<SpecBenchArgs>),
    Steps(Box<StepsArgs>),
    Parallel(Box<ParallelArgs>),
}

/// One run, in the process that it has for itself.
pub(crate) fn once(command: OnceCommand) -> anyhow::Result<Outcome> {
    match command {
        OnceCommand::Prefix(args) => frame::once(&*args),
        OnceCommand::Spec(args) => frame::once(&*args),
        OnceCommand::Steps(args) => frame::once(&*args),
        OnceCommand::Parallel(args) => frame::once(&*args),
    }
}

/// The flags that these measurements share.
#[derive(Args, Debug)]
pub(crate) struct EngineArgs {
    /// A .gguf file, a Hugging Face folder, or kipp-tiny, which is part of the program
    #[arg(env = "KIPP_MODEL", default_value = EMBEDDED_MODEL)]
    model: String,
    /// Runs
    #[arg(long, value_name = "N", env = "KIPP_RUNS", default_value = "5", value_parser = args::bench_runs)]
    runs: usize,
    /// What happens before the runs [default: cool-start for a record, else nothing]
    #[arg(long, value_enum, value_name = "NAME", env = "KIPP_PROTOCOL")]
    protocol: Option<Protocol>,
    /// Print one JSON document instead, all runs included
    #[arg(long, env = "KIPP_JSON", value_parser = args::value::switch, action = ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    attention: AttentionArgs,
    #[command(flatten)]
    backend: BackendArgs,
}

impl EngineArgs {
    fn protocol(&self) -> Option<Protocol> {
        self.protocol.or(self.record.record.is_some().then_some(Protocol::CoolStart))
    }
}

/// The model that is measured.
pub(crate) struct Subject {
    artifact: Artifact,
    /// As flags change it.
    spec: ModelSpec,
}

/// A figure that decides whether a record counts, by how far its runs lie apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judged {
    /// Both sides were measured in one run, under the same conditions.
    Ratio(&'static str),
    /// Divided by the probe beside the run.
    Rate(&'static str),
}

/// One of these measurements, as its flags describe it.
pub(crate) trait EngineBench {
    /// `bench prefix`.
    const WHAT: &'static str;
    /// Which probe tells the state of the machine.
    const BOUND: Bound;
    /// The figures of a case, in the order in which a table has them.
    const COLUMNS: &'static [Column];
    const JUDGED: Judged;
    /// What the flags come to on a model.
    type Plan;

    fn args(&self) -> &EngineArgs;

    /// Holds the flags against the model. What cannot be measured is refused here, before anything is loaded.
    fn plan(&self, subject: &Subject) -> anyhow::Result<Self::Plan>;

    /// Room that the model needs.
    fn room(&self, plan: &Self::Plan) -> ModelOptions;

    /// One run: all cases, on a model with that room.
    fn measure(
        &self,
        plan: &Self::Plan,
        subject: &Subject,
        forward: Box<dyn Forward>,
    ) -> anyhow::Result<Vec<CaseRun>>;

    /// What a record says beside the results.
    fn settings(&self, plan: &Self::Plan) -> Value;
}

impl Subject {
    /// Tokens of a prompt of `wanted` tokens, else of `default` or as many as fit; `least` are what there is to measure.
    fn prompt_tokens(
        &self,
        wanted: Option<usize>,
        default: usize,
        least: usize,
    ) -> Result<usize, UsageError> {
        // One position for the token after it.
        let most = self.spec.context().saturating_sub(1);
        let tokens = wanted.unwrap_or(default.min(most));
        let reason = match tokens {
            _ if tokens > most => {
                format!("{tokens} and an answer do not fit the model's {} positions", most + 1)
            }
            _ if tokens < least => format!("{tokens} leave nothing to measure: at least {least}"),
            _ => return Ok(tokens),
        };
        Err(UsageError::new("--prefill", reason))
    }
}
