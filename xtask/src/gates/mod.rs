//! The numbers: the program's own gates (`kipp verify`) on every checkpoint of the tree, in every kernel class that this
//! machine has, and perplexities.

mod perplexity;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::cargo_steps::without_warnings;
use crate::exec::{self, Done};
use crate::pool;
use crate::steps::{Context, Report};

/// Exit code of `kipp verify` for a gate that is not met.
const NOT_MET: i32 = 3;

/// `kipp verify` of one model in one kernel class.
struct Verify {
    model: String,
    reference: Option<String>,
    kernels: &'static str,
}

pub(crate) fn step(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let mut report = Report::default();
    let classes = classes(&mut report);
    let models = models(&context.root)?;
    let mut runs = Vec::new();
    for &kernels in &classes {
        runs.extend(models.iter().map(|(model, reference)| Verify {
            model: model.clone(),
            reference: reference.clone(),
            kernels,
        }));
    }
    let mut results = pool::each(&runs, |run| verify(context, run));
    results.extend(perplexity::all(context, &classes)?);
    report.say_all(results)?;
    Ok(report)
}

/// Kernel classes of the program that this processor can run; the others are skipped by name.
fn classes(report: &mut Report) -> Vec<&'static str> {
    let mut classes = vec!["scalar"];
    for (name, found) in found() {
        if found {
            classes.push(name);
        } else {
            report.skip(name, "this processor does not have it");
        }
    }
    classes
}

/// The classes that have instructions of their own, and whether this processor has them.
fn found() -> Vec<(&'static str, bool)> {
    [x86(), arm()].concat()
}

#[cfg(target_arch = "x86_64")]
fn x86() -> Vec<(&'static str, bool)> {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq");
    let vnni = avx512 && is_x86_feature_detected!("avx512vnni");
    vec![
        ("avx2", avx2),
        ("avx-vnni", avx2 && is_x86_feature_detected!("avxvnni")),
        ("avx512", avx512),
        ("avx512-vnni", vnni),
        ("avx512-bf16", vnni && is_x86_feature_detected!("avx512bf16")),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn x86() -> Vec<(&'static str, bool)> {
    ["avx2", "avx-vnni", "avx512", "avx512-vnni", "avx512-bf16"].map(|name| (name, false)).to_vec()
}

#[cfg(target_arch = "aarch64")]
fn arm() -> Vec<(&'static str, bool)> {
    use std::arch::is_aarch64_feature_detected;
    let dot = is_aarch64_feature_detected!("dotprod");
    vec![("neon", dot), ("neon-i8mm", dot && is_aarch64_feature_detected!("i8mm"))]
}

/// The step `neon` runs them emulated.
#[cfg(not(target_arch = "aarch64"))]
fn arm() -> Vec<(&'static str, bool)> {
    vec![("neon", false), ("neon-i8mm", false)]
}

/// Every checkpoint of the tree, with its reference where there is one.
fn models(root: &Path) -> Result<Vec<(String, Option<String>)>> {
    let golden = Some("testdata/kipp-tiny".to_owned());
    let mut models = vec![("kipp-tiny".to_owned(), golden.clone()), ("models/kipp-tiny".to_owned(), golden)];
    for name in entries(root, "testdata/odd", |path| path.join("config.json").is_file())? {
        models.push((name.clone(), Some(name)));
    }
    for name in entries(root, "testdata/quantized", |path| path.extension().is_some_and(|ext| ext == "gguf"))?
    {
        models.push((name, None));
    }
    Ok(models)
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

/// A line for a model that passes; an error with the whole table for one that does not.
fn verify(context: &Context, run: &Verify) -> Result<String> {
    // Runs already divide the processors among them.
    let mut args = vec!["verify", "--model", &run.model, "--kernels", run.kernels, "--threads", "1"];
    if let Some(reference) = &run.reference {
        args.extend(["--reference", reference]);
    }
    let done = exec::finish(exec::command(context.kipp(), &args, &context.root))?;
    let what = format!("{:6}  {}", run.kernels, run.model);
    match done.code {
        Some(0) => Ok(format!("{what}: {} ({:.1} s)", last_line(&done), done.took.as_secs_f64())),
        Some(NOT_MET) => bail!("{what}: a gate is not met\n{}", done.output()),
        code => {
            bail!("{what}: `kipp {}` ended with {}\n{}", args.join(" "), exec::ending(code), done.output())
        }
    }
}

/// The verdict that closes the table.
fn last_line(done: &Done) -> &str {
    done.stdout.trim_end().lines().last().unwrap_or("no table")
}
