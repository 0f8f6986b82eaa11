//! Running other programs: output is captured, and shown only when it has something to say.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// What a finished program left: its exit code (none if a signal ended it), its two streams, and its wall time.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Done {
    /// Both streams, for a person who looks for the fault.
    pub(crate) fn output(&self) -> String {
        let (out, err) = (self.stdout.trim_end(), self.stderr.trim_end());
        match (out.is_empty(), err.is_empty()) {
            (true, _) => err.to_owned(),
            (_, true) => out.to_owned(),
            _ => format!("{err}\n{out}"),
        }
    }
}

/// A command that reads nothing and whose output is kept.
pub(crate) fn command(program: impl AsRef<OsStr>, args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The cargo that runs us, or the one on the path.
pub(crate) fn cargo(args: &[&str], dir: &Path) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args, dir)
}

/// Runs to the end; an error only if the program cannot start.
pub(crate) fn finish(mut command: Command) -> Result<Done> {
    let started = Instant::now();
    let output = command.output().with_context(|| format!("cannot start {}", shown(&command)))?;
    Ok(Done {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: started.elapsed(),
    })
}

/// Runs to the end; an exit code other than 0 is an error that carries everything the program said.
pub(crate) fn succeed(command: Command) -> Result<Done> {
    let shown = shown(&command);
    let done = finish(command)?;
    if done.code != Some(0) {
        bail!("`{shown}` ended with {}\n{}", ending(done.code), done.output());
    }
    Ok(done)
}

/// An exit code in words.
pub(crate) fn ending(code: Option<i32>) -> String {
    code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"))
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        let arg = arg.to_string_lossy();
        let quote = arg.is_empty() || arg.contains([' ', '"', '$', ';']);
        line.push_str(&if quote { format!(" '{arg}'") } else { format!(" {arg}") });
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_an_error_with_its_output() {
        let line = "echo seen; echo also >&2; exit 3";
        let error = succeed(command("sh", &["-c", line], Path::new("."))).err().map(|e| e.to_string());
        assert_eq!(
            error.as_deref(),
            Some("`sh -c 'echo seen; echo also >&2; exit 3'` ended with exit code 3\nalso\nseen")
        );
    }
}
