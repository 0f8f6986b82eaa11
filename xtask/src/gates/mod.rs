//! The numbers: the program's own gates (`kipp verify`) on every checkpoint of the tree, in every kernel class that this
//! machine has, and perplexities.

mod classes;
mod perplexity;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::cargo_steps::without_warnings;
use crate::exec;
use crate::json::Json;
use crate::pool;
use crate::steps::{Context, Report};

/// Part that is left out on every machine: none has all classes.
pub(crate) const OTHER_CLASSES: &str = "kernel classes of other processors";

/// Exit code of `kipp verify` for a gate that is not met.
const NOT_MET: i32 = 3;

/// The model that is part of the program; [`FOLDER`] has the same weights in another format.
const EMBEDDED: &str = "kipp-tiny";
const FOLDER: &str = "models/kipp-tiny";
/// What another implementation says of both.
const GOLDEN: &str = "testdata/kipp-tiny";

/// `kipp verify` of one model.
struct Verify {
    model: String,
    reference: Option<String>,
    /// One class only.
    kernels: Option<String>,
}

/// What it said.
struct Verified {
    line: String,
    classes: Vec<String>,
    absent: Vec<String>,
    /// The class that the program chooses by itself.
    best: String,
}

pub(crate) fn step(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let mut report = Report::default();
    let runs = models(&context.root)?;
    let mut verified = pool::each(&runs, |run| verify(context, run));
    let first = verified.iter().find_map(|run| run.as_ref().ok());
    let (classes, best) =
        first.map_or_else(Default::default, |first| (first.classes.clone(), first.best.clone()));
    if let Some(first) = first {
        classes::check(&first.classes)?;
        report.skip(OTHER_CLASSES, first.absent.join(", "));
        // Whether the folder is read like the file, one class tells.
        let (model, reference) = (FOLDER.to_owned(), Some(GOLDEN.to_owned()));
        verified.push(verify(context, &Verify { model, reference, kernels: Some(best) }));
    }
    let mut results: Vec<Result<String>> = verified.into_iter().map(|run| Ok(run?.line)).collect();
    results.extend(perplexity::all(context, &classes)?);
    report.say_all(results)?;
    Ok(report)
}

/// Every checkpoint of the tree but [`FOLDER`], with its reference where there is one, in every class.
fn models(root: &Path) -> Result<Vec<Verify>> {
    let run = |model, reference| Verify { model, reference, kernels: None };
    let mut runs = vec![run(EMBEDDED.to_owned(), Some(GOLDEN.to_owned()))];
    for name in entries(root, "testdata/odd", |path| path.join("config.json").is_file())? {
        runs.push(run(name.clone(), Some(name)));
    }
    for name in entries(root, "testdata/quantized", |path| path.extension().is_some_and(|ext| ext == "gguf"))?
    {
        runs.push(run(name, None));
    }
    Ok(runs)
}

/// Sorted entries of a folder; an error if none is `wanted`, for then the gate would pass by looking away.
fn entries(root: &Path, folder: &str, wanted: impl Fn(&Path) -> bool) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(folder)).with_context(|| format!("no folder {folder}"))? {
        let entry = entry?;
        if wanted(&entry.path()) {
            names.push(format!("{folder}/{}", entry.file_name().to_string_lossy()));
        }
    }
    if names.is_empty() {
        bail!("nothing to verify in {folder}");
    }
    names.sort();
    Ok(names)
}

/// A model that passes; an error with the gates that were not met for one that does not.
fn verify(context: &Context, run: &Verify) -> Result<Verified> {
    // Runs already divide the processors among them.
    let mut args = vec!["verify", "--model", &run.model, "--threads", "1", "--json"];
    if let Some(kernels) = &run.kernels {
        args.extend(["--kernels", kernels]);
    }
    if let Some(reference) = &run.reference {
        args.extend(["--reference", reference]);
    }
    let done = exec::finish(exec::command(context.kipp(), &args, &context.root))?;
    match done.code {
        Some(0) => said(&run.model, &Json::parse(&done.stdout)?),
        Some(NOT_MET) => {
            bail!("{}: gates that are not met:\n{}", run.model, not_met(&Json::parse(&done.stdout)?)?)
        }
        code => bail!("`kipp {}` ended with {}\n{}", args.join(" "), exec::ending(code), done.output()),
    }
}

/// A class that nothing was held in would pass by looking away.
fn said(model: &str, json: &Json) -> Result<Verified> {
    let (mut classes, mut parts) = (Vec::new(), Vec::new());
    for class in json.list("classes")? {
        let (kernels, passed) = (class.text("kernels")?, class.number("passed")?);
        if passed < 1.0 {
            bail!("{model}: no gate was held in {kernels}");
        }
        let fingerprint = class.text("fingerprint")?;
        let seconds = class.number("seconds")?;
        parts.push(format!("{kernels} {passed}, fingerprint {fingerprint} ({seconds:.1} s)"));
        classes.push(kernels.to_owned());
    }
    if classes.is_empty() {
        bail!("{model}: no class was verified");
    }
    let absent = json.list("absent")?.iter().filter_map(|name| match name {
        Json::Text(name) => Some(name.clone()),
        _ => None,
    });
    let line = format!("{model}: {} gates; {}", json.number("passed")?, parts.join("; "));
    let best = json.text("backend.kernels")?.to_owned();
    Ok(Verified { line, classes, absent: absent.collect(), best })
}

fn not_met(json: &Json) -> Result<String> {
    let mut lines = Vec::new();
    for gate in
        json.list("gates")?.iter().filter(|gate| gate.at("passed").is_ok_and(|it| *it != Json::Bool(true)))
    {
        let (kernels, name, detail) = (gate.text("kernels")?, gate.text("name")?, gate.text("detail")?);
        lines.push(format!("{kernels}: {name}: {detail}"));
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_read_class_by_class() {
        let json = Json::parse(
            r#"{"gates": [{"kernels": "avx2", "name": "oracle", "detail": "far off", "passed": false}],
            "classes": [{"kernels": "scalar", "passed": 2, "fingerprint": "equal", "seconds": 1.5}],
            "absent": ["neon"], "passed": 2, "backend": {"kernels": "avx2"}}"#,
        );
        let json = json.unwrap();
        let verified = said("m", &json).unwrap();
        assert_eq!(verified.line, "m: 2 gates; scalar 2, fingerprint equal (1.5 s)");
        assert_eq!((verified.classes, verified.absent), (vec!["scalar".to_owned()], vec!["neon".to_owned()]));
        assert_eq!(
            (verified.best.as_str(), not_met(&json).unwrap().as_str()),
            ("avx2", "avx2: oracle: far off")
        );
        let none = Json::parse(r#"{"classes": [], "absent": [], "passed": 0}"#).unwrap();
        assert!(said("m", &none).is_err());
    }
}
