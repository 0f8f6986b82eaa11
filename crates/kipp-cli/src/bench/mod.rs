//! `kipp bench`: how fast a model is on this machine, beside what the machine can do at most.
//!
//! `cases` names what is measured, `sequences` evaluates it, `single` is one run in a process of its own, `schedule` starts
//! those processes in turn, `limits` probes the machine between them, `format` prints, and `record` keeps what counts.
//! `kernels` measures parts of the forward pass alone, `engine` what only an engine does: prefixes, drafts, many requests.
//! `serve` measures a server as its clients see it.

mod cases;
mod engine;
mod format;
mod kernels;
mod limits;
mod process;
mod record;
mod run;
mod schedule;
mod sequences;
mod serve;
mod single;
mod statistics;
mod work;

use clap::Subcommand;

use crate::outcome::Outcome;

/// One variant a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure prefill and decode of a model, each run in a process of its own
    #[command(
        after_help = "Every run is a process of its own with a warm-up that is not counted. limit is what the machine \
        could do beside the\nruns: the bare read of the model's bytes for decode, a loop in registers for prefill. Without \
        --record nothing is refused."
    )]
    Run(Box<run::RunArgs>),
    /// Measure products and attention alone, in every kernel class, beside the machine's limits
    Kernels(Box<kernels::KernelsArgs>),
    /// Measure the time to the first token of a long prompt: from nothing, and once the KV cache knows it
    Prefix(Box<engine::PrefixArgs>),
    /// Measure what drafts bring: beside plain decoding, checked always, and only where they pay
    Spec(Box<engine::SpecBenchArgs>),
    /// Measure prefill and the pauses of answers beside it, for several lengths of a step
    Steps(Box<engine::StepsArgs>),
    /// Measure requests that are answered together, beside one alone
    Parallel(Box<engine::ParallelArgs>),
    /// Measure what clients see of a server: times to and between tokens, tokens a second, goodput
    #[command(
        after_help = "Cases: closedN has N clients with one request at a time each, choicesN one client that asks for N \
        choices, openR\nrequests that arrive at random, R a second. Answers are streamed. Servers, if several, are measured \
        in turn, A B B A;\ntheir ratios are those of runs side by side. TTFT: to the first token. TPOT: each token after it. \
        ITL: between pieces of\ntext. less client: without the processor time that this program took itself."
    )]
    Serve(Box<serve::ServeBenchArgs>),
    /// One run of one of those above; prints its JSON
    #[command(hide = true, subcommand)]
    Once(engine::OnceCommand),
    /// One run of one case, for `kipp bench run`; prints its JSON
    #[command(hide = true)]
    Single(Box<single::SingleArgs>),
    /// The server of `kipp bench serve`, which ends with whoever started it
    #[command(hide = true)]
    Serving(Box<serve::ServingArgs>),
    /// One run of `kipp bench serve` on the engine alone; prints its JSON
    #[command(hide = true)]
    Bare(Box<serve::BareArgs>),
}

/// Does what was asked for.
pub(crate) fn run(command: BenchCommand) -> anyhow::Result<Outcome> {
    match command {
        BenchCommand::Run(args) => run::run(&args),
        BenchCommand::Kernels(args) => kernels::run(&args),
        BenchCommand::Prefix(args) => engine::run(&*args),
        BenchCommand::Spec(args) => engine::run(&*args),
        BenchCommand::Steps(args) => engine::run(&*args),
        BenchCommand::Parallel(args) => engine::run(&*args),
        BenchCommand::Serve(args) => serve::run(&args),
        BenchCommand::Once(command) => engine::once(command),
        BenchCommand::Single(args) => single::run(&args),
        BenchCommand::Serving(args) => serve::serving(&args),
        BenchCommand::Bare(args) => serve::bare(&args),
    }
}
