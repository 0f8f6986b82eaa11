//! Speed at a true shape: Qwen3-0.6B with random weights, as the GGUF file that `kipp convert` makes of it.

use anyhow::{Context as _, Result, bail};

use crate::cargo_steps::without_warnings;
use crate::json::Json;
use crate::smoke;
use crate::steps::{Context, Report};

use super::{checkpoint, folder, kipp, text};

/// What two cores give at the least, tok/s. Below these something is broken, not slow.
const LEAST_PREFILL: f64 = 20.0;
const LEAST_DECODE: f64 = 3.0;

/// Runs at most, of which one must be fast enough.
const TRIES: usize = 3;

/// About 120 tokens, so that prefill is more than its start.
const SENTENCE: &str =
    "The quick brown fox jumps over the lazy dog while the sun goes down behind the hills. ";
const SENTENCES: usize = 6;

pub(crate) fn step(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let mut report = Report::default();
    let source = folder(context).join("qwen3-0.6b-random");
    if !source.join("model.safetensors").is_file() {
        checkpoint::write(&source, &context.root.join("testdata/qwen3-tokenizer"))?;
    }
    let model = folder(context).join("qwen3-0.6b-random.gguf");
    let converted = kipp(context, &["convert", text(&source)?, "-o", text(&model)?, "--scheme", "bf16"])?;
    report.say(format!("convert to bf16 GGUF: {:.1} s", converted.took.as_secs_f64()));
    for model in [&source, &model] {
        report.say(speed(context, text(model)?)?);
    }
    Ok(report)
}

/// The first run that is fast enough: other work on the machine can only slow one down.
fn speed(context: &Context, model: &str) -> Result<String> {
    let prompt = SENTENCE.repeat(SENTENCES);
    let args = ["run", prompt.trim_end(), "--model", model, "--max-tokens", "24", "--ignore-eos", "--json"];
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let done = kipp(context, &args)?;
        let json = Json::parse(&done.stdout).context("kipp run --json")?;
        let line = smoke::speed(&json)?;
        let (prefill, decode) = (json.number("timings.prefill_tok_s")?, json.number("timings.decode_tok_s")?);
        if prefill >= LEAST_PREFILL && decode >= LEAST_DECODE {
            return Ok(line);
        }
        seen.push(line);
    }
    bail!("at least {LEAST_PREFILL} and {LEAST_DECODE} tok/s are expected\n{}", seen.join("\n"))
}
