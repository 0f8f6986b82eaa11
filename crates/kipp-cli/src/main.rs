//! The program `kipp`: arguments, environment, terminal and files around the engine, which is the library `kipp`.
//!
//! One file a subcommand. `args` says what the command line is, `open` and `load` turn its flags into a model,
//! `generate` is one completion, `report` prints, and `outcome` decides the exit code.

mod args;
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
mod show;
mod stop;
mod timings;
mod tokenize;
mod verify;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use args::{Cli, Command};
use outcome::Outcome;

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(help_or_error) => {
            // Nobody reads it: the exit code still tells.
            let _ = help_or_error.print();
            return ExitCode::from(u8::try_from(help_or_error.exit_code()).unwrap_or(u8::MAX));
        }
    };
    let (code, message) = outcome::exit(dispatch(command));
    if let Some(message) = message {
        report::note(&format!("error: {message}"));
    }
    code
}

fn dispatch(command: Command) -> anyhow::Result<Outcome> {
    interrupt::install().context("taking over Ctrl-C")?;
    match command {
        Command::Run(args) => run::run(*args),
        Command::Show(args) => show::run(&args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Detokenize(args) => detokenize::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Perplexity(args) => perplexity::run(&args),
        Command::Convert(args) => convert::run(&args),
    }
}
