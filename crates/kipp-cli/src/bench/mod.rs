//! `kipp bench`: how fast a model is on this machine, beside what the machine can do at most.
//!
//! `cases` names what is measured, `sequences` evaluates it, `single` is one run in a process of its own, `run` starts
//! those processes in turn, `limits` probes the machine between them, and `format` prints.

mod cases;
mod format;
mod limits;
mod process;
mod run;
mod sequences;
mod single;
mod statistics;
mod work;

use clap::Subcommand;

use crate::outcome::Outcome;

/// One variant a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure prefill and decode of a model, each run in a process of its own
    Run(Box<run::RunArgs>),
    /// One run of one case, for `kipp bench run`; prints its JSON
    #[command(hide = true)]
    Single(Box<single::SingleArgs>),
}

/// Does what was asked for.
pub(crate) fn run(command: BenchCommand) -> anyhow::Result<Outcome> {
    match command {
        BenchCommand::Run(args) => run::run(&args),
        BenchCommand::Single(args) => single::run(&args),
    }
}
