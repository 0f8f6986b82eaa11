//! The page in a real browser: Debian's Chromium, driven by `page/drive.mjs` against `kipp serve` on kipp-tiny. It leaves
//! pictures in `target/page` for people to look at.

use anyhow::{Context as _, Result};

use crate::cargo_steps::without_warnings;
use crate::exec;
use crate::install;
use crate::steps::{Context, Report};

/// What drives the browser, and what judges how accessible the page is.
const PACKAGES: &[&str] = &["playwright-core@1.56.1", "axe-core@4.11.0"];

pub(crate) fn step(context: &Context) -> Result<Report> {
    let mut report = Report::default();
    install::chromium(context)?;
    let tools = install::npm(context, "page", PACKAGES)?;
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let pictures = context.target("page");
    install::folder(&pictures)?;
    let mut drive = exec::command("node", &["xtask/src/page/drive.mjs"], &context.root);
    drive.args([context.kipp().as_path(), tools.as_path(), pictures.as_path()]);
    let done = exec::succeed(drive).context("the page in Chromium")?;
    for line in done.stdout.lines() {
        report.say(line);
    }
    report.say(format!("pictures in {}, {:.1} s", pictures.display(), done.took.as_secs_f64()));
    Ok(report)
}
