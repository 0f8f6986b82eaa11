//! Files travel both ways: llama.cpp opens and runs what `kipp convert` writes, and Kipp opens and runs what
//! `llama-quantize` writes, within its own gates.

use anyhow::{Context as _, Result, bail};

use crate::json::Json;
use crate::steps::{Context, Report};

use super::llama::Llama;
use super::{converted, folder, kipp, text};

/// What `kipp convert` writes.
const WRITTEN: &[&str] = &["bf16", "f16", "q8_0", "q4_0", "q4_1"];

/// What we read of `llama-quantize`; it puts q6_k into the tied embedding of q4 files.
const QUANTIZED: &[&str] = &["q8_0", "q4_0", "q4_1"];

const PROMPT: &str = "Once upon a time";

pub(crate) fn step(context: &Context) -> Result<Report> {
    let llama = Llama::ready(context)?;
    let mut report = Report::default();
    for scheme in WRITTEN {
        report.say(format!("llama.cpp on Kipp's {scheme}: {}", llama_generates(context, &llama, scheme)?));
    }
    for scheme in QUANTIZED {
        report.say(format!("Kipp on llama.cpp's {scheme}: {}", kipp_generates(context, &llama, scheme)?));
    }
    Ok(report)
}

fn llama_generates(context: &Context, llama: &Llama, scheme: &str) -> Result<String> {
    let model = converted(context, scheme)?;
    let args =
        ["-m", text(&model)?, "-p", PROMPT, "-n", "16", "--temp", "0", "-no-cnv", "--no-display-prompt"];
    let done = llama.program(context, "llama-completion", &args)?;
    if done.stdout.trim().is_empty() {
        bail!("llama.cpp generates nothing from Kipp's {scheme} file\n{}", done.stderr);
    }
    Ok(start(&done.stdout))
}

fn kipp_generates(context: &Context, llama: &Llama, scheme: &str) -> Result<String> {
    let out = folder(context).join(format!("llama-{scheme}.gguf"));
    let out = text(&out)?;
    let source = converted(context, "bf16")?;
    llama.program(context, "llama-quantize", &[text(&source)?, out, &scheme.to_uppercase()])?;
    kipp(context, &["verify", "--model", out])?;
    let done = kipp(context, &["run", PROMPT, "--model", out, "--max-tokens", "16", "--json"])?;
    let json = Json::parse(&done.stdout).context("kipp run --json")?;
    if json.text("text")?.trim().is_empty() {
        bail!("Kipp generates nothing from llama.cpp's {scheme} file: {}", done.stdout);
    }
    Ok(start(json.text("text")?))
}

/// The start of a text on one line.
fn start(text: &str) -> String {
    let start: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(60).collect();
    format!("{start}...")
}
