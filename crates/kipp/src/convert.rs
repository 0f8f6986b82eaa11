//! From one artifact to a GGUF file: a Hugging Face folder or another GGUF, in the scheme asked for, named and keyed as
//! llama.cpp has it, so that one file runs in both engines.
//!
//! Plain rounding, no calibration: the same source gives the same bytes, whatever the number of threads. Where they go,
//! and that nobody takes half a file for a model, is the caller's business.

mod keys;
mod tensors;
mod vocabulary;

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use kipp_kernels::Scheme;

use crate::artifact::gguf::writer::{GgufWriter, padding};
use crate::artifact::{Artifact, ArtifactError, Escaped};
use crate::tokenizer::TokenizerError;
use tensors::Plan;

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertOptions {
    /// Scheme of the matrices.
    pub scheme: Scheme,
    /// Scheme of embedding and output head; by default q8_0 where `scheme` is quantized, else `scheme` itself.
    pub head: Option<Scheme>,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Bytes of the file.
    pub bytes: u64,
    /// Tensors in it.
    pub tensors: usize,
    /// Tensors that kept a dense scheme because their rows are no whole number of groups, with that scheme.
    pub kept_dense: Vec<(String, Scheme)>,
    /// Whether the file carries a tokenizer; it does where the source has one.
    pub has_tokenizer: bool,
}

/// Why there is no converted file.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The source's tokenizer files are unusable.
    #[error(transparent)]
    Source(#[from] ArtifactError),
    /// The source's tokenizer is none that Kipp runs, or has more tokens than the model has rows.
    #[error("{}: {error}", Escaped::path(path))]
    Tokenizer {
        /// The source's folder or file.
        path: PathBuf,
        /// What is wrong.
        error: TokenizerError,
    },
    /// A scheme that is read but not written.
    #[error("the scheme {} is read but not written", .0.name())]
    ReadOnly(Scheme),
    /// A weight that is NaN or infinite.
    #[error("tensor {tensor}: the weight at index {index} is {value}; only finite weights are converted")]
    NotFinite {
        /// The tensor.
        tensor: Escaped,
        /// Index in the tensor, row by row.
        index: usize,
        /// The weight.
        value: f32,
    },
    /// The destination is a file of the source.
    #[error("{}: the output would replace its own source", Escaped::path(.0))]
    OverSource(PathBuf),
    /// The destination does not take the bytes.
    #[error("the converted file cannot be written: {0}")]
    Write(#[from] io::Error),
    /// The caller stopped it.
    #[error("the conversion was stopped")]
    Stopped,
}

/// Called with bytes done and bytes in all, both of the source (which is read twice: hashed, then converted). `Break`
/// stops the conversion.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Schemes that can be written.
pub static WRITTEN_SCHEMES: LazyLock<Vec<Scheme>> =
    LazyLock::new(|| Scheme::ALL.iter().copied().filter(|scheme| scheme.converts()).collect());

/// Converts `source` into a GGUF file that goes to `out` from its first byte to its last. What is written before an
/// error is no model: a caller that writes to a file should do so under another name and rename it.
pub fn convert(
    source: &Artifact,
    options: ConvertOptions,
    out: &mut impl Write,
    progress: Progress<'_>,
) -> Result<Converted, ConvertError> {
    let head = options.head.unwrap_or(match options.scheme.is_dense() {
        true => options.scheme,
        false => Scheme::Q8_0,
    });
    if let Some(scheme) = [options.scheme, head].into_iter().find(|scheme| !scheme.converts()) {
        return Err(ConvertError::ReadOnly(scheme));
    }
    let vocabulary = vocabulary::of(source)?;
    let weights = source.weights();
    let plan = Plan::new(&weights, options.scheme, head);
    let mut meter = Meter { done: 0, total: source.file().bytes + plan.source_bytes(), progress };

    let mut writer = GgufWriter::default();
    let files = keys::hash_files(source, &mut meter)?;
    keys::model(&mut writer, source, options.scheme, &files);
    keys::tokenizer(&mut writer, source, vocabulary.as_ref());
    keys::provenance(&mut writer, source, (options.scheme, head), files);
    plan.tensors().for_each(|tensor| writer.tensor(tensor));

    let header = writer.header();
    out.write_all(&header)?;
    let mut written = header.len() as u64;
    for tensor in plan.steps() {
        tensor.write(&mut meter, |bytes| Ok(out.write_all(bytes)?))?;
        let padding = padding(tensor.bytes());
        out.write_all(&vec![0; padding])?;
        written += tensor.bytes() + padding as u64;
    }
    out.flush()?;
    Ok(Converted {
        bytes: written,
        tensors: plan.steps().len(),
        kept_dense: plan.kept_dense(),
        has_tokenizer: vocabulary.is_some(),
    })
}

/// Refuses a destination that is a file of the source, which writing would destroy. To be asked before it is opened.
pub fn check_destination(source: &Artifact, out: &Path) -> Result<(), ConvertError> {
    let Ok(target) = out.canonicalize() else { return Ok(()) };
    let is_source = |path: &Path| path.canonicalize().is_ok_and(|path| path == target);
    if source.weight_paths().any(is_source) { Err(ConvertError::OverSource(out.to_owned())) } else { Ok(()) }
}

/// Counts what is done and asks whether to go on.
struct Meter<'a> {
    done: u64,
    total: u64,
    progress: Progress<'a>,
}

impl Meter<'_> {
    fn add(&mut self, bytes: usize) -> Result<(), ConvertError> {
        self.done += bytes as u64;
        match (self.progress)(self.done, self.total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ConvertError::Stopped),
        }
    }
}
