//! The soak of `crates/kipp/tests/it/engine/soak.rs`, for a minute in CI and ten in the full run. It is a test, so that
//! what `cargo test` has built runs it.

use anyhow::{Context as _, Result};

use crate::exec;
use crate::steps::{Context, Report};

/// The test, and the variable that tells it for how long.
const TEST: &str = "engine::soak::soak";
const SECONDS_VARIABLE: &str = "KIPP_SOAK_SECONDS";

/// Seconds in CI, and in the full run.
const SECONDS: u64 = 60;
const SECONDS_FULL: u64 = 600;

pub(crate) fn step(context: &Context) -> Result<Report> {
    let seconds = if context.full { SECONDS_FULL } else { SECONDS };
    // The whole workspace, as `cargo test` builds it: of one package alone, dependencies would have other features and be
    // built anew.
    let args =
        ["test", "--quiet", "--workspace", "--test", "it", "--", "--ignored", "--exact", TEST, "--nocapture"];
    let mut soak = exec::cargo(&args, &context.root);
    soak.env(SECONDS_VARIABLE, seconds.to_string());
    let done = exec::succeed(soak)?;
    // A filter that fits no test passes too.
    let line = figures(&done.stdout).with_context(|| format!("the soak told nothing\n{}", done.output()))?;
    let mut report = Report::default();
    report.say(line);
    if line.contains("resident unknown") {
        report.skip("memory", "this system keeps no account of it in /proc");
    }
    Ok(report)
}

/// What the test told, behind its name.
fn figures(output: &str) -> Option<&str> {
    output.lines().find_map(|line| Some(line.split_once("soak: ")?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_found() {
        assert_eq!(figures("running 1 test\nsoak: 60 s, 9 requests\n.\n"), Some("60 s, 9 requests"));
        assert_eq!(figures("running 0 tests\n"), None);
    }
}
