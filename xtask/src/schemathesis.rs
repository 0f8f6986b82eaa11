//! The server against its own document: schemathesis makes requests of `/openapi.json`, right ones and wrong ones, and holds
//! every answer against what the document says of it. No server error, no status that the document lacks, no body of
//! another shape. And Prometheus' own reader takes `/metrics`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::cargo_steps::without_warnings;
use crate::exec;
use crate::install::Python;
use crate::steps::{Context, Report};

/// The packages from PyPI. Pinned: a newer schemathesis finds new things in its own time.
const PACKAGES: &[&str] = &["schemathesis==4.32.5", "prometheus_client==0.22.1"];

/// What must hold of every answer. That wrong requests are refused is tested by name elsewhere: the server is lenient where
/// the document is not, by its contract.
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

/// Seconds in CI, and in the full run.
const SECONDS: u64 = 60;
const SECONDS_FULL: u64 = 300;

/// The same cases each time, so that a failure can be met again.
const SEED: &str = "7";

/// How long the server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes `/metrics` apart, with vLLM's names in it.
const READ_METRICS: &str = "import sys, urllib.request
from prometheus_client.parser import text_string_to_metric_families as read
page = urllib.request.urlopen(sys.argv[1] + '/metrics').read().decode()
names = {family.name for family in read(page)}
missing = {'kipp_requests', 'kipp_kv_blocks', 'kipp_step_seconds', 'vllm:num_requests_waiting'} - names
assert not missing, missing
print(len(names))";

/// `kipp serve`, ended when it is dropped.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(context: &Context) -> Result<Self> {
        let model = "models/kipp-tiny";
        // Long answers would only cost time, and what is asked for may be as long as the context.
        let args =
            ["serve", "-m", model, "--port", "0", "--ctx", "128", "--any-model", "--metrics-compat", "vllm"];
        let mut command = exec::command(context.kipp(), &args, &context.root);
        command.stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", exec::shown(&command)))?;
        let line = child.stdout.take().map(|out| BufReader::new(out).lines().next());
        match line.flatten().transpose()? {
            Some(address) if address.starts_with("http://") => Ok(Self { child, address }),
            other => {
                let _ = child.kill();
                bail!("`{}` told no address but {other:?}", exec::shown(&command))
            }
        }
    }

    fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn step(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let python = Python::with(context, PACKAGES)?;
    let mut served = Served::start(context)?;
    let mut report = Report::default();
    report.say(schemathesis(context, &python, &served)?);
    let mut metrics = exec::command("python3", &["-c", READ_METRICS, &served.address], &context.root);
    metrics.env("PYTHONPATH", python.bin().join(".."));
    let families = exec::succeed(metrics)?.stdout;
    report.say(format!("/metrics: Prometheus reads {} families", families.trim()));
    if !served.is_running()? {
        bail!("the server has ended");
    }
    Ok(report)
}

fn schemathesis(context: &Context, python: &Python, served: &Served) -> Result<String> {
    let seconds = if context.full { SECONDS_FULL } else { SECONDS };
    let document = format!("{}/openapi.json", served.address);
    let wait = PATIENCE.as_secs().to_string();
    let seconds = seconds.to_string();
    let args = [
        "run",
        &document,
        "--wait-for-schema",
        &wait,
        "--checks",
        CHECKS,
        "--max-time",
        &seconds,
        "--seed",
        SEED,
        "--continue-on-failure",
        "--suppress-health-check",
        "all",
        "--request-timeout",
        "60",
        "--generation-database",
        "none",
        "--no-color",
    ];
    let started = Instant::now();
    let mut run: Command = python.program("schemathesis", &args, &context.root)?;
    // Whatever is set for a person's own runs is not ours.
    run.env_remove("SCHEMATHESIS_HOOKS");
    let done = exec::succeed(run)?;
    let cases =
        figures(&done.stdout).with_context(|| format!("schemathesis told nothing\n{}", done.output()))?;
    Ok(format!("{cases} in {:.0} s", started.elapsed().as_secs_f64()))
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
