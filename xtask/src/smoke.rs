//! The promise of the README: one command on a fresh clone, and text comes out.

use anyhow::{Context as _, Result, bail};

use crate::cargo_steps::without_warnings;
use crate::exec;
use crate::json::Json;
use crate::steps::{Context, Report};

/// The README's first command, letter for letter.
const FIRST: &str = "cargo run --release -- run \"Once upon a time\"";

pub(crate) fn step(context: &Context) -> Result<Report> {
    let mut report = Report::default();
    let built = without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    report.say(format!("release build: {:.1} s", built.took.as_secs_f64()));
    report.say(machine_output(context)?);
    report.say(readme_command(context)?);
    Ok(report)
}

fn machine_output(context: &Context) -> Result<String> {
    let args = ["run", "Once upon a time", "--max-tokens", "48", "--json"];
    let done = exec::succeed(exec::command(context.kipp(), &args, &context.root))?;
    let json =
        Json::parse(&done.stdout).with_context(|| format!("`kipp run --json` printed {:?}", done.stdout))?;
    if json.text("text")?.trim().is_empty() || json.list("tokens")?.is_empty() {
        bail!("`kipp run --json` said nothing: {}", done.stdout);
    }
    speed(&json)
}

/// The figures of `kipp run --json` in a line.
pub(crate) fn speed(json: &Json) -> Result<String> {
    Ok(format!(
        "{} {} {}: load {:.0} ms, prefill {:.1} tok/s, decode {:.1} tok/s, {} threads",
        json.text("model.id")?,
        json.text("model.scheme")?,
        json.text("backend.kernels")?,
        json.number("timings.load_ms")?,
        json.number("timings.prefill_tok_s")?,
        json.number("timings.decode_tok_s")?,
        json.number("backend.threads")?,
    ))
}

fn readme_command(context: &Context) -> Result<String> {
    let readme = std::fs::read_to_string(context.root.join("README.md")).context("no README.md")?;
    let Some(first) = first_command(&readme) else { bail!("README.md shows no command in a code block") };
    if first != FIRST {
        bail!("the first command of README.md is `{first}`, not `{FIRST}`");
    }
    let done = exec::succeed(exec::command("sh", &["-c", first], &context.root))?;
    if done.stdout.trim().is_empty() {
        bail!("`{first}` printed nothing\n{}", done.stderr);
    }
    let start: String = done.stdout.trim().chars().take(60).collect();
    Ok(format!("README's first command, {:.1} s: {start}...", done.took.as_secs_f64()))
}

/// The first line in a code block that is no comment, without a comment behind it or a prompt sign before it.
fn first_command(readme: &str) -> Option<&str> {
    let mut inside = false;
    for line in readme.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            let command = line.split_once(" # ").map_or(line, |(command, _)| command);
            return Some(command.trim_end().trim_start_matches("$ "));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_command_is_found() {
        assert_eq!(
            first_command("# A\n`x`\n```sh\n# try\n$ cargo run   # builds\ncargo test\n```\n"),
            Some("cargo run")
        );
        assert_eq!(first_command("no code"), None);
    }
}
