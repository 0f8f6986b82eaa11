//! The source's vocabulary as a GGUF file lists it: one entry for each row of the embedding.

use std::collections::HashMap;

use super::ConvertError;
use crate::artifact::json::{Json, JsonError};
use crate::artifact::{
    Artifact, ArtifactError, Escaped, GgufVocabulary, SpecialIds, TokenType, TokenizerFilesError,
    TokenizerSource,
};
use crate::token::TokenId;

/// Entries and special ids of the file to be.
pub(super) struct Vocabulary {
    pub(super) entries: GgufVocabulary,
    pub(super) special_ids: SpecialIds,
}

/// Qwen's splitting rule as `tokenizer.json` spells it; a GGUF file can only name it (`qwen2`), so it must be this one.
const QWEN_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The source's vocabulary; `None` where it has no tokenizer.
pub(super) fn of(source: &Artifact) -> Result<Option<Vocabulary>, ConvertError> {
    let files = source.tokenizer_files();
    let refuse = |error| ArtifactError::Tokenizer { path: files.path().to_owned(), error };
    let found = match files.source() {
        Err(ArtifactError::Tokenizer { error: TokenizerFilesError::Absent { .. }, .. }) => return Ok(None),
        found => found?,
    };
    let mut entries = match found {
        TokenizerSource::Gguf(vocabulary) => vocabulary,
        TokenizerSource::Json(bytes) => from_json(&bytes, source.spec().vocab_size).map_err(refuse)?,
    };
    let rows = source.spec().vocab_size;
    if entries.tokens.len() > rows {
        let error =
            TokenizerFilesError::Length { key: "the embedding", found: rows, tokens: entries.tokens.len() };
        return Err(refuse(error).into());
    }
    for id in entries.tokens.len()..rows {
        entries.tokens.push(padding_token(id));
        entries.token_types.push(TokenType::Unused);
    }
    // A folder names its special tokens by their spelling; ids come second.
    let (eos, pad) = files.named_tokens();
    let id_of = |content: Option<&str>| {
        let at = entries.tokens.iter().position(|token| Some(token.as_str()) == content)?;
        TokenId::try_from(at).ok()
    };
    let ids = files.special_ids();
    let special_ids = SpecialIds { eos: id_of(eos).or(ids.eos), pad: id_of(pad).or(ids.pad), ..ids };
    Ok(Some(Vocabulary { entries, special_ids }))
}

/// The entry of a row that no token has.
fn padding_token(id: usize) -> String {
    format!("[PAD{id}]")
}

fn malformed(reason: &str) -> TokenizerFilesError {
    TokenizerFilesError::Malformed { reason: reason.into() }
}

fn from_json(bytes: &[u8], rows: usize) -> Result<GgufVocabulary, TokenizerFilesError> {
    let json = Json::parse(bytes).map_err(|error| match error {
        JsonError::Syntax(reason) => TokenizerFilesError::Malformed { reason },
        JsonError::DuplicateKey(key) => malformed(&format!("tokenizer.json: {key} occurs twice")),
    })?;
    check_kind(&json)?;
    let model = json.get("model").ok_or_else(|| malformed("tokenizer.json has no model"))?;
    let vocab = model
        .get("vocab")
        .and_then(Json::as_object)
        .ok_or_else(|| malformed("tokenizer.json: model.vocab is no object"))?;
    let mut slots = Slots { rows, taken: HashMap::new() };
    for (token, id) in vocab {
        slots.put(token, id, TokenType::Normal)?;
    }
    for added in json.get("added_tokens").and_then(Json::as_array).unwrap_or_default() {
        let content = added.get("content").and_then(Json::as_str);
        let (Some(content), Some(id)) = (content, added.get("id")) else {
            return Err(malformed("tokenizer.json: an added token lacks its content or id"));
        };
        let special = added.get("special").and_then(Json::as_bool).unwrap_or(false);
        slots.put(content, id, if special { TokenType::Control } else { TokenType::UserDefined })?;
    }
    let (tokens, token_types) = slots.into_lists();
    Ok(GgufVocabulary { tokens, token_types, merges: merges(model)?, pre: "qwen2".to_owned() })
}

/// Everything that the name `qwen2` stands for must be so in the source.
fn check_kind(json: &Json) -> Result<(), TokenizerFilesError> {
    let model = json.get("model");
    let at = |key: &str| model.and_then(|model| model.get(key));
    let unsupported = |key: &'static str, found: Option<&Json>, supported: &'static str| {
        let value = found.map_or_else(|| "null".into(), Json::shown);
        TokenizerFilesError::Unsupported { key, value, supported }
    };
    if at("type").and_then(Json::as_str) != Some("BPE") {
        return Err(unsupported("model.type", at("type"), "BPE"));
    }
    for (key, name) in [("byte_fallback", "model.byte_fallback"), ("ignore_merges", "model.ignore_merges")] {
        if at(key).and_then(Json::as_bool) == Some(true) {
            return Err(unsupported(name, at(key), "false"));
        }
    }
    let normalizer = json.get("normalizer").and_then(|normalizer| normalizer.get("type"));
    if normalizer.and_then(Json::as_str) != Some("NFC") {
        return Err(unsupported("normalizer.type", normalizer, "NFC"));
    }
    let split = json
        .get("pre_tokenizer")
        .and_then(|pre| pre.get("pretokenizers"))
        .and_then(Json::as_array)
        .and_then(|items| items.first())
        .and_then(|split| split.get("pattern"))
        .and_then(|pattern| pattern.get("Regex"));
    if split.and_then(Json::as_str) != Some(QWEN_SPLIT) {
        return Err(unsupported("pre_tokenizer", split, "Qwen's splitting rule"));
    }
    Ok(())
}

/// Tokens by id while they are gathered.
struct Slots<'a> {
    rows: usize,
    taken: HashMap<usize, (&'a str, TokenType)>,
}

impl<'a> Slots<'a> {
    fn put(&mut self, token: &'a str, id: &Json, kind: TokenType) -> Result<(), TokenizerFilesError> {
        let number = id.as_u64().ok_or_else(|| malformed(&format!("the id of {token} is no number")))?;
        let slot = usize::try_from(number).ok().filter(|slot| *slot < self.rows).ok_or_else(|| {
            TokenizerFilesError::Id { key: Escaped::text(token), id: number, tokens: self.rows }
        })?;
        match self.taken.insert(slot, (token, kind)) {
            Some((other, _)) if other != token => {
                Err(malformed(&format!("{other} and {token} share the id {slot}")))
            }
            _ => Ok(()),
        }
    }

    /// One entry an id up to the last; ids without a token get a padding entry.
    fn into_lists(self) -> (Vec<String>, Vec<TokenType>) {
        let len = self.taken.keys().max().map_or(0, |last| last + 1);
        let entry = |id: usize| match self.taken.get(&id) {
            Some((token, kind)) => ((*token).to_owned(), *kind),
            None => (padding_token(id), TokenType::Unused),
        };
        (0..len).map(entry).unzip()
    }
}

/// Merges are written as pairs, or as one string with a blank (which no piece of the byte-level alphabet contains).
fn merges(model: &Json) -> Result<Vec<String>, TokenizerFilesError> {
    let items = model
        .get("merges")
        .and_then(Json::as_array)
        .ok_or_else(|| malformed("tokenizer.json: model.merges is no list"))?;
    let one = |item: &Json| match item {
        Json::String(text) if text.split(' ').count() == 2 => Some(text.clone()),
        Json::Array(pair) => match pair.as_slice() {
            [Json::String(left), Json::String(right)] => Some(format!("{left} {right}")),
            _ => None,
        },
        _ => None,
    };
    let broken = |index| malformed(&format!("tokenizer.json: merge {index} is no pair"));
    items.iter().enumerate().map(|(index, item)| one(item).ok_or_else(|| broken(index))).collect()
}
