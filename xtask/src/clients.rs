//! Clients that others wrote, unmodified, against `kipp serve` with kipp-tiny. Their versions are pinned in
//! `xtask/clients`, and so are the scripts that use them as a person would; each prints a line a check.

use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use crate::cargo_steps::without_warnings;
use crate::exec;
use crate::install::{Node, Python};
use crate::served::Served;
use crate::steps::{Context, Report};

/// The key of the server that is full.
const KEY: &str = "a-key-of-the-test";

pub(crate) fn step(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let scripts = context.root.join("xtask/clients");
    let python = Python::pinned(context, "clients/python", &scripts.join("requirements.txt"))?;
    let node = Node::pinned(context, "clients/node", &scripts)?;
    let open = Served::start(context, &[])?;
    // Where nobody may wait, every request is one too many.
    let full = Served::start(context, &["--api-key", KEY, "--max-queue", "0"])?;
    let urls = [open.url(), full.url(), KEY];
    let kipp = context.kipp();
    let kipp = kipp.to_str().context("the path of the program is not UTF-8")?;
    let by_python = |name: &str, args: &[&str]| checked(name, python.script(&scripts.join(name), args)?);
    let by_node = |name: &str| checked(name, node.script(name, &urls));
    let mut report = Report::default();
    report.say_all(vec![
        by_python("openai_client.py", &urls),
        by_python("anthropic_client.py", &urls),
        by_python("lm_eval_client.py", &[open.url(), kipp]),
        by_node("openai_client.mjs"),
        by_node("ai_client.mjs"),
    ])?;
    Ok(report)
}

/// The lines of a script under its name and time; an error with all that it said, if a check failed.
pub(crate) fn checked(name: &str, command: Command) -> Result<String> {
    let shown = exec::shown(&command);
    let done = exec::finish(command)?;
    let lines = done.stdout.trim_end();
    match (done.code, lines.is_empty()) {
        (Some(0), false) => {
            let lines = lines.replace('\n', "\n      ");
            Ok(format!("{name}, {:.1} s\n      {lines}", done.took.as_secs_f64()))
        }
        _ => Err(anyhow!("`{shown}` ended with {}\n{}", exec::ending(done.code), done.output())),
    }
}
