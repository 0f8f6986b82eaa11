//! How a subcommand ends, and the exit code of each end. Scripts rely on these numbers.

use std::process::ExitCode;

use crate::report::OutputError;

/// What a subcommand that did not fail came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did what was asked.
    Done,
    /// A gate or bar was not met.
    GateFailed,
    /// Ctrl-C, after what was done so far was kept.
    Interrupted,
}

/// The exit code of an interrupted program, as shells expect it: 128 + SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
/// A bad file, model, message or id list.
const FAILED: u8 = 1;
/// Wrong flags, or values out of range.
const USAGE: u8 = 2;
/// A gate or bar was not met.
const GATE_FAILED: u8 = 3;

/// A wrong use that only shows when the model is known; clap reports all others.
#[derive(Debug)]
pub(crate) struct UsageError {
    /// The flag, as a person types it.
    flag: &'static str,
    reason: String,
}

impl UsageError {
    pub(crate) fn new(flag: &'static str, reason: impl Into<String>) -> UsageError {
        UsageError { flag, reason: reason.into() }
    }
}

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.flag, self.reason)
    }
}

impl std::error::Error for UsageError {}

/// The exit code of a result, and what to tell the person, if anything. `variable` names what set a flag that was not
/// typed.
pub(crate) fn exit(
    result: anyhow::Result<Outcome>,
    variable: impl Fn(&str) -> Option<String>,
) -> (ExitCode, Option<String>) {
    match result {
        Ok(Outcome::Done) => (ExitCode::SUCCESS, None),
        Ok(Outcome::GateFailed) => (ExitCode::from(GATE_FAILED), None),
        Ok(Outcome::Interrupted) => (ExitCode::from(INTERRUPTED), None),
        // The reader of standard output has what it wanted.
        Err(error) if is_broken_output(&error) => (ExitCode::SUCCESS, None),
        Err(error) => {
            let usage = error.chain().find_map(|cause| cause.downcast_ref::<UsageError>());
            let code = if usage.is_some() { USAGE } else { FAILED };
            let origin = usage.and_then(|usage| variable(usage.flag));
            let origin = origin.map_or_else(String::new, |variable| format!(" (set by {variable})"));
            (ExitCode::from(code), Some(escape_control(&format!("{error:#}{origin}"))))
        }
    }
}

fn is_broken_output(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(OutputError::is_broken_pipe)
}

/// Messages quote names and keys from files; nothing in them may steer a terminal.
pub(crate) fn escape_control(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => escaped.push(c),
            c if c.is_control() => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::*;

    #[test]
    fn each_end_has_its_code() {
        let code = |result| format!("{:?}", exit(result, |_| None).0);
        let expected = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(Ok(Outcome::Done)), expected(0));
        assert_eq!(code(Ok(Outcome::GateFailed)), expected(3));
        assert_eq!(code(Ok(Outcome::Interrupted)), expected(130));
        assert_eq!(code(Err(anyhow::anyhow!("no such model"))), expected(1));
        let usage = Err(UsageError::new("--ctx", "too long")).context("run");
        assert_eq!(code(usage), expected(2));
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(code(Err(OutputError(broken()).into())), expected(0));
        assert_eq!(code(Err(OutputError(broken())).context("run")), expected(0));
        assert_eq!(code(Err(OutputError(io::Error::from(io::ErrorKind::StorageFull)).into())), expected(1));
        assert_eq!(code(Err(broken()).context("out.f32")), expected(1));
    }

    #[test]
    fn messages_cannot_steer_a_terminal() {
        let refused = || Err(UsageError::new("--ctx", "\u{1b}[2J\u{7}").into());
        let (_, message) = exit(refused(), |_| None);
        assert_eq!(message.as_deref(), Some("--ctx: \\u{1b}[2J\\u{7}"));
        let (_, message) = exit(refused(), |flag| Some(format!("the variable of {flag}")));
        assert!(message.unwrap().ends_with(" (set by the variable of --ctx)"));
    }
}
