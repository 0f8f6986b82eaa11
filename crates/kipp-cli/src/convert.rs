//! `kipp convert`: a Hugging Face folder or GGUF file to a GGUF file. The same source gives the same bytes.
//!
//! A file that is already at OUT is replaced, as compilers and copiers do, but only once the new one is whole; a
//! conversion that fails or is interrupted leaves it as it was, and the source is never replaced.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kipp::Scheme;
use kipp::convert::{ConvertError, ConvertOptions, check_destination, convert};

use crate::args::{self, JsonArg};
use crate::outcome::Outcome;
use crate::output::OutputFile;
use crate::progress::Progress;
use crate::{interrupt, open, report};
use serde::Serialize;

/// Flags of `kipp convert`.
#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// A .gguf file, a Hugging Face folder, or kipp-tiny
    #[arg(value_name = "SRC")]
    source: String,
    /// The file to write; one that is there is replaced
    #[arg(short, long, value_name = "OUT.gguf", env = "KIPP_OUTPUT")]
    output: PathBuf,
    /// Scheme of the weights: bf16, f16, q8_0, q4_0 or q4_1
    #[arg(long, value_name = "S", env = "KIPP_SCHEME", value_parser = args::written_scheme)]
    scheme: Scheme,
    /// Scheme of embedding and output head [default: q8_0 for quantized schemes, else the same]
    #[arg(long, value_name = "S", env = "KIPP_HEAD", value_parser = args::written_scheme)]
    head: Option<Scheme>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Serialize)]
struct ConvertReport {
    path: String,
    bytes: u64,
    tensors: usize,
    scheme: &'static str,
    tokenizer: bool,
    kept_dense: Vec<String>,
}

/// Writes the file.
pub(crate) fn run(args: &ConvertArgs) -> anyhow::Result<Outcome> {
    let source = open::artifact(&args.source)?;
    check_destination(&source, &args.output)?;
    let mut file = OutputFile::create(&args.output)?;
    let graceful = interrupt::graceful();
    let mut progress = Progress::new("converting {bar:30} {bytes}/{total_bytes} {eta}");
    let options = ConvertOptions { scheme: args.scheme, head: args.head };
    let result = convert(&source, options, &mut file, &mut |done, total| {
        progress.update(done, total);
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.finish();
    drop(graceful);
    let converted = match result {
        Err(ConvertError::Stopped) => return Ok(Outcome::Interrupted),
        Err(ConvertError::Write(error)) => {
            return Err(error).with_context(|| args.output.display().to_string());
        }
        result => result?,
    };
    file.finish()?;
    for (tensor, scheme) in &converted.kept_dense {
        report::note(&format!(
            "note: {tensor} stays {}: its rows are no whole number of groups",
            scheme.name()
        ));
    }
    if !converted.has_tokenizer {
        report::note("note: the source has no tokenizer, so the file has none");
    }
    let path = args.output.display().to_string();
    if args.json.json {
        report::json(&ConvertReport {
            path,
            bytes: converted.bytes,
            tensors: converted.tensors,
            scheme: args.scheme.name(),
            tokenizer: converted.has_tokenizer,
            kept_dense: converted.kept_dense.into_iter().map(|(tensor, _)| tensor).collect(),
        })?;
    } else {
        report::note(&format!("{path}: {} tensors, {}", converted.tensors, report::bytes(converted.bytes)));
    }
    Ok(Outcome::Done)
}
