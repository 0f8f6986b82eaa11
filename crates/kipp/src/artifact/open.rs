//! Putting an artifact together from its files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::binding::{Naming, bind};
use super::error::{ArtifactError, BindingError};
use super::escaped::Escaped;
use super::gguf::metadata::Metadata;
use super::gguf::{GgufError, GgufFile, open_parts, parts, spec, vocabulary};
use super::huggingface::{ConfigError, GenerationDefaults, Section, config_json, generation, read_object};
use super::map::Bytes;
use super::safetensors::open_shards;
use super::tokenizer_files::TokenizerFiles;
use super::{Artifact, FileKind, Inner, registration};
use crate::checkpoints::Source;
use crate::token::TokenId;

/// How errors call a model that is no file.
pub(super) const EMBEDDED: &str = "(embedded)";

/// Opens a Hugging Face folder.
pub(super) fn folder(folder: &Path) -> Result<Artifact, ArtifactError> {
    let config_path = folder.join("config.json");
    let Some(config) = read_object(&config_path)? else {
        let reason = "no config.json is there; a model is a GGUF file or a Hugging Face folder";
        return Err(ArtifactError::NotAModel { path: folder.to_owned(), reason });
    };
    let in_config = |error: ConfigError| ArtifactError::Config { path: config_path.clone(), error };
    let spec = config_json::read(&config).map_err(in_config)?;
    let spec = spec.validate().map_err(|error| ArtifactError::Spec { path: config_path.clone(), error })?;

    let generation_path = folder.join("generation_config.json");
    let mut generation = GenerationDefaults::default();
    if let Some(json) = read_object(&generation_path)? {
        generation = generation::read(&json)
            .map_err(|error| ArtifactError::Config { path: generation_path, error })?;
    }
    let mut stop_tokens = generation.eos_token_ids.clone();
    if stop_tokens.is_empty() {
        stop_tokens =
            Section::root(&config).token_ids("eos_token_id").map_err(in_config)?.unwrap_or_default();
    }

    let tokenizer = TokenizerFiles::from_folder(folder)?;
    let shards = open_shards(folder)?;
    let bound = bind(&shards.tensors, Naming::HuggingFace, &spec)
        .map_err(|error| ArtifactError::Binding { path: folder.to_owned(), error })?;
    Ok(Artifact(Arc::new(Inner {
        spec,
        kind: FileKind::HuggingFace,
        path: Some(folder.to_owned()),
        files: shards.paths.into_iter().map(Some).zip(shards.files).collect(),
        tensors: shards.tensors,
        bound,
        tokenizer,
        generation,
        stop_tokens,
        source: registration::snapshot_source(folder),
        warnings: OnceLock::new(),
        registration: OnceLock::new(),
    })))
}

/// Opens a GGUF file and its further parts.
pub(super) fn gguf_file(path: &Path) -> Result<Artifact, ArtifactError> {
    if path.extension().is_some_and(|extension| extension == "safetensors") {
        let reason = "weights alone are no model; give the folder that holds them and config.json";
        return Err(ArtifactError::NotAModel { path: path.to_owned(), reason });
    }
    let (file, files) = open_parts(path)?;
    let files = files.into_iter().map(|(path, bytes)| (Some(path), bytes)).collect();
    gguf(path, Some(path.to_owned()), file, files)
}

/// Opens a GGUF file in memory; it cannot be one of several parts.
pub(super) fn gguf_bytes(bytes: Bytes) -> Result<Artifact, ArtifactError> {
    let path = Path::new(EMBEDDED);
    let refuse = |error| ArtifactError::Gguf { path: path.to_owned(), error };
    let file = GgufFile::parse(bytes.clone()).map_err(refuse)?;
    if let Some((count, _)) = parts(&file).map_err(refuse)? {
        let reason = "a model in memory must be one whole file";
        return Err(refuse(GgufError::Split { part: 1, count, reason }));
    }
    gguf(path, None, file, vec![(None, bytes)])
}

fn gguf(
    shown_path: &Path,
    path: Option<PathBuf>,
    file: GgufFile,
    files: Vec<(Option<PathBuf>, Bytes)>,
) -> Result<Artifact, ArtifactError> {
    let refuse = |error| ArtifactError::Gguf { path: shown_path.to_owned(), error };
    let unbound = |error| ArtifactError::Binding { path: shown_path.to_owned(), error };
    let GgufFile { metadata, tensors, .. } = file;
    spec::check_architecture(&metadata).map_err(refuse)?;
    let naming = Naming::Gguf;
    let embedding = tensors
        .iter()
        .find(|tensor| tensor.name == naming.embedding())
        .ok_or_else(|| unbound(BindingError::Missing { tensor: naming.embedding().into() }))?;
    let vocab_size = embedding.shape[0];
    let tied = !tensors.iter().any(|tensor| tensor.name == naming.head());
    let spec = spec::read(&metadata, vocab_size, tied).map_err(refuse)?;
    let spec = spec.validate().map_err(|error| ArtifactError::Spec { path: shown_path.to_owned(), error })?;
    let bound = bind(&tensors, naming, &spec).map_err(unbound)?;
    let stop_tokens = vocabulary::stop_tokens(&metadata).map_err(refuse)?;
    let generation = generation_keys(&metadata, &stop_tokens).map_err(refuse)?;
    let source = source(&metadata).map_err(refuse)?;
    let tokenizer = TokenizerFiles::from_gguf(shown_path, metadata)?;
    Ok(Artifact(Arc::new(Inner {
        spec,
        kind: FileKind::Gguf,
        path,
        files,
        tensors,
        bound,
        tokenizer,
        generation,
        stop_tokens,
        source,
        warnings: OnceLock::new(),
        registration: OnceLock::new(),
    })))
}

/// Sampling defaults under the format's own keys.
fn generation_keys(metadata: &Metadata, stop_tokens: &[TokenId]) -> Result<GenerationDefaults, GgufError> {
    let within = |key: &str, low: f64, high: f64| {
        let value = metadata.decimal(key)?;
        match value.filter(|value| !(low..=high).contains(value)) {
            Some(value) => Err(GgufError::OutOfRange {
                key: key.into(),
                value: Escaped::text(&value.to_string()),
                expected: "the sampling parameter's range",
            }),
            None => Ok(value),
        }
    };
    Ok(GenerationDefaults {
        do_sample: metadata.boolean("kipp.generation.do_sample")?,
        temperature: within("general.sampling.temp", 0.0, f64::MAX)?,
        top_k: metadata.unsigned("general.sampling.top_k")?.map(|value| u32::try_from(value).unwrap_or(0)),
        top_p: within("general.sampling.top_p", 0.0, 1.0)?,
        min_p: within("general.sampling.min_p", 0.0, 1.0)?,
        repetition_penalty: within("general.sampling.penalty_repeat", f64::MIN_POSITIVE, 1000.0)?,
        eos_token_ids: stop_tokens.to_vec(),
    })
}

fn source(metadata: &Metadata) -> Result<Option<Source>, GgufError> {
    let repository = metadata.string("kipp.source.repository")?;
    let revision = metadata.string("kipp.source.revision")?;
    Ok(repository.zip(revision).map(|(repository, revision)| Source {
        repository: repository.to_owned(),
        revision: revision.to_owned(),
    }))
}
