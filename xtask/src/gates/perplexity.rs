//! Perplexity of the reference text: that of plain loops in f32 is the reference's, and for every scheme and class that of
//! coded activations is near the oracle's on the same file.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::json::Json;
use crate::pool;
use crate::steps::Context;

/// The bound on the relative distance between our perplexity and the reference's.
const BOUND: f64 = 1e-4;

/// What coded activations may cost: the bound on the relative distance of a file's perplexity from the oracle's. It stands
/// far above what they do cost (some 0.01 %), so that two bits of a scheme read wrongly are still seen.
const CODED_BOUND: f64 = 3e-3;

/// The oracle's mean negative log-likelihoods, by model: some twenty seconds each, so that they are computed again in
/// `cargo xtask full` alone.
const ORACLE: &str = "testdata/quantized/oracle-nll.json";

/// The bound on the relative distance of a value computed again from the committed one, which has all its digits.
const FROZEN_BOUND: f64 = 1e-9;

/// One perplexity and what it is held against.
struct Case {
    model: String,
    flags: Vec<String>,
    expected: f64,
    bound: f64,
}

/// All perplexities: a line for each that is near enough, an error for each that is not.
pub(super) fn all(context: &Context, classes: &[String]) -> Result<Vec<Result<String>>> {
    let read = |path: &str| -> Result<Json> {
        Json::parse(&fs::read_to_string(context.root.join(path)).with_context(|| path.to_owned())?)
    };
    let reference = read("testdata/kipp-tiny/perplexity.json")?.number("ppl")?;
    let mut cases = Vec::new();
    for flags in [vec!["--backend", "oracle"], vec!["--activations", "f32", "--kv", "f32"]] {
        let flags = flags.into_iter().map(str::to_owned).collect();
        cases.push(Case { model: "kipp-tiny".to_owned(), flags, expected: reference, bound: BOUND });
    }
    let oracle = read(ORACLE)?;
    let quantized = super::entries(&context.root, "testdata/quantized", |path| {
        path.extension().is_some_and(|e| e == "gguf")
    })?;
    for model in quantized.into_iter().chain(["models/kipp-tiny".to_owned()]) {
        let name = Path::new(&model).file_stem().unwrap_or_default().to_string_lossy();
        let expected = oracle.number(&name).context(ORACLE)?.exp();
        let case = |flag: &str, value: &str, bound| {
            let flags = vec![flag.to_owned(), value.to_owned()];
            Case { model: model.clone(), flags, expected, bound }
        };
        if context.full {
            cases.push(case("--backend", "oracle", FROZEN_BOUND));
        }
        // Plain Rust takes a minute a file; its bits are the other classes'.
        let classes = classes.iter().filter(|class| context.full || *class != "scalar");
        cases.extend(classes.map(|class| case("--kernels", class, CODED_BOUND)));
    }
    Ok(pool::each(&cases, |case| check(context, case)))
}

fn check(context: &Context, case: &Case) -> Result<String> {
    let Case { model, flags, expected, bound } = case;
    let mut args = vec!["perplexity", "testdata/kipp-tiny/sampled.u32", "--model", model, "--ids"];
    // Cases already divide the processors among them.
    args.extend(["--window", "256", "--json", "--threads", "1"]);
    args.extend(flags.iter().map(String::as_str));
    let done = exec::succeed(exec::command(context.kipp(), &args, &context.root))?;
    let found = Json::parse(&done.stdout)?.number("ppl")?;
    let distance = (found - expected).abs() / expected;
    let line = format!(
        "perplexity of {model} {}: {found:.6}, expected {expected:.6}, distance {distance:.1e}",
        flags.join(" ")
    );
    // Also false for a perplexity that is no number.
    if distance <= *bound { Ok(line) } else { bail!("{line}, bound {bound:.0e}") }
}
