//! The steps that are one call of cargo: format, lints, documentation, build, licences. Warnings are errors.

use std::process::Command;

use anyhow::{Result, bail};

use crate::exec::{self, Done};
use crate::install;
use crate::steps::{Context, Report};

pub(crate) fn fmt(context: &Context) -> Result<Report> {
    exec::succeed(exec::cargo(&["fmt", "--all", "--check"], &context.root))?;
    Ok(Report::default())
}

/// Fuzz targets build only with their feature, so it is switched on here.
pub(crate) fn clippy(context: &Context) -> Result<Report> {
    install::cxx(context)?;
    let args = ["clippy", "--quiet", "--workspace", "--all-targets", "--features", "kipp-fuzz/libfuzzer"];
    let mut clippy = exec::cargo(&args, &context.root);
    clippy.args(["--", "-D", "warnings"]);
    exec::succeed(clippy)?;
    Ok(Report::default())
}

/// Libraries only: the program's page would lie over that of the library of the same name.
pub(crate) fn docs(context: &Context) -> Result<Report> {
    let mut doc = exec::cargo(&["doc", "--quiet", "--workspace", "--lib", "--no-deps"], &context.root);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    exec::succeed(doc)?;
    Ok(Report::default())
}

pub(crate) fn build(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--workspace", "--all-targets"])?;
    Ok(Report::default())
}

/// A build that fails if the compiler or cargo warned. Flags that deny warnings would make cargo build everything anew.
pub(crate) fn without_warnings(context: &Context, args: &[&str]) -> Result<Done> {
    fail_on_warnings(exec::cargo(args, &context.root))
}

/// The same of a command of cargo that is already made.
pub(crate) fn fail_on_warnings(cargo: Command) -> Result<Done> {
    let shown = exec::shown(&cargo);
    let done = exec::succeed(cargo)?;
    if done.stderr.lines().any(|line| line.starts_with("warning")) {
        bail!("`{shown}` warned\n{}", done.stderr);
    }
    Ok(done)
}

/// Advisories are left out: their database is a download from outside the registries, which CI may not reach.
pub(crate) fn deny(context: &Context) -> Result<Report> {
    install::cargo_deny(context)?;
    let args = ["deny", "--workspace", "--all-features", "check", "licenses", "bans", "sources"];
    exec::succeed(exec::cargo(&args, &context.root))?;
    let mut report = Report::default();
    report.skip(
        "advisories",
        "their database is no package of a registry; run `cargo deny check advisories` by hand",
    );
    Ok(report)
}
