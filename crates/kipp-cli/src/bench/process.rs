//! A run in a fresh process: this program starts itself again with the flags that it was given.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::cases::Case;
use super::single::SingleRun;

/// Runs one case once.
pub(crate) fn single(case: Case) -> anyhow::Result<SingleRun> {
    let program = std::env::current_exe().context("where is this program?")?;
    let output = Command::new(&program)
        .args(arguments(case, std::env::args_os()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| program.display().to_string())?;
    if !output.status.success() {
        bail!("{case}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{case}: what the run printed"))
}

/// `kipp bench run ...` as the command of one run. Flags are repeated as they were given, so that none can be forgotten;
/// variables are inherited.
fn arguments(case: Case, own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let single = ["bench".into(), "single".into(), format!("--case={case}").into()];
    single.into_iter().chain(own.skip(3)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_repeated_as_they_were_given() {
        let own = ["kipp", "bench", "run", "a.gguf", "--threads", "2"].map(OsString::from);
        let case = Case::Decode { tokens: 64, depth: 4096, sequences: 1 };
        let expected = ["bench", "single", "--case=tg64 @ d4096", "a.gguf", "--threads", "2"];
        assert_eq!(arguments(case, own.into_iter()), expected.map(OsString::from));
    }
}
