//! Reading `tokenizer.json`: straight from the text into the vocabulary's tables, without a tree of values in between.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::error::{TokenizerError, shown, shown_bytes, shown_message};
use super::metadata::push_merge;
use super::vocab::ByteStrings;
use super::{Parts, TokenKind, alphabet};
use crate::TokenId;

/// The splitting rule of Qwen2 and Qwen3, as their files spell it. `pretokenize` is this pattern and no other.
const SPLITTING_RULE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Bytes of an added token's text: finding one costs its length at each place where it might stand.
const LONGEST_ADDED_BYTES: usize = 1024;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Option<Model>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u64,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct Model {
    r#type: Option<String>,
    #[serde(default)]
    dropout: Value,
    #[serde(default)]
    unk_token: Value,
    #[serde(default)]
    continuing_subword_prefix: Value,
    #[serde(default)]
    end_of_word_suffix: Value,
    #[serde(default)]
    byte_fallback: Value,
    #[serde(default)]
    ignore_merges: Value,
    vocab: Option<Tokens>,
    merges: Option<Merges>,
}

/// The map `vocab`, in the order of the file.
#[derive(Default)]
struct Tokens {
    strings: ByteStrings,
    ids: Vec<u64>,
    error: Option<TokenizerError>,
}

/// The list `merges`: both sides of each in turn.
#[derive(Default)]
struct Merges {
    sides: ByteStrings,
    error: Option<TokenizerError>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Parts, TokenizerError> {
    let text = std::str::from_utf8(bytes).map_err(|error| TokenizerError::Json(error.to_string()))?;
    let file: File = serde_json::from_str(text)
        .map_err(|error| TokenizerError::Json(shown_message(&error.to_string())))?;
    check_parts(&file)?;
    let model = file.model.ok_or(TokenizerError::Missing("model"))?;
    check_model(&model)?;
    let tokens = model.vocab.ok_or(TokenizerError::Missing("model.vocab"))?;
    let merges = model.merges.ok_or(TokenizerError::Missing("model.merges"))?;
    if let Some(error) = tokens.error.or(merges.error) {
        return Err(error);
    }
    let model_tokens = tokens.ids.len();
    let mut parts = Parts {
        strings: tokens.strings.into_id_order(&tokens.ids)?,
        kinds: vec![TokenKind::Normal; model_tokens],
        model_tokens,
        added_merge: true,
        merges: merges.sides,
        rows: 0,
    };
    let mut added = file.added_tokens;
    added.sort_by_key(|token| token.id);
    let tokens = model_tokens + added.iter().filter(|token| token.id >= model_tokens as u64).count();
    // Distinct ids that end where they should have no gap; ids that are not distinct are found one by one.
    if let Some(last) = added.last().filter(|last| last.id >= tokens as u64) {
        return Err(TokenizerError::IdGap { token: shown(&last.content), id: last.id, tokens });
    }
    for token in &added {
        add(token, &mut parts)?;
    }
    Ok(parts)
}

/// Takes in one added token; they come in the order of their ids.
fn add(token: &AddedToken, parts: &mut Parts) -> Result<(), TokenizerError> {
    let flags = [
        (token.single_word, "single_word"),
        (token.lstrip, "lstrip"),
        (token.rstrip, "rstrip"),
        (token.normalized, "normalized"),
    ];
    let text = || shown(&token.content);
    if let Some((_, flag)) = flags.into_iter().find(|(set, _)| *set) {
        return Err(TokenizerError::UnsupportedFlag { token: text(), flag });
    }
    let (found, limit) = (token.content.len(), LONGEST_ADDED_BYTES);
    if found > limit {
        return Err(TokenizerError::TooLarge { what: "an added token in bytes", found, limit });
    }
    let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
    let known = parts.kinds.len();
    let Some(place) = usize::try_from(token.id).ok().filter(|&id| id <= known) else {
        return Err(TokenizerError::IdGap { token: text(), id: token.id, tokens: known + 1 });
    };
    let Some(slot) = parts.kinds.get_mut(place) else {
        parts.kinds.push(kind);
        return parts.strings.push(token.content.as_bytes());
    };
    // A token of the model may be an added one as well, but only under its own id.
    let id = place as TokenId;
    if *slot != TokenKind::Normal || parts.strings.get(place) != Some(token.content.as_bytes()) {
        return Err(TokenizerError::DuplicateId { id, token: text() });
    }
    *slot = kind;
    Ok(())
}

/// The `type` of a part, or what stands in its place.
fn kind_of(part: &Value) -> String {
    match part {
        Value::Null => "none".to_owned(),
        Value::Object(fields) => {
            fields.get("type").and_then(Value::as_str).map_or("untyped".to_owned(), shown)
        }
        other => shown(&other.to_string()),
    }
}

fn check_parts(file: &File) -> Result<(), TokenizerError> {
    let unsupported = |part, value: &Value, expected| {
        Err(TokenizerError::Unsupported { part, found: kind_of(value), expected })
    };
    if kind_of(&file.normalizer) != "NFC" {
        return unsupported("normalizer", &file.normalizer, "`NFC`");
    }
    if kind_of(&file.decoder) != "ByteLevel" {
        return unsupported("decoder", &file.decoder, "`ByteLevel`");
    }
    if !matches!(kind_of(&file.post_processor).as_str(), "none" | "ByteLevel") {
        return unsupported("post_processor", &file.post_processor, "`ByteLevel`, which adds no token,");
    }
    let (part, expected) = ("pre_tokenizer", "Qwen's `Split`, then `ByteLevel`,");
    if kind_of(&file.pre_tokenizer) != "Sequence" {
        return unsupported(part, &file.pre_tokenizer, expected);
    }
    let steps =
        file.pre_tokenizer.get("pretokenizers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let [split, byte_level] = steps else {
        let found = steps.iter().map(kind_of).collect::<Vec<_>>().join(", ");
        return Err(TokenizerError::Unsupported { part, found: shown(&found), expected });
    };
    check_splitting(split, byte_level)
}

fn check_splitting(split: &Value, byte_level: &Value) -> Result<(), TokenizerError> {
    let unsupported = |part, found: &Value, expected| {
        let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
        Err(TokenizerError::Unsupported { part, found: shown(&found), expected })
    };
    let rules = [
        (split, "/type", "pre_tokenizer", Value::from("Split")),
        (split, "/pattern/Regex", "pre_tokenizer.pattern.Regex", Value::from(SPLITTING_RULE)),
        (split, "/behavior", "pre_tokenizer.behavior", Value::from("Isolated")),
        (split, "/invert", "pre_tokenizer.invert", Value::from(false)),
        (byte_level, "/type", "pre_tokenizer", Value::from("ByteLevel")),
        (byte_level, "/add_prefix_space", "pre_tokenizer.add_prefix_space", Value::from(false)),
        (byte_level, "/use_regex", "pre_tokenizer.use_regex", Value::from(false)),
    ];
    for (step, pointer, part, expected) in rules {
        let found = step.pointer(pointer).unwrap_or(&Value::Null);
        if *found != expected {
            return unsupported(part, found, "what Qwen's files say");
        }
    }
    Ok(())
}

fn check_model(model: &Model) -> Result<(), TokenizerError> {
    let unsupported =
        |part, found: String, expected| Err(TokenizerError::Unsupported { part, found, expected });
    if let Some(kind) = model.r#type.as_deref().filter(|kind| *kind != "BPE") {
        return unsupported("model.type", shown(kind), "`BPE`");
    }
    let rules = [
        ("model.dropout", &model.dropout),
        ("model.unk_token", &model.unk_token),
        ("model.continuing_subword_prefix", &model.continuing_subword_prefix),
        ("model.end_of_word_suffix", &model.end_of_word_suffix),
        ("model.byte_fallback", &model.byte_fallback),
        ("model.ignore_merges", &model.ignore_merges),
    ];
    for (part, value) in rules {
        let off = value.is_null() || value.as_bool() == Some(false) || value.as_str() == Some("");
        if !off {
            return unsupported(part, shown(&value.to_string()), "a model without it");
        }
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tokens, D::Error> {
        deserializer.deserialize_map(TokensVisitor)
    }
}

struct TokensVisitor;

impl<'de> Visitor<'de> for TokensVisitor {
    type Value = Tokens;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a map from tokens to ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tokens, A::Error> {
        let mut tokens = Tokens::default();
        while let Some(read) = map.next_key_seed(Spelling(&mut tokens.strings))? {
            tokens.ids.push(map.next_value()?);
            if let Err(error) = read {
                tokens.error = Some(error);
                break;
            }
        }
        // After a token that is refused the rest need only be JSON.
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(tokens)
    }
}

/// Reads one string in the byte-level alphabet into the list.
struct Spelling<'a>(&'a mut ByteStrings);

impl<'de> DeserializeSeed<'de> for Spelling<'_> {
    type Value = Result<(), TokenizerError>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Spelling<'_> {
    type Value = Result<(), TokenizerError>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a token")
    }

    fn visit_str<E>(self, token: &str) -> Result<Self::Value, E> {
        Ok(self.0.push_with(|out| alphabet::read(token, out)))
    }
}

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Merges, D::Error> {
        deserializer.deserialize_seq(MergesVisitor)
    }
}

struct MergesVisitor;

impl<'de> Visitor<'de> for MergesVisitor {
    type Value = Merges;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merges, A::Error> {
        let mut merges = Merges::default();
        let mut index = 0;
        while let Some(read) = list.next_element_seed(Merge { sides: &mut merges.sides, index })? {
            index += 1;
            if let Err(error) = read {
                merges.error = Some(error);
                break;
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(merges)
    }
}

/// Reads one merge: `"left right"` as older files have it, or `["left", "right"]`.
struct Merge<'a> {
    sides: &'a mut ByteStrings,
    index: usize,
}

impl<'de> DeserializeSeed<'de> for Merge<'_> {
    type Value = Result<(), TokenizerError>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Merge<'_> {
    type Value = Result<(), TokenizerError>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a merge: \"left right\" or [\"left\", \"right\"]")
    }

    fn visit_str<E>(self, merge: &str) -> Result<Self::Value, E> {
        Ok(push_merge(merge, self.index, self.sides))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Self::Value, A::Error> {
        let (before, mut count) = (self.sides.len(), 0);
        let mut read = Ok(());
        while let Some(side) = pair.next_element_seed(Spelling(self.sides))? {
            read = read.and(side);
            count += 1;
        }
        let sides = (before..self.sides.len()).map(|side| self.sides.get(side).unwrap_or_default());
        if read.is_ok() && (count != 2 || sides.clone().any(<[u8]>::is_empty)) {
            let merge = shown_bytes(&sides.take(3).collect::<Vec<_>>().join(&b' '));
            return Ok(Err(TokenizerError::MalformedMerge { index: self.index, merge }));
        }
        Ok(read)
    }
}
