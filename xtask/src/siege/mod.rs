//! The siege: `kipp serve` on kipp-tiny with 64 clients at once, some of whom leave, dawdle or send what is no request; a
//! minute in CI, ten in the full run. Every answer that is read to its end is that of the request alone, memory does not
//! grow, nothing is held in the end. Then those who want to do harm.

mod clients;
mod hostile;
mod questions;
mod random;
mod server;
mod wire;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::cargo_steps::without_warnings;
use crate::steps::{Context, Report};
use clients::{Field, Tally};
use questions::Question;
use server::Server;

/// Seconds in CI, and in the full run.
const SECONDS: u64 = 60;
const SECONDS_FULL: u64 = 600;

const CLIENTS: usize = 64;

/// What memory is compared with at the latest: by then every kind of request has come hundreds of times.
const WARM: Duration = Duration::from_secs(60);
/// How much more there may be in the end.
const GROWTH: f64 = 0.02;
/// And beside that, where memory is compared with less than [`WARM`]: what the allocator still takes until every thread has
/// met every kind of request.
const WARMING_KIB: f64 = 4096.0;
/// Memory goes up and down with what runs: a median over so long is compared.
const WINDOW: Duration = Duration::from_secs(10);

pub(crate) fn step(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let seconds = if context.full { SECONDS_FULL } else { SECONDS };
    let mut report = Report::default();
    besiege(&context.kipp(), &context.root, Duration::from_secs(seconds), &mut report)?;
    Ok(report)
}

fn besiege(program: &Path, root: &Path, time: Duration, report: &mut Report) -> Result<()> {
    let mut server = Server::start(program, root)?;
    let questions = Question::all(server.port)?;
    let field = Field::new(server.port, &questions);
    let (tally, resident) = field.besiege(CLIENTS, || watch(&server, &field, time));
    server.check()?;
    let faults = field.faults();
    if !faults.is_empty() {
        bail!("{}\n{}", faults.join("\n"), server.said());
    }
    server.wait_until_quiet()?;
    report.say(answered(&tally, time)?);
    report.say(format!(
        "{} preemptions, {:.0} tokens generated; 0 requests, 0 blocks held after it",
        server.metric("kipp_preemptions_total")?,
        server.metric("kipp_generation_tokens_total")?
    ));
    match memory(&resident, time)? {
        Some(line) => report.say(line),
        None => report.skip("memory", "this system keeps no account of it in /proc"),
    }
    for line in hostile::attack(&server, &questions)? {
        report.say(line);
    }
    server.check()?;
    server.wait_until_quiet()?;
    no_server_errors(&server.metrics()?)?;
    server.end(root)
}

/// KiB resident, several times a second.
fn watch(server: &Server, field: &Field<'_>, time: Duration) -> Vec<(Duration, u64)> {
    let started = Instant::now();
    let mut resident = Vec::new();
    while started.elapsed() < time && !field.has_fault() {
        resident.extend(server.resident_kib().map(|kib| (started.elapsed(), kib)));
        thread::sleep(Duration::from_millis(250));
    }
    resident
}

fn answered(tally: &Tally, time: Duration) -> Result<String> {
    let Tally { answers, slow, left, refused, busy, gaps_ms } = tally;
    for (what, count) in
        [("answers", answers), ("slow readers", slow), ("leavers", left), ("refusals", refused)]
    {
        ensure!(*count >= CLIENTS as u64 / 8, "only {count} {what}: this was no siege");
    }
    let mut sorted = gaps_ms.clone();
    sorted.sort_by(f64::total_cmp);
    let part = |part: f64| sorted.get(((sorted.len() as f64 * part).ceil() as usize).max(1) - 1);
    let gap = |of: f64| part(of).copied().unwrap_or(f64::NAN);
    Ok(format!(
        "{CLIENTS} clients, {} s: {answers} answers and {slow} slowly read ones, each as alone; {left} left, {refused} \
         refused, {busy} told to come back; between tokens p50 {:.1} ms, p99 {:.1} ms",
        time.as_secs(),
        gap(0.5),
        gap(0.99)
    ))
}

/// Memory at the end beside that at the start; `None` where the system does not tell. An error where it grew.
fn memory(resident: &[(Duration, u64)], time: Duration) -> Result<Option<String>> {
    let warm = WARM.min(time / 2);
    let window = WINDOW.min(warm);
    let around = |end: Duration| {
        let within = resident.iter().filter(|(at, _)| *at <= end && *at + window >= end);
        let mut kib: Vec<u64> = within.map(|(_, kib)| *kib).collect();
        kib.sort_unstable();
        kib.get(kib.len() / 2).copied()
    };
    let (Some(early), Some(late)) = (around(warm), around(time)) else { return Ok(None) };
    let allowance = if warm < WARM { WARMING_KIB } else { 0.0 };
    let growth = late as f64 - early as f64;
    ensure!(
        growth <= early as f64 * GROWTH + allowance,
        "memory grew from {early} KiB at {} s to {late} KiB at {} s",
        warm.as_secs(),
        time.as_secs()
    );
    Ok(Some(format!("resident {early} KiB at {} s, {late} KiB at {} s", warm.as_secs(), time.as_secs())))
}

/// Whatever clients do, the fault is theirs.
fn no_server_errors(metrics: &str) -> Result<()> {
    let errors = metrics.lines().filter(|line| line.starts_with("kipp_requests_total{"));
    let errors: Vec<&str> = errors.filter(|line| line.contains("status=\"5")).collect();
    ensure!(errors.is_empty(), "the server was at fault: {}", errors.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_found_and_a_peak_is_none() -> Result<()> {
        let minutes = |kib: fn(u64) -> u64| -> Vec<(Duration, u64)> {
            (0..1200).map(|half| (Duration::from_millis(half * 500), kib(half))).collect()
        };
        let time = Duration::from_secs(600);
        assert!(memory(&minutes(|_| 50_000), time)?.is_some());
        assert!(memory(&minutes(|half| if half == 1199 { 90_000 } else { 50_000 }), time).is_ok());
        assert!(memory(&minutes(|half| 50_000 + half * 2), time).is_err());
        assert_eq!(memory(&[], time)?, None);
        Ok(())
    }

    #[test]
    fn errors_of_the_server_are_found() {
        let fine = "kipp_requests_total{endpoint=\"/v1/completions\",status=\"400\"} 5\n";
        assert!(no_server_errors(fine).is_ok());
        assert!(no_server_errors(&fine.replace("400", "500")).is_err());
    }
}
