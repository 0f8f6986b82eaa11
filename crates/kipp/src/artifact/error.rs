//! Why a model file or folder is refused: always with the file, and with the key, tensor, field or offset.

use std::io;
use std::path::{Path, PathBuf};

use super::escaped::Escaped;
use super::gguf::GgufError;
use super::huggingface::ConfigError;
use super::safetensors::SafetensorsError;
use crate::spec::SpecError;

/// Why an artifact cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The system refused.
    #[error("{}: {error}", Escaped::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A path that is no model.
    #[error("{}: {reason}", Escaped::path(path))]
    NotAModel {
        /// The file or folder.
        path: PathBuf,
        /// What was expected.
        reason: &'static str,
    },
    /// A malformed GGUF file.
    #[error("{}: {error}", Escaped::path(path))]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: GgufError,
    },
    /// A malformed safetensors file or index.
    #[error("{}: {error}", Escaped::path(path))]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: SafetensorsError,
    },
    /// A malformed or unsupported configuration file.
    #[error("{}: {error}", Escaped::path(path))]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ConfigError,
    },
    /// Dimensions that describe no model.
    #[error("{}: {error}", Escaped::path(path))]
    Spec {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: SpecError,
    },
    /// Tensors that are not those of the model.
    #[error("{}: {error}", Escaped::path(path))]
    Binding {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        error: BindingError,
    },
    /// The tokenizer is absent or is none that Kipp reads.
    #[error("{}: {error}", Escaped::path(path))]
    Tokenizer {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        error: TokenizerFilesError,
    },
}

/// Why a file's tensors are not the model's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BindingError {
    /// A tensor that the model needs is absent.
    #[error("the tensor {tensor} is missing")]
    Missing {
        /// Its name in this format.
        tensor: Escaped,
    },
    /// A tensor that the model does not have.
    #[error("the tensor {tensor} is none of the model's")]
    Extra {
        /// Its name.
        tensor: Escaped,
    },
    /// A tensor of another shape than the dimensions say.
    #[error("tensor {tensor}: expected shape {expected:?}, found {found:?} (outermost dimension first)")]
    Shape {
        /// The tensor.
        tensor: Escaped,
        /// What the dimensions say.
        expected: Vec<usize>,
        /// What the file says.
        found: Vec<usize>,
    },
    /// A tensor stored in a way that Kipp does not read.
    #[error("tensor {tensor}: the type {found} is not supported here ({supported})")]
    Type {
        /// The tensor.
        tensor: Escaped,
        /// Its type.
        found: &'static str,
        /// What is.
        supported: String,
    },
    /// A weight that is NaN or infinite.
    #[error("tensor {tensor}: the weight at index {index} is not finite")]
    NotFinite {
        /// The tensor.
        tensor: Escaped,
        /// Index in the tensor, row by row.
        index: usize,
    },
}

/// Why a tokenizer cannot be had from an artifact.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TokenizerFilesError {
    /// There is none.
    #[error("no tokenizer: {what} is absent")]
    Absent {
        /// What was looked for.
        what: &'static str,
    },
    /// A vocabulary of another kind.
    #[error("{key}: {value} is not supported ({supported})")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// The value.
        value: Escaped,
        /// What is.
        supported: &'static str,
    },
    /// Two lists that belong together differ in length.
    #[error("{key} has {found} items for {tokens} tokens")]
    Length {
        /// The key.
        key: &'static str,
        /// Items found.
        found: usize,
        /// Tokens of the vocabulary.
        tokens: usize,
    },
    /// A kind of token that a byte-level vocabulary does not have.
    #[error("tokenizer.ggml.token_type: item {index} is {value}; a byte-level vocabulary has 1, 3, 4 and 5")]
    TokenKind {
        /// Which token.
        index: usize,
        /// The value found.
        value: i64,
    },
}

impl ArtifactError {
    pub(crate) fn io(path: &Path, error: io::Error) -> ArtifactError {
        ArtifactError::Io { path: path.to_owned(), error }
    }
}
