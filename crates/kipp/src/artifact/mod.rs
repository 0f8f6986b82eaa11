//! The file on disk, hostile until proven.
//!
//! [`Artifact::open`] maps a GGUF file or a Hugging Face folder, checks every length, offset, type and name in it, and
//! binds each tensor to its place in the model. What it hands out can be relied on: tensors lie inside their files,
//! have the shapes that the specification says, and none is missing. The weights themselves are not read (see
//! [`weights`]).

pub(crate) mod binding;
pub(crate) mod cursor;
mod error;
mod escaped;
pub mod gguf;
pub mod huggingface;
pub(crate) mod json;
mod map;
mod open;
mod registration;
pub mod safetensors;
mod tensor;
mod tokenizer_files;
pub mod weights;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kipp_kernels::Scheme;
use rayon::prelude::*;

use crate::checkpoints::Source;
use crate::spec::ModelSpec;
use crate::token::TokenId;
use binding::Bound;
use registration::{Evidence, WeightFile};
use tensor::TensorEntry;

pub use error::{ArtifactError, BindingError, TokenizerFilesError};
pub use escaped::Escaped;
pub use gguf::vocabulary::GgufVocabulary;
pub use huggingface::generation::GenerationDefaults;
pub use map::Bytes;
pub use registration::{Registration, sha256_file};
pub use tokenizer_files::{SpecialIds, TokenizerFiles, TokenizerSource};
pub use weights::{LayerWeights, Matrix, Vector, Weights};

/// A checked model. Cheap to clone; the files stay mapped while a clone lives.
#[derive(Clone)]
pub struct Artifact(Arc<Inner>);

struct Inner {
    spec: ModelSpec,
    kind: FileKind,
    /// The file or folder that was opened; `None` for embedded bytes.
    path: Option<PathBuf>,
    /// Weight files, as tensors number them.
    files: Vec<(Option<PathBuf>, Bytes)>,
    tensors: Vec<TensorEntry>,
    bound: Bound,
    tokenizer: TokenizerFiles,
    generation: GenerationDefaults,
    stop_tokens: Vec<TokenId>,
    source: Option<Source>,
    warnings: OnceLock<Vec<String>>,
    registration: OnceLock<Registration>,
}

/// What kind of file an artifact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// One GGUF file, or one in parts.
    Gguf,
    /// A Hugging Face folder.
    HuggingFace,
}

impl FileKind {
    /// As reports spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            FileKind::Gguf => "gguf",
            FileKind::HuggingFace => "huggingface",
        }
    }
}

/// Where an artifact lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Which format.
    pub kind: FileKind,
    /// The file or folder; `None` for a model embedded in the program.
    pub path: Option<PathBuf>,
    /// Bytes of all weight files.
    pub bytes: u64,
}

/// One tensor of an artifact, for reports.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its name in the file.
    pub name: &'a str,
    /// How it is stored.
    pub scheme: Scheme,
    /// Outermost dimension first.
    pub shape: &'a [usize],
}

impl Artifact {
    /// Opens a GGUF file (the first of its parts, where it has several) or a Hugging Face folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Artifact, ArtifactError> {
        let path = path.as_ref();
        if path.is_dir() { open::folder(path) } else { open::gguf_file(path) }
    }

    /// Opens a GGUF file that is part of the program.
    pub fn from_bytes(bytes: &'static [u8]) -> Result<Artifact, ArtifactError> {
        open::gguf_bytes(Bytes::embedded(bytes))
    }

    /// Opens a GGUF file held in memory.
    pub fn from_vec(bytes: Vec<u8>) -> Result<Artifact, ArtifactError> {
        open::gguf_bytes(Bytes::from(bytes))
    }

    /// The model's dimensions.
    pub fn spec(&self) -> &ModelSpec {
        &self.0.spec
    }

    /// The model's weights, as views into the files.
    pub fn weights(&self) -> Weights<'_> {
        let bound = &self.0.bound;
        Weights {
            embedding: self.matrix(bound.embedding),
            layers: bound.layers.iter().map(|layer| self.layer(layer)).collect(),
            final_norm: self.vector(bound.final_norm),
            head: bound.head.map(|index| self.matrix(index)),
        }
    }

    fn layer(&self, layer: &[usize; 11]) -> LayerWeights<'_> {
        let [attn_norm, q, k, v, o, q_norm, k_norm, ffn_norm, gate, up, down] = *layer;
        LayerWeights {
            attn_norm: self.vector(attn_norm),
            q: self.matrix(q),
            k: self.matrix(k),
            v: self.matrix(v),
            o: self.matrix(o),
            q_norm: self.vector(q_norm),
            k_norm: self.vector(k_norm),
            ffn_norm: self.vector(ffn_norm),
            gate: self.matrix(gate),
            up: self.matrix(up),
            down: self.matrix(down),
        }
    }

    fn matrix(&self, index: usize) -> Matrix<'_> {
        let (tensor, bytes) = self.stored(index);
        let (rows, cols) = (tensor.shape[0], tensor.shape[1]); // bound with two dimensions
        Matrix { name: &tensor.name, scheme: scheme(tensor), rows, cols, bytes }
    }

    fn vector(&self, index: usize) -> Vector<'_> {
        let (tensor, bytes) = self.stored(index);
        Vector { name: &tensor.name, scheme: scheme(tensor), len: tensor.len(), bytes }
    }

    fn stored(&self, index: usize) -> (&TensorEntry, &[u8]) {
        let tensor = &self.0.tensors[index];
        (tensor, &self.0.files[tensor.file].1[tensor.range.clone()])
    }

    /// The tensors that the model uses, in file order.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        let bound = &self.0.bound;
        let passed_over =
            move |index: &usize| bound.empty.contains(index) || bound.unused_head == Some(*index);
        self.0
            .tensors
            .iter()
            .enumerate()
            .filter(move |(index, _)| !passed_over(index))
            .map(|(_, tensor)| Tensor { name: &tensor.name, scheme: scheme(tensor), shape: &tensor.shape })
    }

    /// Weights of the model, a tied head counted once.
    pub fn parameters(&self) -> u64 {
        self.tensors().map(|tensor| tensor.shape.iter().product::<usize>() as u64).sum()
    }

    /// The scheme that most weights are stored in: how reports name the file.
    pub fn scheme(&self) -> Scheme {
        let mut weights = vec![0u64; Scheme::ALL.len()];
        for tensor in self.tensors() {
            if let Some(at) = Scheme::ALL.iter().position(|scheme| *scheme == tensor.scheme) {
                weights[at] += tensor.shape.iter().product::<usize>() as u64;
            }
        }
        let most = (0..weights.len()).max_by_key(|&at| weights[at]).unwrap_or(0);
        Scheme::ALL[most]
    }

    /// What the artifact says about its tokenizer.
    pub fn tokenizer_files(&self) -> &TokenizerFiles {
        &self.0.tokenizer
    }

    /// The vocabulary's source; refused where there is none. See [`TokenizerFiles::source`].
    pub fn tokenizer_source(&self) -> Result<TokenizerSource, ArtifactError> {
        self.0.tokenizer.source()
    }

    /// The chat template, where the files have one.
    pub fn chat_template(&self) -> Option<&str> {
        self.0.tokenizer.chat_template()
    }

    /// The special tokens' ids.
    pub fn special_ids(&self) -> SpecialIds {
        self.0.tokenizer.special_ids()
    }

    /// Sampling defaults.
    pub fn generation(&self) -> &GenerationDefaults {
        &self.0.generation
    }

    /// Tokens that end an answer.
    pub fn stop_tokens(&self) -> &[TokenId] {
        &self.0.stop_tokens
    }

    /// Repository and revision that the weights come from, as the cache's layout or the file's own keys say.
    pub fn source(&self) -> Option<&Source> {
        self.0.source.as_ref()
    }

    /// Whether this is a registered checkpoint. The first call may read all weight files to hash them.
    pub fn registration(&self) -> Registration {
        *self.0.registration.get_or_init(|| self.evidence().prove())
    }

    /// The same without hashing large files: a pinned snapshot counts as claimed until [`Artifact::registration`] was
    /// called. For programs that will not wait.
    pub fn quick_registration(&self) -> Registration {
        let evidence = self.evidence();
        if self.0.registration.get().is_some() || evidence.is_quick() {
            return self.registration();
        }
        evidence.unproved()
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            folder: self.0.path.as_deref().filter(|_| self.0.kind == FileKind::HuggingFace),
            files: self
                .0
                .files
                .iter()
                .map(|(path, bytes)| WeightFile { path: path.as_deref(), bytes })
                .collect(),
            claimed: self.source(),
            spec: self.spec(),
        }
    }

    /// The weight files with their bytes, as tensors number them.
    pub(crate) fn weight_bytes(&self) -> impl Iterator<Item = (Option<&Path>, &[u8])> {
        self.0.files.iter().map(|(path, bytes)| (path.as_deref(), &bytes[..]))
    }

    /// Gives the memory of the weight files back to the system; see [`Bytes::release_pages`]. For whoever has copied what
    /// it needs of them.
    pub(crate) fn release_pages(&self) {
        self.0.files.iter().for_each(|(_, bytes)| bytes.release_pages());
    }

    /// Where the weight files lie.
    pub fn weight_paths(&self) -> impl Iterator<Item = &Path> {
        self.0.files.iter().filter_map(|(path, _)| path.as_deref())
    }

    /// A short name: the checkpoint's id, else the repository's, the file's or the folder's.
    pub fn id(&self) -> String {
        if let Some(checkpoint) = self.quick_registration().checkpoint() {
            return checkpoint.id.to_owned();
        }
        let of_source = self.source().and_then(|source| source.repository.rsplit('/').next());
        let of_path = || {
            let path = self.0.path.as_deref()?;
            let name = match self.0.kind {
                FileKind::Gguf => path.file_stem(),
                FileKind::HuggingFace => path.file_name(),
            };
            Some(name?.to_string_lossy().into_owned())
        };
        of_source.map(str::to_owned).or_else(of_path).unwrap_or_else(|| "model".to_owned())
    }

    /// Where the artifact lies.
    pub fn file(&self) -> FileInfo {
        let bytes = self.0.files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        FileInfo { kind: self.0.kind, path: self.0.path.clone(), bytes }
    }

    /// What is odd about the files without making them unusable. The first call may compare two tensors.
    pub fn warnings(&self) -> &[String] {
        self.0.warnings.get_or_init(|| {
            let mut warnings = Vec::new();
            if let Some(head) = self.0.bound.unused_head
                && self.differ(head, self.0.bound.embedding)
            {
                warnings.push(format!(
                    "tie_word_embeddings is true, so the embedding is the output head; {} differs from it and is \
                     not used",
                    Escaped::text(&self.0.tensors[head].name)
                ));
            }
            for &index in &self.0.bound.empty {
                let name = Escaped::text(&self.0.tensors[index].name);
                warnings.push(format!("the tensor {name} is none of the model's; it holds no weights and is not used"));
            }
            warnings
        })
    }

    fn differ(&self, a: usize, b: usize) -> bool {
        let ((a, a_bytes), (b, b_bytes)) = (self.stored(a), self.stored(b));
        const CHUNK_BYTES: usize = 1 << 20;
        a.scheme != b.scheme
            || a_bytes.par_chunks(CHUNK_BYTES).zip(b_bytes.par_chunks(CHUNK_BYTES)).any(|(a, b)| a != b)
    }

    /// Refuses weights that hold NaN or an infinity. Reads all of them; preparing a model checks each matrix as it
    /// goes and does not need this.
    pub fn check_finite(&self) -> Result<(), ArtifactError> {
        let path = self.0.path.clone().unwrap_or_else(|| open::EMBEDDED.into());
        self.weights().check_finite().map_err(|error| ArtifactError::Binding { path, error })
    }
}

/// Bound tensors have a scheme; what has none was refused or passed over.
fn scheme(tensor: &TensorEntry) -> Scheme {
    tensor.scheme.unwrap_or(Scheme::F32)
}

impl std::fmt::Debug for Artifact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Artifact")
            .field("file", &self.file())
            .field("spec", &self.0.spec)
            .finish_non_exhaustive()
    }
}
