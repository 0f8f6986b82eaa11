//! The server against its own document: schemathesis makes requests of `/openapi.json`, right ones and wrong ones, and holds
//! every answer against what the document says of it. No server error, no status that the document lacks, no body of
//! another shape. And Prometheus' own reader takes `/metrics`.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::cargo_steps::without_warnings;
use crate::exec;
use crate::install::{self, Python};
use crate::served::Served;
use crate::steps::{Context, Report};

/// The packages from PyPI. Pinned: a newer schemathesis finds new things in its own time.
const PACKAGES: &[&str] = &["schemathesis==4.32.5", "prometheus_client==0.22.1"];

/// What must hold of every answer. That wrong requests are refused is tested by name elsewhere: the server is lenient where
/// the document is not, by its contract.
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

/// The endpoints that take most cases, each with a time of its own, so that none uses up another's. Those that are not
/// named have one together.
const LARGE: &[&str] = &[
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
];

/// Seconds for each of them in CI, and in the full run.
const SECONDS: u64 = 8;
const SECONDS_FULL: u64 = 60;

/// The same cases each time, so that a failure can be met again.
const SEED: &str = "7";

/// Seconds that an answer may take: a request may ask for 128 choices that fill the context.
const REQUEST_SECONDS: &str = "120";

/// Takes `/metrics` apart, with vLLM's names in it.
const READ_METRICS: &str = "import sys, urllib.request
from prometheus_client.parser import text_string_to_metric_families as read
page = urllib.request.urlopen(sys.argv[1] + '/metrics').read().decode()
names = {family.name for family in read(page)}
missing = {'kipp_requests', 'kipp_kv_blocks', 'kipp_step_seconds', 'vllm:num_requests_waiting'} - names
assert not missing, missing
print(len(names))";

/// Long answers would only cost time, and what is asked for may be as long as the context.
const FLAGS: &[&str] = &["--ctx", "128", "--any-model", "--metrics-compat", "vllm"];

pub(crate) fn step(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let python = Python::with(context, PACKAGES)?;
    let mut served = Served::start(context, FLAGS)?;
    let mut report = Report::default();
    let mut results: Vec<Result<String>> = Vec::new();
    for path in LARGE {
        results.push(schemathesis(context, &python, &served, path, &["--include-path", path]));
    }
    let others: Vec<&str> = LARGE.iter().flat_map(|path| ["--exclude-path", path]).collect();
    results.push(schemathesis(context, &python, &served, "the others", &others));
    report.say_all(results)?;
    let mut metrics = exec::command("python3", &["-c", READ_METRICS, served.url()], &context.root);
    metrics.env("PYTHONPATH", python.bin().join(".."));
    let families = exec::succeed(metrics)?.stdout;
    report.say(format!("/metrics: Prometheus reads {} families", families.trim()));
    if !served.is_running()? {
        bail!("the server has ended");
    }
    Ok(report)
}

/// Cases for the endpoints that a filter chooses.
fn schemathesis(
    context: &Context,
    python: &Python,
    served: &Served,
    name: &str,
    filter: &[&str],
) -> Result<String> {
    let document = format!("{}/openapi.json", served.url());
    let seconds = if context.full { SECONDS_FULL } else { SECONDS }.to_string();
    let mut args = vec!["run", &document, "--checks", CHECKS, "--max-time", &seconds, "--seed", SEED];
    args.extend(["--phases", "coverage,fuzzing", "--continue-on-failure", "--no-color"]);
    args.extend(["--suppress-health-check", "all", "--generation-database", "none"]);
    args.extend(["--request-timeout", REQUEST_SECONDS]);
    args.extend(filter);
    let started = Instant::now();
    // It leaves files where it runs.
    let folder = context.target("schemathesis");
    install::folder(&folder)?;
    let done = exec::succeed(python.program("schemathesis", &args, &folder)?)?;
    let cases = figures(&done.stdout).with_context(|| format!("{name}: no cases\n{}", done.output()))?;
    Ok(format!("{name}: {cases}, {:.0} s", started.elapsed().as_secs_f64()))
}

/// How many cases there were.
fn figures(output: &str) -> Option<String> {
    let line = output.lines().find(|line| line.contains("generated"))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_found() {
        let output = "Test cases:\n  1234 generated, 1234 passed\n\nSeed: 7\n";
        assert_eq!(figures(output).as_deref(), Some("1234 generated, 1234 passed"));
        assert_eq!(figures("nothing"), None);
    }
}
