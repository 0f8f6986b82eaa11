//! Text to token ids and back: Qwen's byte-level byte-pair encoding, exact against Hugging Face `tokenizers`.
//!
//! A text goes through added tokens (`added`), NFC (`normalize`), the splitting rule (`pretokenize`) and merging
//! (`bpe`). It comes back as bytes of tokens (`vocab`), which `stream` turns into text. Nothing here invents a
//! beginning-of-text token, and nothing knows what a chat is.

mod added;
mod alphabet;
mod bpe;
mod classes;
mod error;
mod export;
mod json;
mod metadata;
mod normalize;
mod pretokenize;
mod queue;
mod stream;
mod vocab;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

pub use error::TokenizerError;
pub use stream::StreamDecoder;

pub use crate::token::TokenKind;

use crate::TokenId;
use crate::artifact::TokenizerSource;
use added::AddedTokens;
use bpe::{Bpe, Scratch};
use pretokenize::Pieces;
use vocab::{ByteStrings, Vocabulary};

/// A tokenizer. Clones share one vocabulary.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    shared: Arc<Shared>,
    /// Rows of the model's output head: ids from `len` to here are padding.
    rows: usize,
}

#[derive(Debug)]
struct Shared {
    vocabulary: Vocabulary,
    bpe: Bpe,
    added: AddedTokens,
}

/// What a file says, in the order of ids, before it is checked as a whole.
struct Parts {
    strings: ByteStrings,
    kinds: Vec<TokenKind>,
    /// The first ids, up to here, take part in merging where their kind allows it.
    model_tokens: usize,
    /// Whether added tokens among them do.
    added_merge: bool,
    /// Left and right side of each merge in turn.
    merges: ByteStrings,
    rows: usize,
}

impl Tokenizer {
    /// Builds the tokenizer that an artifact names.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json) and [`from_vocabulary`](Self::from_vocabulary).
    pub fn from_source(source: &TokenizerSource) -> Result<Tokenizer, TokenizerError> {
        match source {
            TokenizerSource::Json(bytes) => Tokenizer::from_json(bytes),
            TokenizerSource::Gguf(lists) => {
                Tokenizer::from_vocabulary(&lists.tokens, &lists.kinds, &lists.merges, &lists.pre)
            }
        }
    }

    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// A [`TokenizerError`] for anything malformed, and for every part (normalizer, splitting rule, decoder, model
    /// option) that is not Qwen's. Settings for batches (`truncation`, `padding`) are not read.
    pub fn from_json(bytes: &[u8]) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::from_parts(json::read(bytes)?)
    }

    /// Builds a tokenizer from GGUF metadata: `tokenizer.ggml.tokens`, `.token_type`, `.merges` and `.pre`. An empty
    /// `kinds` means that every token is normal.
    ///
    /// # Errors
    /// A [`TokenizerError`] for lists that do not fit each other, and for a splitting rule other than `qwen2`.
    pub fn from_vocabulary(
        tokens: &[String],
        kinds: &[TokenKind],
        merges: &[String],
        pre: &str,
    ) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::from_parts(metadata::read(tokens, kinds, merges, pre)?)
    }

    fn from_parts(parts: Parts) -> Result<Tokenizer, TokenizerError> {
        let Parts { strings, kinds, model_tokens, added_merge, merges, rows } = parts;
        let is_added = |id: usize| matches!(kinds.get(id), Some(TokenKind::Control | TokenKind::UserDefined));
        let mut by_text = Vec::new();
        for id in (0..strings.len()).filter(|&id| is_added(id)) {
            let text = String::from_utf8_lossy(strings.get(id).unwrap_or_default());
            by_text.push((Box::from(text), id as TokenId));
        }
        let vocabulary = Vocabulary::new(strings, kinds, |id, kind| {
            let merges = kind == TokenKind::Normal || added_merge && kind != TokenKind::Unused;
            id < model_tokens && merges
        })?;
        let bpe = Bpe::new(&vocabulary, &merges)?;
        let added = AddedTokens::new(by_text, &vocabulary)?;
        let rows = rows.max(vocabulary.len());
        Ok(Tokenizer { shared: Arc::new(Shared { vocabulary, bpe, added }), rows })
    }

    /// Tells the tokenizer how many rows the model's output head has: ids past the tokens but inside `rows` are padding,
    /// which decodes to nothing.
    ///
    /// # Errors
    /// [`TokenizerError::TooFewRows`] where some token would have no row.
    pub fn with_rows(self, rows: usize) -> Result<Tokenizer, TokenizerError> {
        if rows < self.len() {
            return Err(TokenizerError::TooFewRows { rows, tokens: self.len() });
        }
        Ok(Tokenizer { rows, ..self })
    }

    /// The ids of `text`, in which the spelling of an added token is text like any other.
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        let mut ids = self.ids_for(text);
        self.encode_plain(text, &mut Scratch::default(), &mut ids);
        ids
    }

    /// The ids of `text`, in which added tokens (control tokens, `<think>`, ...) stand for themselves.
    pub fn encode_with_control(&self, text: &str) -> Vec<TokenId> {
        self.encode_guarded(text, &[])
    }

    /// As [`encode_with_control`](Self::encode_with_control), but a spelling that touches one of the `plain` byte ranges
    /// of `text` is text like any other. The text around is encoded as one, whatever ranges it runs through.
    pub fn encode_guarded(&self, text: &str, plain: &[Range<usize>]) -> Vec<TokenId> {
        let plain = sorted_apart(plain);
        let (mut ids, mut scratch, mut from) = (self.ids_for(text), Scratch::default(), 0);
        while let Some((place, id)) = self.shared.added.next(text.as_bytes(), from, &plain) {
            self.encode_plain(text.get(from..place.start).unwrap_or_default(), &mut scratch, &mut ids);
            ids.push(id);
            from = place.end;
        }
        self.encode_plain(text.get(from..).unwrap_or_default(), &mut scratch, &mut ids);
        ids
    }

    /// An empty list with room for what ordinary text needs: about four bytes a token.
    fn ids_for(&self, text: &str) -> Vec<TokenId> {
        Vec::with_capacity(text.len() / 4 + 1)
    }

    fn encode_plain(&self, text: &str, scratch: &mut Scratch, ids: &mut Vec<TokenId>) {
        let text = normalize::nfc(text);
        for piece in Pieces::new(&text) {
            self.shared.bpe.encode(&self.shared.vocabulary, piece, scratch, ids);
        }
    }

    /// The text of `ids`, in NFC where it was encoded here. Invalid UTF-8 becomes U+FFFD as in
    /// [`String::from_utf8_lossy`]; padding decodes to nothing, and so do control tokens with `skip_special`.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`] for an id past the rows.
    pub fn decode(&self, ids: &[TokenId], skip_special: bool) -> Result<String, TokenizerError> {
        let mut bytes = Vec::with_capacity(ids.len().saturating_mul(4));
        for &id in ids {
            bytes.extend_from_slice(self.decoded_bytes(id, skip_special)?);
        }
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// What an id adds to a decoded text.
    fn decoded_bytes(&self, id: TokenId, skip_special: bool) -> Result<&[u8], TokenizerError> {
        match self.shared.vocabulary.kind(id) {
            Some(TokenKind::Control) if skip_special => Ok(&[]),
            Some(TokenKind::Unused) => Ok(&[]),
            Some(_) => Ok(self.token_bytes(id)),
            None if (id as usize) < self.rows => Ok(&[]),
            None => Err(TokenizerError::UnknownId { id, rows: self.rows }),
        }
    }

    /// Decodes ids one at a time, never giving out half a character.
    pub fn stream_decoder(&self, skip_special: bool) -> StreamDecoder {
        StreamDecoder::new(self.clone(), skip_special)
    }

    /// The bytes of a token, perhaps not UTF-8 by themselves; empty for an id that is none.
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.shared.vocabulary.bytes(id).unwrap_or_default()
    }

    /// The id of the added token with this text.
    pub fn token_id(&self, text: &str) -> Option<TokenId> {
        self.shared.added.find(text)
    }

    /// Whether an id is a control token, which decoding may skip. `<think>` and `<tool_call>` are added but not special.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.shared.vocabulary.kind(id) == Some(TokenKind::Control)
    }

    /// Tokens, added ones included, padding not.
    #[expect(clippy::len_without_is_empty, reason = "a tokenizer has a token for every byte")]
    pub fn len(&self) -> usize {
        self.shared.vocabulary.len()
    }

    /// Added tokens.
    pub fn added_len(&self) -> usize {
        self.shared.added.len()
    }

    /// Text and id of every added token, sorted by text.
    pub fn added_tokens(&self) -> impl Iterator<Item = (&str, TokenId)> {
        self.shared.added.iter()
    }

    /// Ids that decode without an error: tokens and padding.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// Ranges in order, overlapping ones joined, empty ones dropped.
fn sorted_apart(ranges: &[Range<usize>]) -> Cow<'_, [Range<usize>]> {
    let in_order = ranges.iter().all(|range| !range.is_empty())
        && ranges.windows(2).all(|two| two[0].end <= two[1].start);
    if in_order {
        return Cow::Borrowed(ranges);
    }
    let mut sorted: Vec<Range<usize>> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    sorted.dedup_by(|later, earlier| {
        let joins = later.start <= earlier.end;
        if joins {
            earlier.end = earlier.end.max(later.end);
        }
        joins
    });
    Cow::Owned(sorted)
}

#[cfg(test)]
mod tests {
    use super::sorted_apart;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
    fn ranges_are_sorted_and_joined() {
        assert_eq!(*sorted_apart(&[1..2, 2..5]), [1..2, 2..5]);
        assert_eq!(*sorted_apart(&[4..6, 1..2, 3..3, 5..9, 2..3]), [1..3, 4..9]);
        assert_eq!(*sorted_apart(&[0..9, 2..3, 8..8]), [0..9]);
    }
}
