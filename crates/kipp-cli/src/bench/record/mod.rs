//! Records: one JSON file for one configuration, with all that a number must carry before it counts. What is not worth
//! keeping is refused (`refusal`) before anything is written.

mod build;
mod machine;
mod model;
mod moment;
mod refusal;

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use kipp::artifact::Artifact;
use serde::Serialize;
use serde_json::Value;

use super::single::SingleBackend;
use crate::outcome::{Outcome, UsageError};
use crate::output::OutputFile;
use crate::report;
use build::Build;
pub(crate) use machine::stolen_ms;
use machine::{Machine, Power};
pub(crate) use model::Fingerprint;
use model::Model;
pub(crate) use refusal::Refusal;

/// The flags of records.
#[derive(Args, Debug)]
#[command(next_help_heading = "Record")]
pub(crate) struct RecordArgs {
    /// Write what was measured into this folder, one file a configuration; refused with exit code 3 where it would not
    /// count
    #[arg(long, value_name = "FOLDER", env = "KIPP_RECORD")]
    pub(crate) record: Option<PathBuf>,
    /// Write the record although it is refused, marked as degraded for this reason
    #[arg(long, value_name = "REASON", env = "KIPP_ANYWAY", requires = "record", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    anyway: Option<String>,
    /// Record a model that is no registered checkpoint
    #[arg(long, env = "KIPP_UNREGISTERED", value_parser = crate::args::value::switch, action = clap::ArgAction::SetTrue)]
    unregistered: bool,
    /// Name of the session that this belongs to, so that records of several commands can be compared [default: a new one]
    #[arg(long, value_name = "ID", env = "KIPP_RECORD_SESSION")]
    session: Option<String>,
}

impl RecordArgs {
    /// Refuses what counts only for a record where none is wanted.
    fn check(&self) -> Result<(), UsageError> {
        let unused = match self {
            RecordArgs { record: Some(_), .. } => return Ok(()),
            RecordArgs { unregistered: true, .. } => "--unregistered",
            RecordArgs { session: Some(_), .. } => "--session",
            _ => return Ok(()),
        };
        Err(UsageError::new(unused, "counts only with --record"))
    }
}

/// One configuration, measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    /// Of this layout.
    version: u32,
    /// `bench run`, `bench kernels`.
    what: &'static str,
    name: String,
    /// Why this record counts for nothing, where somebody wanted it anyway.
    degraded: Option<Degraded>,
    build: Build,
    model: Model,
    backend: Option<SingleBackend>,
    machine: Machine,
    /// Lengths, sequences, cache and step settings, warm-ups.
    settings: Value,
    protocol: Value,
    /// Medians, deviations, every raw run with its probes.
    results: Value,
    /// Runs that count, and how many were wanted; `None` where a run is no process.
    runs: Option<(usize, usize)>,
    /// Deviation of the figure divided by its probe, as a part of its median; `None` where nothing was repeated.
    dispersion: Option<f64>,
    /// Of the class's logits, and what it was held against.
    fingerprint: Option<Fingerprint>,
    command: Vec<String>,
    /// `KIPP_*` variables.
    environment: Vec<String>,
    session: String,
    /// UTC.
    time: String,
}

#[derive(Clone, Debug, Serialize)]
struct Degraded {
    reason: String,
    refusals: Vec<String>,
}

/// What a command adds to a record.
pub(crate) struct Measurement {
    pub(crate) name: String,
    pub(crate) backend: Option<SingleBackend>,
    pub(crate) settings: Value,
    pub(crate) protocol: Value,
    pub(crate) results: Value,
    pub(crate) runs: Option<(usize, usize)>,
    pub(crate) dispersion: Option<f64>,
    pub(crate) fingerprint: Option<Fingerprint>,
}

/// What all records of one command share; made before the measurement, so that what is refused anyway is not measured.
pub(crate) struct Recorder<'a> {
    args: &'a RecordArgs,
    folder: &'a Path,
    blank: Record,
}

impl<'a> Recorder<'a> {
    /// `None` where nobody wants a record.
    pub(crate) fn new(
        what: &'static str,
        args: &'a RecordArgs,
        artifact: &Artifact,
    ) -> Result<Option<Recorder<'a>>> {
        args.check()?;
        let Some(folder) = args.record.as_deref() else { return Ok(None) };
        let environment = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KIPP_"));
        let variable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
        };
        let now = moment::now();
        let blank = Record {
            version: 1,
            what,
            name: String::new(),
            degraded: None,
            build: Build::of_this_program()?,
            model: Model::new(artifact)?,
            backend: None,
            machine: Machine::now(),
            settings: Value::Null,
            protocol: Value::Null,
            results: Value::Null,
            runs: None,
            dispersion: None,
            fingerprint: None,
            command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            environment: environment.map(variable).collect(),
            session: args.session.clone().unwrap_or_else(|| format!("{now}-{}", std::process::id())),
            time: now,
        };
        Ok(Some(Recorder { args, folder, blank }))
    }

    /// What can be refused before anything is measured: `runs` are as many as there will be at most. A folder that
    /// nothing can be written into is an error.
    pub(crate) fn refuses(&self, runs: Option<usize>) -> Result<Option<Outcome>> {
        let runs = runs.map(|wanted| (wanted, wanted));
        if let Err(refused) = self.judge(&Record { runs, ..self.blank.clone() }) {
            return Ok(Some(refused));
        }
        let writable = || {
            std::fs::create_dir_all(self.folder).with_context(|| self.folder.display().to_string())?;
            // Dropped before it is whole, it leaves nothing behind.
            OutputFile::create(&self.folder.join("record.json")).map(drop)
        };
        writable().context("--record")?;
        Ok(None)
    }

    /// Writes one file a case. A refused one does not keep the others from being written; a second one of a name would
    /// replace the first, and is an error.
    pub(crate) fn write_all(
        &self,
        measurements: impl Iterator<Item = Result<Measurement>>,
    ) -> Result<Outcome> {
        let (mut outcome, mut names) = (Outcome::Done, HashSet::new());
        for measurement in measurements {
            let measurement = measurement?;
            if !names.insert(measurement.name.clone()) {
                bail!("two cases are named {}: only the first was recorded", measurement.name);
            }
            let written = self.write(measurement)?;
            if written != Outcome::Done {
                outcome = written;
            }
        }
        Ok(outcome)
    }

    /// Writes one record, or says why not.
    pub(crate) fn write(&self, measurement: Measurement) -> Result<Outcome> {
        let Measurement { name, backend, settings, protocol, results, runs, dispersion, fingerprint } =
            measurement;
        let mut record = Record {
            name,
            backend,
            settings,
            protocol,
            results,
            runs,
            dispersion,
            fingerprint,
            // The power state may have changed since.
            machine: self.blank.machine.clone().with_power(Power::now()),
            ..self.blank.clone()
        };
        match self.judge(&record) {
            Ok(degraded) => record.degraded = degraded,
            Err(refused) => return Ok(refused),
        }
        let path = self.folder.join(record.file_name());
        let mut file = OutputFile::create(&path)?;
        serde_json::to_writer_pretty(&mut file, &record).context("the record as JSON")?;
        file.write_all(b"\n").with_context(|| path.display().to_string())?;
        file.finish()?;
        report::note(&format!("record: {}", path.display()));
        Ok(Outcome::Done)
    }

    /// Why the record is degraded, if it is; an error where it must not be written.
    fn judge(&self, record: &Record) -> Result<Option<Degraded>, Outcome> {
        let refusals = refusal::refusals(record, self.args.unregistered);
        if refusals.is_empty() {
            return Ok(None);
        }
        let refusals: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
        match &self.args.anyway {
            Some(reason) => Ok(Some(Degraded { reason: reason.clone(), refusals })),
            None => {
                for refusal in refusals {
                    report::note(&format!("no record of {}: {refusal}", record.title()));
                }
                Err(Outcome::GateFailed)
            }
        }
    }
}

impl Record {
    fn title(&self) -> &str {
        if self.name.is_empty() { self.what } else { &self.name }
    }

    /// Model, configuration and commit, so that no record of another configuration or commit is overwritten.
    fn file_name(&self) -> String {
        let on = self.backend.as_ref().map_or_else(String::new, |backend| {
            let SingleBackend { kernels, threads, kv, .. } = backend;
            format!("-{kernels}-{threads}t-kv-{kv}")
        });
        let commit = self.build.commit.get(..8).unwrap_or("outside-git");
        let name = format!("{}-{}-{}{on}-{commit}", self.model.id, self.model.scheme, self.name);
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = name.replace(" @ ", "-").replace(" x ", "x").chars().map(plain).collect();
        format!("{name}.json")
    }
}
