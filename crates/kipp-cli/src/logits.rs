//! `kipp logits`: the raw logits of given ids as little-endian f32, for whoever wants to compare. Needs no tokenizer.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use kipp::TokenId;
use kipp::batch::{Answer, Ask};
use kipp::convert::check_destination;
use kipp::session::Session;
use serde::Serialize;

use crate::args::{BackendArgs, ContextArgs, JsonArg, ModelArg, StepArgs};
use crate::load::{BackendReport, Loaded, ModelReport};
use crate::outcome::Outcome;
use crate::output::OutputFile;
use crate::{input, load, open, report};

/// Memory for the logits of one step with `--all`: 110 rows of the widest vocabulary, so the head is still read once for
/// many rows.
const STEP_LOGITS_BYTES: usize = 64 << 20;

/// Flags of `kipp logits`.
#[derive(Args, Debug)]
pub(crate) struct LogitsArgs {
    /// File of token ids: whitespace-separated numbers or a JSON list
    #[arg(long, value_name = "FILE", env = "KIPP_IDS")]
    ids: PathBuf,
    /// File for the logits: little-endian f32, [positions, vocabulary]
    #[arg(short, long, value_name = "OUT.f32", env = "KIPP_OUTPUT")]
    output: PathBuf,
    /// Logits of every position instead of the last
    #[arg(long, env = "KIPP_ALL", value_parser = crate::args::value::switch, action = ArgAction::SetTrue)]
    all: bool,
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    step: StepArgs,
}

#[derive(Serialize)]
struct LogitsReport {
    path: String,
    positions: usize,
    vocab_size: usize,
    bytes: usize,
    model: ModelReport,
    backend: BackendReport,
}

/// Writes the logits.
pub(crate) fn run(args: &LogitsArgs) -> anyhow::Result<Outcome> {
    let ids = input::ids_file(&args.ids)?;
    let artifact = open::artifact(&args.model.model)?;
    let spec = load::spec(&artifact, &args.context.attention)?;
    let vocab_size = spec.vocab_size;
    input::check_ids(&ids, vocab_size).with_context(|| args.ids.display().to_string())?;
    let context = load::context_limit(&artifact, &spec, &args.context)?;
    if ids.len() > context.tokens {
        context.tell();
        bail!("{}: {} ids do not fit the context of {}", args.ids.display(), ids.len(), context.tokens);
    }
    check_destination(&artifact, &args.output)?;
    let replaces_ids = match (args.output.canonicalize(), args.ids.canonicalize()) {
        (Ok(output), Ok(ids)) => output == ids,
        _ => false,
    };
    anyhow::ensure!(!replaces_ids, "{}: the output would replace the ids", args.output.display());
    // Before the load, which may be long: a folder that is not there should not cost minutes.
    let mut out = OutputFile::create(&args.output)?;
    let room = args.step.options(args.context.attention.kv, ids.len());
    let mut loaded = load::forward(&artifact, spec, &args.backend, room)?;
    let positions = match args.all {
        true => write_all(&mut loaded, &ids, vocab_size, &mut out)?,
        false => {
            let mut session = Session::new(&mut *loaded.forward, &loaded.pool);
            write_row(session.append(&ids)?, &mut out)?;
            1
        }
    };
    out.finish()?;
    if args.json.json {
        report::json(&LogitsReport {
            path: args.output.display().to_string(),
            positions,
            vocab_size,
            bytes: positions * vocab_size * size_of::<f32>(),
            model: ModelReport::new(&artifact),
            backend: BackendReport::new(&*loaded.forward),
        })?;
    }
    Ok(Outcome::Done)
}

/// Every position's logits, a bounded number of rows at a time.
fn write_all(
    loaded: &mut Loaded,
    ids: &[TokenId],
    vocab_size: usize,
    out: &mut OutputFile,
) -> anyhow::Result<usize> {
    let rows = (STEP_LOGITS_BYTES / (vocab_size * size_of::<f32>())).clamp(1, loaded.forward.max_rows());
    let mut session = Session::new(&mut *loaded.forward, &loaded.pool);
    for step in ids.chunks(rows) {
        for answer in session.evaluate(step, |_| Ask::Logits)? {
            if let Answer::Logits(logits) = answer {
                write_row(&logits, out)?;
            }
        }
    }
    Ok(session.len())
}

fn write_row(logits: &[f32], out: &mut OutputFile) -> anyhow::Result<()> {
    for logit in logits {
        out.write_all(&logit.to_le_bytes()).context("writing the logits")?;
    }
    Ok(())
}
