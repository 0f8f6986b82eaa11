//! Arm without an Arm machine: the kernels' tests and the program, built for 64-bit Arm and run by QEMU's user emulation.
//! It shows that the bits are right, nothing about speed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cargo_steps::fail_on_warnings;
use crate::exec;
use crate::install;
use crate::json::Json;
use crate::pool;
use crate::smoke;
use crate::steps::{Context, Report};

/// Part that is left out where nothing can be built for Arm.
pub(crate) const ALL_OF_IT: &str = "everything for Arm";
/// Part that is left out where programs for Arm can be checked, not run.
pub(crate) const RUNNING: &str = "running on Arm";

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Where Debian puts Arm's C library.
const SYSTEM: &str = "/usr/aarch64-linux-gnu";

/// Processors that QEMU plays, and the class that must be chosen on each: one without DotProd, one without I8MM, one
/// with everything.
const PROCESSORS: &[(&str, &str)] = &[("cortex-a53", "scalar"), ("cortex-a76", "neon"), ("max", "neon-i8mm")];

/// Kernel classes and models whose gates are held; the fingerprints among them are those of the other machines.
const GATES: &[(&str, &str)] = &[
    ("neon", "kipp-tiny"),
    ("neon", "testdata/quantized/kipp-tiny-q8_0.gguf"),
    ("neon-i8mm", "kipp-tiny"),
    ("neon-i8mm", "testdata/quantized/kipp-tiny-q8_0.gguf"),
];

pub(crate) fn step(context: &Context) -> Result<Report> {
    let mut report = Report::default();
    if cfg!(target_arch = "aarch64") {
        report.skip(ALL_OF_IT, "this machine is one: `cargo test` and `gates` ran its classes");
        return Ok(report);
    }
    if let Err(error) = install::rust_target(context, TARGET) {
        report.skip(ALL_OF_IT, format!("NOT EVEN TYPE-CHECKED, no standard library for {TARGET}: {error:#}"));
        return Ok(report);
    }
    let lints = ["clippy", "--quiet", "--target", TARGET, "-p", "kipp-kernels", "--", "-D", "warnings"];
    exec::succeed(exec::cargo(&lints, &context.root))?;
    if let Err(error) = install::arm_emulation(context) {
        report.skip(RUNNING, format!("ONLY TYPE-CHECKED, no linker or no emulator: {error:#}"));
        return Ok(report);
    }
    let (tests, seconds) = build(context)?;
    report.say(format!("build: {seconds:.1} s"));
    let took = exec::succeed(emulated(context, "max", &tests))?.took;
    report.say(format!("kernels' tests: {:.1} s", took.as_secs_f64()));
    for line in chosen_classes(context)? {
        report.say(line);
    }
    report.say_all(pool::each(GATES, |gates| hold(context, gates)))?;
    Ok(report)
}

/// Builds the program and the kernels' tests; where the tests are, and the seconds it took. Not in release, and by one
/// command: so both share one build of the kernels, which are optimized in it.
fn build(context: &Context) -> Result<(PathBuf, f64)> {
    let args = ["build", "-p", "kipp-cli", "-p", "kipp-kernels", "--bin", "kipp", "--test", "it"];
    let mut cargo = exec::cargo(&args, &context.root);
    cargo.args(["--target", TARGET, "--message-format", "json-render-diagnostics"]);
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    let done = fail_on_warnings(cargo)?;
    let tests = done.stdout.lines().filter_map(|line| Json::parse(line).ok()).find_map(|message| {
        let manifest = message.text("manifest_path").ok()?;
        let executable = message.text("executable").ok()?;
        manifest.contains("kipp-kernels").then(|| PathBuf::from(executable))
    });
    Ok((tests.context("cargo built no tests of kipp-kernels")?, done.took.as_secs_f64()))
}

/// A program on a processor that QEMU plays.
fn emulated(context: &Context, processor: &str, program: &Path) -> Command {
    let mut command = exec::command("qemu-aarch64", &["-L", SYSTEM, "-cpu", processor], &context.root);
    command.arg(program);
    command
}

/// `kipp` on a processor that QEMU plays.
fn kipp(context: &Context, processor: &str, args: &[&str]) -> Command {
    let mut command = emulated(context, processor, &context.target(TARGET).join("debug/kipp"));
    command.args(args);
    command
}

/// Each processor gets its class, and all of them tell the same story.
fn chosen_classes(context: &Context) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut story: Option<String> = None;
    for (processor, class) in PROCESSORS {
        let args = ["run", "Once upon a time", "-n", "16", "--json"];
        let json = Json::parse(&exec::succeed(kipp(context, processor, &args))?.stdout)?;
        let (found, text) = (json.text("backend.kernels")?, json.text("text")?);
        if found != *class {
            bail!("{processor}: the class {found} was chosen, not {class}");
        }
        match &story {
            Some(story) if story != text => bail!("{processor}: {text:?}, elsewhere {story:?}"),
            _ => story = Some(text.to_owned()),
        }
        lines.push(format!("{processor}: {}", smoke::speed(&json)?));
    }
    Ok(lines)
}

/// `kipp verify` of one model in one class.
fn hold(context: &Context, (class, model): &(&str, &str)) -> Result<String> {
    let args = ["verify", "--model", model, "--kernels", class, "--threads", "1"];
    let done = exec::succeed(kipp(context, "max", &args))?;
    if !done.stdout.contains("fingerprint equal") {
        bail!("{class}, {model}: no frozen fingerprint\n{}", done.output());
    }
    let verdict = done.stdout.trim_end().lines().last().unwrap_or("no table");
    Ok(format!("{class}  {model}: {verdict} ({:.1} s)", done.took.as_secs_f64()))
}
