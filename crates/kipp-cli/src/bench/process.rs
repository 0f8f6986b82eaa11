//! A run in a fresh process: this program starts itself again with the flags that it was given. The run ends with the one
//! that started it, however that ends: it holds the other end of the run's standard input, which the system closes.

use std::ffi::OsString;
use std::io::Read;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;

use super::cases::Case;
use super::single::SingleRun;
use crate::interrupt;

/// Runs one case once.
pub(crate) fn single(case: Case) -> anyhow::Result<SingleRun> {
    again(&case.to_string(), arguments(case, std::env::args_os()))
}

/// Runs the command that this process is once, as `kipp bench once ...`.
pub(crate) fn once<R: DeserializeOwned>(what: &str) -> anyhow::Result<R> {
    again(what, once_arguments(std::env::args_os()))
}

/// Runs the hidden command of this name once, with the flags of the command that this process is.
pub(crate) fn under<R: DeserializeOwned>(what: &str, name: &[&str]) -> anyhow::Result<R> {
    again(what, renamed_arguments(name, std::env::args_os()))
}

fn again<R: DeserializeOwned>(what: &str, arguments: Vec<OsString>) -> anyhow::Result<R> {
    let program = std::env::current_exe().context("where is this program?")?;
    let mut run = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let held_open = run.stdin.take();
    let output = run.wait_with_output().with_context(|| program.display().to_string())?;
    drop(held_open);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        match reason(&said) {
            "" => bail!("{what}: {}", output.status),
            reason => bail!("{what}: {reason}"),
        }
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{what}: what the run printed"))
}

/// What a run that failed said: its error, without the notes before it; all of them where there is none.
fn reason(said: &str) -> &str {
    let from = match said.starts_with("error: ") {
        true => Some(0),
        false => said.find("\nerror: ").map(|at| at + 1),
    };
    from.map_or(said, |at| &said[at + "error: ".len()..]).trim_end()
}

/// `kipp bench run ...` as the command of one run. Flags are repeated as they were given, so that none can be forgotten;
/// variables are inherited.
fn arguments(case: Case, own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let case = format!("--case={case}").into();
    let single = ["bench".into(), "single".into(), case];
    single.into_iter().chain(own.skip(3)).collect()
}

/// Ends this process when its standard input does. An error where the system has no thread for it.
pub(crate) fn end_with_stdin() -> std::io::Result<()> {
    let wait = || {
        let mut input = std::io::stdin().lock();
        // Nobody writes anything; what fails to be read has ended too.
        while input.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        interrupt::end_at_once()
    };
    std::thread::Builder::new().name("kipp-parent".to_owned()).spawn(wait)?;
    Ok(())
}

/// `kipp bench NAME ...` under another name.
fn renamed_arguments(name: &[&str], own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let name = name.iter().map(OsString::from);
    std::iter::once("bench".into()).chain(name).chain(own.skip(3)).collect()
}

/// `kipp bench NAME ...` as the command of one run.
fn once_arguments(own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    ["bench".into(), "once".into()].into_iter().chain(own.skip(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_run_that_failed_is_its_error() {
        assert_eq!(reason("backend: cpu\nseed: 3\nerror: no room\nat all\n"), "no room\nat all");
        assert_eq!((reason("error: none\n"), reason("Killed\n"), reason("")), ("none", "Killed", ""));
    }

    #[test]
    fn flags_are_repeated_as_they_were_given() {
        let own = ["kipp", "bench", "run", "a.gguf", "--threads", "2"].map(OsString::from);
        let case = Case::Decode { tokens: 64, depth: 4096, sequences: 1 };
        let expected = ["bench", "single", "--case=tg64 @ d4096", "a.gguf", "--threads", "2"];
        assert_eq!(arguments(case, own.into_iter()), expected.map(OsString::from));
        let own = ["kipp", "bench", "prefix", "a.gguf", "-p", "9"].map(OsString::from);
        let expected = ["bench", "once", "prefix", "a.gguf", "-p", "9"];
        assert_eq!(once_arguments(own.into_iter()), expected.map(OsString::from));
        let own = ["kipp", "bench", "serve", "a.gguf", "-n", "9"].map(OsString::from);
        let expected = ["bench", "bare", "--run=1", "a.gguf", "-n", "9"];
        assert_eq!(renamed_arguments(&["bare", "--run=1"], own.into_iter()), expected.map(OsString::from));
    }
}
