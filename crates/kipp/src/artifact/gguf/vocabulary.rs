//! The tokenizer that a GGUF file carries: `tokenizer.ggml.*`.

use super::metadata::Metadata;
use crate::artifact::error::{ArtifactError, TokenizerFilesError};
use crate::artifact::escaped::Escaped;
use crate::artifact::tokenizer_files::SpecialIds;
use crate::token::{TokenId, TokenKind};

use super::GgufError;

/// A byte-level BPE vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufVocabulary {
    /// One entry an id, in the byte-level alphabet (control and user-defined tokens: as they are spelled).
    pub tokens: Vec<String>,
    /// One entry an id.
    pub kinds: Vec<TokenKind>,
    /// `left right`, most frequent first.
    pub merges: Vec<String>,
    /// Which splitting rule: `qwen2`.
    pub pre: String,
}

/// Either kind of refusal, before a path is put to it.
pub(crate) enum VocabularyError {
    Gguf(GgufError),
    Tokenizer(TokenizerFilesError),
}

impl VocabularyError {
    pub(crate) fn at(self, path: &std::path::Path) -> ArtifactError {
        let path = path.to_owned();
        match self {
            VocabularyError::Gguf(error) => ArtifactError::Gguf { path, error },
            VocabularyError::Tokenizer(error) => ArtifactError::Tokenizer { path, error },
        }
    }
}

impl From<GgufError> for VocabularyError {
    fn from(error: GgufError) -> VocabularyError {
        VocabularyError::Gguf(error)
    }
}

impl From<TokenizerFilesError> for VocabularyError {
    fn from(error: TokenizerFilesError) -> VocabularyError {
        VocabularyError::Tokenizer(error)
    }
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";

/// Reads the vocabulary; the splitting rule is never guessed.
pub(crate) fn read(metadata: &Metadata) -> Result<GgufVocabulary, VocabularyError> {
    let Some(model) = metadata.string("tokenizer.ggml.model")? else {
        return Err(TokenizerFilesError::Absent { what: "tokenizer.ggml.model" }.into());
    };
    if model == "none" {
        return Err(
            TokenizerFilesError::Absent { what: "a vocabulary (tokenizer.ggml.model is none)" }.into()
        );
    }
    if model != "gpt2" {
        let (value, supported) = (model.into(), "gpt2, the byte-level BPE of Qwen3");
        let key = "tokenizer.ggml.model";
        return Err(TokenizerFilesError::Unsupported { key, value, supported }.into());
    }
    let Some(pre) = metadata.string("tokenizer.ggml.pre")? else {
        return Err(GgufError::MissingKey { key: "tokenizer.ggml.pre".into() }.into());
    };
    if pre != "qwen2" {
        let (key, value) = ("tokenizer.ggml.pre", pre.into());
        return Err(TokenizerFilesError::Unsupported { key, value, supported: "qwen2" }.into());
    }
    let owned = |items: Vec<&str>| items.into_iter().map(str::to_owned).collect();
    let tokens: Vec<String> =
        metadata.strings(TOKENS)?.map(owned).ok_or(TokenizerFilesError::Absent { what: TOKENS })?;
    let merges: Vec<String> = metadata
        .strings("tokenizer.ggml.merges")?
        .map(owned)
        .ok_or(TokenizerFilesError::Absent { what: "tokenizer.ggml.merges" })?;
    let kinds = kinds(metadata, tokens.len())?;
    Ok(GgufVocabulary { tokens, kinds, merges, pre: pre.to_owned() })
}

/// Absent kinds are all normal, as the format has it.
fn kinds(metadata: &Metadata, tokens: usize) -> Result<Vec<TokenKind>, VocabularyError> {
    let Some(numbers) = metadata.integers(TOKEN_TYPE)? else { return Ok(vec![TokenKind::Normal; tokens]) };
    if numbers.len() != tokens {
        return Err(TokenizerFilesError::Length { key: TOKEN_TYPE, found: numbers.len(), tokens }.into());
    }
    let read = |(index, &value): (usize, &i64)| {
        TokenKind::from_gguf(value).ok_or(TokenizerFilesError::TokenKind { index, value })
    };
    Ok(numbers.iter().enumerate().map(read).collect::<Result<_, _>>()?)
}

/// The ids that the file names. An absent id is no id: none is ever put in its place.
pub(crate) fn special_ids(metadata: &Metadata) -> Result<SpecialIds, GgufError> {
    Ok(SpecialIds {
        eos: token_id(metadata, "tokenizer.ggml.eos_token_id")?,
        bos: token_id(metadata, "tokenizer.ggml.bos_token_id")?,
        pad: token_id(metadata, "tokenizer.ggml.padding_token_id")?,
        add_bos_token: metadata.boolean("tokenizer.ggml.add_bos_token")?.unwrap_or(false),
    })
}

/// Tokens that end an answer: what a file of Kipp's own lists; else its end tokens, and the end of a text by its
/// spelling, since the format has room for one id only.
pub(crate) fn stop_tokens(metadata: &Metadata) -> Result<Vec<TokenId>, GgufError> {
    const LISTED: &str = "kipp.generation.eos_token_ids";
    if let Some(ids) = metadata.integers(LISTED)? {
        let id = |&value: &i64| u32::try_from(value).map_err(|_| out_of_range(LISTED, value.to_string()));
        return ids.iter().map(id).collect();
    }
    let mut stops = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        stops.extend(token_id(metadata, key)?);
    }
    let tokens = metadata.strings(TOKENS)?.unwrap_or_default();
    let end_of_text = tokens.iter().position(|token| *token == "<|endoftext|>");
    stops.extend(end_of_text.and_then(|id| TokenId::try_from(id).ok()));
    let mut seen = std::collections::HashSet::new();
    stops.retain(|id| seen.insert(*id));
    Ok(stops)
}

fn token_id(metadata: &Metadata, key: &str) -> Result<Option<TokenId>, GgufError> {
    let Some(id) = metadata.unsigned(key)? else { return Ok(None) };
    TokenId::try_from(id).map(Some).map_err(|_| out_of_range(key, id.to_string()))
}

fn out_of_range(key: &str, value: String) -> GgufError {
    GgufError::OutOfRange { key: key.into(), value: Escaped::text(&value), expected: "a token id" }
}
