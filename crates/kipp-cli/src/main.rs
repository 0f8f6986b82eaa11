//! The program `kipp`: arguments, environment, terminal and files around the engine, which is the library `kipp`.
//!
//! One file a subcommand. `args` has the flags that several share, `open` and `load` turn flags into a model, `generate`
//! is one completion, `report` prints, and `outcome` decides the exit code.

mod args;
mod bench;
mod chat;
mod convert;
mod detokenize;
mod generate;
mod input;
mod interrupt;
mod load;
mod logits;
mod memory;
mod open;
mod outcome;
mod output;
mod perplexity;
mod progress;
mod prompt;
mod report;
mod run;
mod saved;
mod serve;
mod show;
mod speculation;
mod timings;
mod tokenize;
mod verify;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};

use args::Origin;
use outcome::Outcome;

/// Runs Qwen3 models on this machine.
#[derive(Debug, Parser)]
#[command(name = "kipp", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Results go to standard output, everything else to standard error.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a gate not met, 130 interrupted.\n\
    Every flag has a variable, shown with it; flags beat the environment.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One variant a subcommand; each is a file of its own.
#[derive(Debug, Subcommand)]
enum Command {
    /// Complete a prompt
    #[command(after_help = "finish_reason of --json:\n  \
        stop         an end token or a stop string\n  \
        length       --max-tokens, or the context is full\n  \
        interrupted  Ctrl-C; the document is whole, the exit code 130")]
    Run(Box<run::RunArgs>),
    /// Talk with a model, turn by turn
    #[command(
        after_help = "In a terminal: /help lists the commands, a backslash at the end of a line goes on in the next,\n\
        Ctrl-C stops an answer, Ctrl-D ends the chat.\n\
        Otherwise each line of standard input is a message or a command, and answers alone go to standard output."
    )]
    Chat(Box<chat::ChatArgs>),
    /// Answer OpenAI's interface over HTTP
    #[command(after_help = "The address is printed on standard output once requests are taken.\n\
        SIGTERM or Ctrl-C: nothing new is taken, running answers may end; a second Ctrl-C ends at once.")]
    Serve(Box<serve::ServeArgs>),
    /// Print what a model is: dimensions, schemes, template, registered or not
    Show(show::ShowArgs),
    /// Turn text, or a chat, into token ids
    Tokenize(tokenize::TokenizeArgs),
    /// Turn token ids into text
    Detokenize(detokenize::DetokenizeArgs),
    /// Write the logits of given token ids to a file
    Logits(logits::LogitsArgs),
    /// Check a model against the oracle, in every kernel class, and against reference files
    Verify(verify::VerifyArgs),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::PerplexityArgs),
    /// Write a model as a GGUF file
    Convert(convert::ConvertArgs),
    /// Measure how fast a model is, beside what the machine can do
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

fn main() -> ExitCode {
    let (root, line) = (Cli::command(), std::env::args_os().collect::<Vec<_>>());
    let is_set = |variable: &str| std::env::var_os(variable).is_some();
    let origin = Origin { root: &root, line: &line, is_set: &is_set };
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(help_or_error) => {
            let help_or_error = origin.explain(help_or_error);
            // Nobody reads it: the exit code still tells.
            let _ = help_or_error.print();
            return ExitCode::from(u8::try_from(help_or_error.exit_code()).unwrap_or(u8::MAX));
        }
    };
    let (code, message) = outcome::exit(dispatch(command), |flag| origin.variable(flag));
    if let Some(message) = message {
        report::note(&format!("error: {message}"));
    }
    code
}

fn dispatch(command: Command) -> anyhow::Result<Outcome> {
    interrupt::install().context("taking over Ctrl-C")?;
    match command {
        Command::Run(args) => run::run(*args),
        Command::Chat(args) => chat::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Detokenize(args) => detokenize::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Perplexity(args) => perplexity::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Bench(command) => bench::run(command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// All commands that people see, those below `bench` included.
    fn commands() -> Vec<clap::Command> {
        let cli = Cli::command();
        let below = cli.get_subcommands().flat_map(clap::Command::get_subcommands);
        cli.get_subcommands().chain(below).filter(|command| !command.is_hide_set()).cloned().collect()
    }

    #[test]
    fn every_flag_has_its_environment_variable() {
        for command in commands() {
            for flag in
                command.get_arguments().filter(|arg| arg.get_long().is_some() && arg.get_id() != "help")
            {
                let long = flag.get_long().unwrap_or_default();
                let expected = match (command.get_name(), long) {
                    // `logits --ids` names a file; a variable must mean one thing.
                    ("perplexity", "ids") => "KIPP_PERPLEXITY_IDS".to_owned(),
                    // `run --session` is a file, that of records a name.
                    (_, "session") if command.get_arguments().any(|arg| arg.get_id() == "record") => {
                        "KIPP_RECORD_SESSION".to_owned()
                    }
                    // A list, each a case.
                    ("steps", "step-tokens") => "KIPP_BENCH_STEP_TOKENS".to_owned(),
                    // Where `run --spec off` is set, there would be nothing to measure.
                    ("spec", "spec") => "KIPP_BENCH_SPEC".to_owned(),
                    _ => format!("KIPP_{}", long.to_uppercase().replace('-', "_")),
                };
                let found = flag.get_env().map(|name| name.to_string_lossy().into_owned());
                assert_eq!(found, Some(expected), "{} --{long}", command.get_name());
            }
        }
    }

    #[test]
    fn a_variable_is_a_value_or_a_switch_in_every_command() {
        let mut known = std::collections::BTreeMap::new();
        for command in commands() {
            for argument in command.get_arguments() {
                let Some(variable) = argument.get_env() else { continue };
                let takes_value = argument.get_action().takes_values();
                let before = *known.entry(variable.to_owned()).or_insert(takes_value);
                assert_eq!(before, takes_value, "{variable:?} in {}", command.get_name());
            }
        }
    }
}
