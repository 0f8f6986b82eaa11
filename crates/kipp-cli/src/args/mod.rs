//! The command line: its subcommands, and the flags that several of them share. Every flag has an environment variable
//! `KIPP_` and its name in capitals; flags go before the environment. What a flag means is its command's business.

mod engine;
mod sampling;
mod value;

use clap::{Parser, Subcommand};

pub(crate) use engine::{
    BackendArgs, BackendName, ContextArgs, EMBEDDED_MODEL, JsonArg, ModelArg, RopeScaling,
};
pub(crate) use sampling::SamplingArgs;
pub(crate) use value::{max_tokens, window, written_scheme};

use crate::{convert, detokenize, logits, perplexity, run, show, tokenize, verify};

/// Runs Qwen3 models on this machine.
#[derive(Debug, Parser)]
#[command(name = "kipp", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Results go to standard output, everything else to standard error.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a gate not met, 130 interrupted.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One variant a subcommand; each is a file of its own.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Complete a prompt
    Run(Box<run::RunArgs>),
    /// Print what a model is: dimensions, schemes, template, registered or not
    Show(show::ShowArgs),
    /// Turn text, or a chat, into token ids
    Tokenize(tokenize::TokenizeArgs),
    /// Turn token ids into text
    Detokenize(detokenize::DetokenizeArgs),
    /// Write the logits of given token ids to a file
    Logits(logits::LogitsArgs),
    /// Check a model and backend against the oracle, or against reference files
    Verify(verify::VerifyArgs),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::PerplexityArgs),
    /// Write a model as a GGUF file
    Convert(convert::ConvertArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_its_environment_variable() {
        for command in Cli::command().get_subcommands() {
            for flag in
                command.get_arguments().filter(|arg| arg.get_long().is_some() && arg.get_id() != "help")
            {
                let long = flag.get_long().unwrap_or_default();
                let expected = format!("KIPP_{}", long.to_uppercase().replace('-', "_"));
                let found = flag.get_env().map(|name| name.to_string_lossy().into_owned());
                assert_eq!(found, Some(expected), "{} --{long}", command.get_name());
            }
        }
    }
}
