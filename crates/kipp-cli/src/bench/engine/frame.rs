//! The frame of a measurement: runs in processes of their own between probes, the table, the records.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::super::format;
use super::super::limits::Prober;
use super::super::process;
use super::super::record::{Measurement, Recorder};
use super::super::run::{fingerprint, work_and_prober};
use super::super::schedule::{
    MOST_REPEATS, MeasuredRun, Protocol, between_probes, count_native, mark_foreign,
};
use super::super::single::{SingleBackend, peak_resident_bytes};
use super::super::work::Work;
use super::result::{CaseResult, EngineRun, Process, table};
use super::{EngineArgs, EngineBench, Subject};
use crate::outcome::Outcome;
use crate::{load, open, report};

impl Subject {
    fn open(args: &EngineArgs) -> Result<Subject> {
        let artifact = open::artifact(&args.model)?;
        let spec = load::spec(&artifact, &args.attention)?;
        Ok(Subject { artifact, spec })
    }
}

/// All runs, their table, and their records where those are wanted.
pub(crate) fn run<B: EngineBench>(bench: &B) -> Result<Outcome> {
    let args = bench.args();
    let subject = Subject::open(args)?;
    let plan = bench.plan(&subject)?;
    load::check_flags(&subject.artifact, &args.backend)?;
    load::tell_many_threads(args.backend.threads);
    let recorder = Recorder::new(B::WHAT, &args.record, &subject.artifact)?;
    if let Some(recorder) = &recorder
        && let Some(refused) = recorder.refuses(Some(args.runs))?
    {
        return Ok(refused);
    }
    let (work, prober) = work_and_prober(&subject.artifact, &args.attention, &args.backend)?;
    let runs = runs::<B>(args, &work, &prober, recorder.is_some())?;
    let results = CaseResult::of(&runs, B::JUDGED, B::BOUND, &work)?;
    let backend = runs.first().map(|run| &run.run.process.backend);
    report::text(&match args.json {
        true => serde_json::to_string(&results).context("the result as JSON")? + "\n",
        false => {
            format!("{}\n\n{}", format::title(&subject.artifact, backend), table(&results, B::COLUMNS))
        }
    })?;
    let Some(recorder) = recorder else { return Ok(Outcome::Done) };
    let settings = bench.settings(&plan);
    record(args, &subject, &recorder, &settings, &results)
}

/// Runs that met the machine in another state are kept, and repeated where a record is wanted.
fn runs<B: EngineBench>(
    args: &EngineArgs,
    work: &Work,
    prober: &Prober,
    repeats: bool,
) -> Result<Vec<MeasuredRun<EngineRun>>> {
    Protocol::begin(args.protocol(), prober);
    let mut before = prober.probe();
    let mut runs: Vec<MeasuredRun<EngineRun>> = Vec::new();
    let most = args.runs + if repeats { MOST_REPEATS } else { 0 };
    while runs.len() < most && count_native(&runs) < args.runs {
        let once = || process::once::<EngineRun>(B::WHAT);
        let run = between_probes(prober, args.protocol(), &mut before, once)?;
        for case in &run.run.cases {
            let figures = B::COLUMNS.iter().filter_map(|column| {
                let value = case.figures.get(column.figure)?;
                Some(format!("{} {value:.*}", column.header, column.decimals))
            });
            let figures: Vec<String> = figures.collect();
            report::note(&format!("run {}: {}: {}", runs.len() + 1, case.name, figures.join(", ")));
        }
        runs.push(run);
        // Only when all wanted runs are there is it known which state most of them met.
        if runs.len() >= args.runs {
            mark_foreign(&mut runs, |run| run.beside(B::BOUND, work));
        }
    }
    Ok(runs)
}

/// One file a case.
fn record(
    args: &EngineArgs,
    subject: &Subject,
    recorder: &Recorder<'_>,
    settings: &Value,
    results: &[CaseResult],
) -> Result<Outcome> {
    let fingerprint = fingerprint(&subject.artifact, &args.attention, &args.backend)?;
    recorder.write_all(results.iter().map(|result| {
        Ok(Measurement {
            name: result.name.clone(),
            backend: result.runs.first().map(|run| run.run.process.backend.clone()),
            settings: settings.clone(),
            protocol: Protocol::describe(args.protocol()),
            results: serde_json::to_value(result).context("the result as JSON")?,
            dispersion: Some(result.dispersion),
            runs: Some((result.native_runs(), args.runs)),
            fingerprint: fingerprint.clone(),
        })
    }))
}

/// One run.
pub(super) fn once<B: EngineBench>(bench: &B) -> Result<Outcome> {
    let started = Instant::now();
    process::end_with_stdin()?;
    let args = bench.args();
    let subject = Subject::open(args)?;
    let plan = bench.plan(&subject)?;
    let room = bench.room(&plan);
    let forward = load::forward(&subject.artifact, subject.spec.clone(), &args.backend, room)?.forward;
    let load_ms = started.elapsed().as_secs_f64() * 1e3;
    let backend = SingleBackend::of(&*forward);
    let cases = bench.measure(&plan, &subject, forward)?;
    let process = Process { load_ms, peak_resident_bytes: peak_resident_bytes(), backend };
    report::json(&EngineRun { cases, process })?;
    Ok(Outcome::Done)
}
