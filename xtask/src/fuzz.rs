//! The fuzz targets, explored by libFuzzer. Plain cargo with the flags that instrument the code: cargo-fuzz wants a
//! workspace of its own and a nightly compiler, and adds nothing that we need.
//!
//! Every target starts from the committed `fuzz/corpus/<target>` and from what earlier runs found, which is kept in
//! `target/fuzz/corpus/<target>`. A crash leaves its input in `target/fuzz/crashes/<target>`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::install;
use crate::pool;
use crate::steps::{Context, Report};

/// Coverage counters, comparisons as hints, and the sanitizer, which also lets libFuzzer watch single allocations.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "-Ccodegen-units=1",
    "-Zsanitizer=address",
    "--cfg=fuzzing",
];

/// Limits of one input. Files and texts of 64 KiB reach every branch of a reader; one allocation of 256 MiB for such an
/// input is one that a lying length asked for; 10 s is a hang.
const LIMITS: &[&str] =
    &["-max_len=65536", "-malloc_limit_mb=256", "-rss_limit_mb=2048", "-timeout=10", "-print_final_stats=1"];

/// Seconds a target in CI, and in the full run.
const SECONDS: u64 = 60;
const SECONDS_FULL: u64 = 300;

/// A target that ran fewer inputs than this was not explored.
const LEAST_RUNS: u64 = 300;

pub(crate) fn step(context: &Context) -> Result<Report> {
    let targets = targets(&context.root)?;
    if targets.is_empty() {
        bail!("no target in fuzz/fuzz_targets");
    }
    install::cxx(context)?;
    let mut report = Report::default();
    let seconds = if context.full { SECONDS_FULL } else { SECONDS };
    let host = host(context)?;
    report.say(format!("instrumented build: {:.1} s", build(context, &host)?));
    let programs = context.target("fuzz").join(&host).join("release");
    let results = pool::each(&targets, |target| explore(context, &programs, target, seconds));
    report.say_all(results)?;
    Ok(report)
}

/// Names of the files in `fuzz/fuzz_targets`.
fn targets(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join("fuzz/fuzz_targets")).context("no folder fuzz/fuzz_targets")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// This machine's triple. Naming it keeps the flags away from build scripts and procedural macros.
fn host(context: &Context) -> Result<String> {
    let version = exec::succeed(exec::command("rustc", &["-vV"], &context.root))?.stdout;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

/// Builds all targets; seconds it took.
fn build(context: &Context, host: &str) -> Result<f64> {
    let args =
        ["build", "--release", "-p", "kipp-fuzz", "--features", "libfuzzer", "--bins", "--target", host];
    let mut cargo = exec::cargo(&args, &context.root);
    cargo.env("CARGO_TARGET_DIR", context.target("fuzz"));
    cargo.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    // The sanitizer's flag is unstable; this opens it on a stable compiler.
    cargo.env("RUSTC_BOOTSTRAP", "1");
    // Link-time optimization would merge what the counters tell apart.
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
    Ok(exec::succeed(cargo)?.took.as_secs_f64())
}

/// Runs one target and tells what it saw.
fn explore(context: &Context, programs: &Path, target: &str, seconds: u64) -> Result<String> {
    let found = context.target("fuzz/corpus").join(target);
    let crashes = context.target("fuzz/crashes").join(target);
    install::folder(&found)?;
    install::folder(&crashes)?;
    let mut run = exec::command(programs.join(target), LIMITS, &context.root);
    run.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/", crashes.display()));
    run.arg(&found);
    let seeds = context.root.join("fuzz/corpus").join(target);
    if seeds.is_dir() {
        run.arg(&seeds);
    }
    let done = exec::finish(run)?;
    if done.code != Some(0) {
        let input = reproducer(&done.stderr).unwrap_or(crashes);
        bail!("fuzz target {target} failed; its input: {}\n{}", input.display(), tail(&done.stderr, 60));
    }
    let runs = statistic(&done.stderr, "number_of_executed_units").unwrap_or(0);
    if runs < LEAST_RUNS {
        bail!("fuzz target {target} ran {runs} inputs in {seconds} s\n{}", tail(&done.stderr, 40));
    }
    let (first, last) =
        coverage(&done.stderr).with_context(|| format!("{target}: no coverage was counted"))?;
    Ok(format!("{target}: {runs} inputs in {seconds} s, coverage {first} -> {last}"))
}

/// The file that libFuzzer wrote for the input that failed.
fn reproducer(output: &str) -> Option<PathBuf> {
    output.lines().find_map(|line| Some(PathBuf::from(line.split_once("Test unit written to ")?.1.trim())))
}

fn statistic(output: &str, name: &str) -> Option<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name))?;
    line.trim_start_matches(':').trim().parse().ok()
}

/// The first and the last count of `cov:` that was printed.
fn coverage(output: &str) -> Option<(u64, u64)> {
    let mut counts = output
        .lines()
        .filter_map(|line| line.split_once(" cov: ")?.1.split_whitespace().next()?.parse().ok());
    let first = counts.next()?;
    Some((first, counts.next_back().unwrap_or(first)))
}

fn tail(output: &str, lines: usize) -> String {
    let all: Vec<&str> = output.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_words_are_understood() {
        let output = "#2\tINITED cov: 3 ft: 3 corp: 1/1b\n#9\tNEW    cov: 12 ft: 13\nDone\nstat::number_of_executed_units: 4096\n\
                      artifact_prefix='x/'; Test unit written to x/crash-1\n";
        assert_eq!(coverage(output), Some((3, 12)));
        assert_eq!(statistic(output, "number_of_executed_units"), Some(4096));
        assert_eq!(reproducer(output), Some(PathBuf::from("x/crash-1")));
        assert_eq!(tail(output, 1), "artifact_prefix='x/'; Test unit written to x/crash-1");
    }
}
