//! What an artifact says about its tokenizer, without its weights: the vocabulary's source, the chat template, the
//! special ids. The tokenizer itself is built by `tokenizer`.

use std::path::{Path, PathBuf};

use super::error::{ArtifactError, TokenizerFilesError};
use super::gguf::metadata::Metadata;
use super::gguf::vocabulary::{self, GgufVocabulary};
use super::huggingface::tokenizer_config::{self, TokenizerConfig};
use super::huggingface::{Section, read_object};
use super::map::Bytes;
use crate::token::TokenId;

/// Where a vocabulary comes from.
#[derive(Clone, Debug)]
pub enum TokenizerSource {
    /// The bytes of a `tokenizer.json`.
    Json(Bytes),
    /// The vocabulary of a GGUF file.
    Gguf(GgufVocabulary),
}

/// The special tokens that the files name, for reference; `None` where they name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// End of a turn (chat models) or of a text.
    pub eos: Option<TokenId>,
    /// Beginning of a text. Qwen has none; files name one all the same, and it is never put before a prompt unless
    /// `add_bos_token` says so.
    pub bos: Option<TokenId>,
    /// Padding.
    pub pad: Option<TokenId>,
    /// Whether a prompt begins with `bos`. Absent means no.
    pub add_bos_token: bool,
}

/// The tokenizer's files of a folder or a GGUF file.
#[derive(Clone, Debug)]
pub struct TokenizerFiles {
    path: PathBuf,
    form: Form,
    chat_template: Option<String>,
    special_ids: SpecialIds,
}

#[derive(Clone, Debug)]
enum Form {
    Folder(TokenizerConfig),
    Gguf(Metadata),
}

impl TokenizerFiles {
    /// Opens a folder (weights and `config.json` may be absent) or a GGUF file (of any architecture).
    pub fn open(path: impl AsRef<Path>) -> Result<TokenizerFiles, ArtifactError> {
        let path = path.as_ref();
        if path.is_dir() {
            return TokenizerFiles::from_folder(path);
        }
        let bytes = Bytes::open(path).map_err(|error| ArtifactError::io(path, error))?;
        let file = super::gguf::GgufFile::parse(bytes)
            .map_err(|error| ArtifactError::Gguf { path: path.to_owned(), error })?;
        TokenizerFiles::from_gguf(path, file.metadata)
    }

    pub(crate) fn from_folder(folder: &Path) -> Result<TokenizerFiles, ArtifactError> {
        let config = tokenizer_config::read(folder)?;
        let special_ids = folder_special_ids(folder, config.add_bos_token)?;
        Ok(TokenizerFiles {
            path: folder.to_owned(),
            chat_template: config.chat_template.clone(),
            form: Form::Folder(config),
            special_ids,
        })
    }

    pub(crate) fn from_gguf(path: &Path, metadata: Metadata) -> Result<TokenizerFiles, ArtifactError> {
        let refuse = |error| ArtifactError::Gguf { path: path.to_owned(), error };
        Ok(TokenizerFiles {
            path: path.to_owned(),
            chat_template: metadata.string("tokenizer.chat_template").map_err(refuse)?.map(str::to_owned),
            special_ids: vocabulary::special_ids(&metadata).map_err(refuse)?,
            form: Form::Gguf(metadata),
        })
    }

    /// The vocabulary's source; refused where there is none or it is of another kind than Qwen3's.
    pub fn source(&self) -> Result<TokenizerSource, ArtifactError> {
        match &self.form {
            Form::Gguf(metadata) => {
                vocabulary::read(metadata).map(TokenizerSource::Gguf).map_err(|error| error.at(&self.path))
            }
            Form::Folder(_) => {
                let path = self.path.join("tokenizer.json");
                if !path.exists() {
                    let error = TokenizerFilesError::Absent { what: "tokenizer.json" };
                    return Err(ArtifactError::Tokenizer { path: self.path.clone(), error });
                }
                let bytes = Bytes::open(&path).map_err(|error| ArtifactError::io(&path, error))?;
                Ok(TokenizerSource::Json(bytes))
            }
        }
    }

    /// The chat template, where the files have one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// The special tokens' ids.
    pub fn special_ids(&self) -> SpecialIds {
        self.special_ids
    }

    /// The folder or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Contents of the end and padding tokens that a folder names.
    pub(crate) fn named_tokens(&self) -> (Option<&str>, Option<&str>) {
        match &self.form {
            Form::Folder(config) => (config.eos_token.as_deref(), config.pad_token.as_deref()),
            Form::Gguf(_) => (None, None),
        }
    }
}

/// A folder names ids in its model files; they may be absent where only a tokenizer is wanted.
fn folder_special_ids(folder: &Path, add_bos_token: bool) -> Result<SpecialIds, ArtifactError> {
    let mut ids = SpecialIds { add_bos_token, ..SpecialIds::default() };
    for name in ["config.json", "generation_config.json"] {
        let path = folder.join(name);
        let Some(json) = read_object(&path)? else { continue };
        let root = Section::root(&json);
        let read = |key: &str| match root.token_ids(key) {
            Ok(ids) => Ok(ids.and_then(|ids| ids.first().copied())),
            Err(error) => Err(ArtifactError::Config { path: path.clone(), error }),
        };
        ids.eos = ids.eos.or(read("eos_token_id")?);
        ids.bos = ids.bos.or(read("bos_token_id")?);
        ids.pad = ids.pad.or(read("pad_token_id")?);
    }
    Ok(ids)
}
