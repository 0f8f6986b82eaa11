//! From what `--model` says to an artifact or a tokenizer. Nothing here reads weights.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kipp::artifact::{Artifact, TokenizerFiles};
use kipp::tokenizer::Tokenizer;

use crate::args::EMBEDDED_MODEL;
use crate::report;

/// The demonstration model: small enough to be part of the program, so that the first command works offline.
static EMBEDDED: &[u8] = include_bytes!("../../../models/kipp-tiny/kipp-tiny.gguf");

/// Where a model is.
enum Place {
    Embedded,
    Path(PathBuf),
}

/// Finds the model.
fn resolve(model: &str) -> anyhow::Result<Place> {
    if model == EMBEDDED_MODEL {
        return Ok(Place::Embedded);
    }
    let path = Path::new(model);
    match path.try_exists() {
        Ok(true) => Ok(Place::Path(path.to_owned())),
        Ok(false) => bail!(
            "{model}: no such file or folder. A model is a .gguf file, a Hugging Face folder, or {EMBEDDED_MODEL}; \
             registry ids (qwen3-0.6b) and owner/name need `kipp pull`, which this version does not have yet"
        ),
        Err(error) => Err(error).with_context(|| model.to_owned()),
    }
}

/// Opens a model, and tells what is odd about it.
pub(crate) fn artifact(model: &str) -> anyhow::Result<Artifact> {
    let artifact = match resolve(model)? {
        Place::Embedded => Artifact::from_bytes(EMBEDDED)?,
        Place::Path(path) => Artifact::open(path)?,
    };
    for warning in artifact.warnings() {
        report::note(&format!("warning: {warning}"));
    }
    Ok(artifact)
}

/// Opens what a model says about its tokenizer; weights need not be there.
pub(crate) fn tokenizer_files(model: &str) -> anyhow::Result<TokenizerFiles> {
    Ok(match resolve(model)? {
        Place::Embedded => Artifact::from_bytes(EMBEDDED)?.tokenizer_files().clone(),
        Place::Path(path) => TokenizerFiles::open(path)?,
    })
}

/// Rows of a model's output head, if it is whole enough to tell.
pub(crate) fn rows(model: &str) -> Option<usize> {
    let artifact = match resolve(model).ok()? {
        Place::Embedded => Artifact::from_bytes(EMBEDDED),
        Place::Path(path) => Artifact::open(path),
    };
    Some(artifact.ok()?.spec().vocab_size)
}

/// Builds the tokenizer.
pub(crate) fn tokenizer(files: &TokenizerFiles) -> anyhow::Result<Tokenizer> {
    Tokenizer::from_source(&files.source()?).with_context(|| files.path().display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_says_what_a_model_is() {
        for model in ["qwen3-0.6b", "Qwen/Qwen3-0.6B", "missing.gguf", ""] {
            let error = resolve(model).err().unwrap().to_string();
            assert!(error.contains("kipp pull") && error.contains("kipp-tiny"), "{error}");
        }
    }
}
