//! Where a refused value came from. A person who set a variable long ago and typed no flag must be told of the variable.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// What was typed and set.
pub(crate) struct Origin<'a> {
    /// All commands.
    pub(crate) root: &'a Command,
    /// The arguments, the program's name first.
    pub(crate) line: &'a [OsString],
    /// Whether a variable is set.
    pub(crate) is_set: &'a dyn Fn(&str) -> bool,
}

impl Origin<'_> {
    /// The variable that gave the value of `flag`, such as `--ctx`; `None` where the flag was typed.
    pub(crate) fn variable(&self, flag: &str) -> Option<String> {
        let long = flag.split(' ').next()?.strip_prefix("--")?;
        let command = self.command();
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(long))?;
        let variable = argument.get_env()?.to_str()?;
        ((self.is_set)(variable) && !self.is_typed(argument)).then(|| variable.to_owned())
    }

    /// What clap says, and what it does not know: the variable, and how `bench` takes its model.
    pub(crate) fn explain(&self, mut error: clap::Error) -> clap::Error {
        let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return error };
        let tip = match error.kind() {
            ErrorKind::UnknownArgument if self.has_positional_model() && names_model(argument) => {
                "the model stands by itself, without a flag".to_owned()
            }
            _ => match self.variable(argument) {
                Some(variable) => format!("the value is that of the variable {variable}"),
                None => return error,
            },
        };
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        error
    }

    /// The subcommand that was typed.
    fn command(&self) -> &Command {
        let names = self.line.iter().skip(1);
        let mut command = self.root;
        for name in names {
            match command.find_subcommand(name) {
                Some(below) => command = below,
                None => break,
            }
        }
        command
    }

    fn is_typed(&self, argument: &Arg) -> bool {
        self.line.iter().map(|word| word.to_string_lossy()).any(|word| {
            let long = word.strip_prefix("--").map(|word| word.split('=').next());
            let short = word.strip_prefix('-').and_then(|word| word.chars().next()).filter(|c| *c != '-');
            (long.is_some() && long.flatten() == argument.get_long())
                || (short.is_some() && short == argument.get_short())
        })
    }

    fn has_positional_model(&self) -> bool {
        self.command().get_positionals().any(|argument| argument.get_id() == "model")
    }
}

fn names_model(argument: &str) -> bool {
    argument == "-m" || argument == "--model"
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn variable(line: &[&str], set: &str, flag: &str) -> Option<String> {
        let line: Vec<OsString> = ["kipp"].iter().chain(line).map(OsString::from).collect();
        let origin = Origin { root: &Cli::command(), line: &line, is_set: &|name| name == set };
        origin.variable(flag)
    }

    #[test]
    fn a_value_that_nobody_typed_came_from_its_variable() {
        let max_tokens = Some("KIPP_MAX_TOKENS".to_owned());
        assert_eq!(variable(&["run", "hi"], "KIPP_MAX_TOKENS", "--max-tokens <N>"), max_tokens);
        for typed in ["--max-tokens=3", "--max-tokens", "-n", "-n3"] {
            assert_eq!(variable(&["run", "hi", typed], "KIPP_MAX_TOKENS", "--max-tokens"), None, "{typed}");
        }
        assert_eq!(variable(&["run", "hi"], "KIPP_CTX", "--max-tokens"), None);
        assert_eq!(variable(&["bench", "run"], "KIPP_RUNS", "--runs"), Some("KIPP_RUNS".to_owned()));
        assert_eq!(variable(&["show"], "KIPP_RUNS", "--runs"), None);
        assert_eq!(variable(&["run"], "KIPP_PROMPT", "PROMPT"), None);
    }
}
