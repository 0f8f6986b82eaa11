//! From one artifact to a GGUF file: a Hugging Face folder or another GGUF, in the scheme asked for, named and keyed as
//! llama.cpp has it, so that one file runs in both engines.
//!
//! Plain rounding, no calibration: the same source gives the same bytes, whatever the number of threads. The file is
//! written under a temporary name beside its destination and renamed when it is complete; a conversion that fails or is
//! stopped leaves nothing behind and destroys nothing.

mod keys;
mod tensors;
mod vocabulary;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kipp_kernels::Scheme;

use crate::artifact::gguf::writer::{GgufWriter, padding};
use crate::artifact::{Artifact, ArtifactError, Escaped};
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

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The source's tokenizer is unusable.
    #[error(transparent)]
    Source(#[from] ArtifactError),
    /// A scheme that is read but not written.
    #[error("the scheme {} is read but not written", .0.name())]
    ReadOnly(Scheme),
    /// A weight that is NaN or infinite.
    #[error("tensor {tensor}: the weight at index {index} is {value}; nothing was written")]
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
    /// The system refused.
    #[error("{}: {error}", Escaped::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The caller stopped it.
    #[error("the conversion was stopped; nothing was written")]
    Stopped,
}

/// Called with bytes done and bytes in all, both of the source (which is read twice: hashed, then converted). `Break`
/// stops the conversion.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Schemes that can be written.
pub const WRITTEN_SCHEMES: [Scheme; 5] =
    [Scheme::Bf16, Scheme::F16, Scheme::Q8_0, Scheme::Q4_0, Scheme::Q4_1];

/// Converts `source` into a GGUF file at `out`, replacing a file that is there.
pub fn convert(
    source: &Artifact,
    options: ConvertOptions,
    out: &Path,
    progress: Progress<'_>,
) -> Result<Converted, ConvertError> {
    let head = options.head.unwrap_or(match options.scheme.is_dense() {
        true => options.scheme,
        false => Scheme::Q8_0,
    });
    if let Some(scheme) = [options.scheme, head].into_iter().find(|scheme| !WRITTEN_SCHEMES.contains(scheme))
    {
        return Err(ConvertError::ReadOnly(scheme));
    }
    refuse_own_source(source, out)?;
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

    let partial = Partial::new(out);
    let written = partial.write(|file| {
        file.write_all(&writer.header()).map_err(|error| partial.io(error))?;
        for tensor in plan.steps() {
            tensor.write(&mut meter, |bytes| file.write_all(bytes).map_err(|error| partial.io(error)))?;
            let zeros = vec![0; padding(tensor.bytes())];
            file.write_all(&zeros).map_err(|error| partial.io(error))?;
        }
        Ok(())
    })?;
    partial.rename(out)?;
    Ok(Converted {
        bytes: written,
        tensors: plan.steps().len(),
        kept_dense: plan.kept_dense(),
        has_tokenizer: vocabulary.is_some(),
    })
}

fn refuse_own_source(source: &Artifact, out: &Path) -> Result<(), ConvertError> {
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

/// The file under its temporary name, removed unless it is renamed.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn new(out: &Path) -> Partial {
        let name = out.file_name().unwrap_or_default().to_string_lossy();
        Partial { path: out.with_file_name(format!(".{name}.{}.partial", std::process::id())) }
    }

    fn io(&self, error: io::Error) -> ConvertError {
        ConvertError::Io { path: self.path.clone(), error }
    }

    /// Writes the file to the disk and returns its size.
    fn write(
        &self,
        content: impl FnOnce(&mut BufWriter<File>) -> Result<(), ConvertError>,
    ) -> Result<u64, ConvertError> {
        let mut file = BufWriter::new(File::create(&self.path).map_err(|error| self.io(error))?);
        content(&mut file)?;
        let file = file.into_inner().map_err(|error| self.io(error.into_error()))?;
        // On the disk before the old file goes: a power cut must leave one of the two.
        file.sync_all().map_err(|error| self.io(error))?;
        Ok(file.metadata().map_err(|error| self.io(error))?.len())
    }

    fn rename(self, out: &Path) -> Result<(), ConvertError> {
        std::fs::rename(&self.path, out).map_err(|error| self.io(error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After a rename there is nothing under this name; another failure cannot be reported from here.
        let _ = std::fs::remove_file(&self.path);
    }
}
