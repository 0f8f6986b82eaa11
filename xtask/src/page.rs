//! The page in a real browser: Debian's Chromium, driven by `page/drive.mjs` against `kipp serve` on kipp-tiny. It leaves
//! pictures in `target/page` for people to look at.

use anyhow::{Context as _, Result};

use crate::cargo_steps::without_warnings;
use crate::exec;
use crate::install::{self, Node};
use crate::steps::{Context, Report};

pub(crate) fn step(context: &Context) -> Result<Report> {
    let mut report = Report::default();
    install::chromium(context)?;
    let node = Node::pinned(context, "tools/page", &context.root.join("xtask/src/page"))?;
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let pictures = context.target("page");
    install::folder(&pictures)?;
    let mut drive = node.script("drive.mjs", &[]);
    drive.args([context.kipp().as_path(), pictures.as_path()]);
    let done = exec::succeed(drive).context("the page in Chromium")?;
    for line in done.stdout.lines() {
        report.say(line);
    }
    report.say(format!("pictures in {}, {:.1} s", pictures.display(), done.took.as_secs_f64()));
    Ok(report)
}
