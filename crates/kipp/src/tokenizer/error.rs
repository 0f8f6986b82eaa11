//! Each way a tokenizer file or an id can be wrong.

use super::TokenKind;
use crate::TokenId;

/// Why a tokenizer was refused, or an id. Texts from the file are escaped and cut to a readable length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// Not JSON, or not of the shape of a tokenizer file.
    #[error("tokenizer.json: {0}")]
    Json(String),
    /// A part that the tokenizer cannot do without.
    #[error("tokenizer: `{0}` is missing")]
    Missing(&'static str),
    /// A part of another kind than Qwen's.
    #[error("tokenizer: `{part}` is `{found}`; only {expected} is supported")]
    Unsupported {
        /// The part, by its key in the file.
        part: &'static str,
        /// What the file says.
        found: String,
        /// What Qwen's files say.
        expected: &'static str,
    },
    /// A token of the vocabulary that is not spelled in the byte-level alphabet.
    #[error("tokenizer: token `{token}` holds U+{character:04X}, which stands for no byte")]
    NotByteLevel {
        /// The token as the file spells it.
        token: String,
        /// The character.
        character: u32,
    },
    /// A token without any byte.
    #[error("tokenizer: token {id} is empty")]
    EmptyToken {
        /// Its id.
        id: TokenId,
    },
    /// Two ids for one text.
    #[error("tokenizer: `{token}` is both token {first} and token {second}")]
    DuplicateToken {
        /// The text.
        token: String,
        /// One id.
        first: TokenId,
        /// The other.
        second: TokenId,
    },
    /// Two texts for one id.
    #[error("tokenizer: id {id} is given twice, the second time to `{token}`")]
    DuplicateId {
        /// The id.
        id: TokenId,
        /// The second text.
        token: String,
    },
    /// The ids do not count from 0 without a gap.
    #[error("tokenizer: `{token}` has id {id}, but the {tokens} tokens must have the ids 0 to {}", tokens.saturating_sub(1))]
    IdGap {
        /// The text.
        token: String,
        /// Its id.
        id: u64,
        /// Tokens in all.
        tokens: usize,
    },
    /// A byte that has no token, so that some texts would have no encoding.
    #[error("tokenizer: no token stands for the byte 0x{byte:02x}")]
    MissingByte {
        /// The byte.
        byte: u8,
    },
    /// A merge that is not two tokens.
    #[error("tokenizer: merge {index} (`{merge}`) is not two tokens")]
    MalformedMerge {
        /// Its place in the list, from 0.
        index: usize,
        /// Its text.
        merge: String,
    },
    /// A merge of, or to, a token that the vocabulary does not hold.
    #[error("tokenizer: merge {index} needs the token `{token}`, which is not in the vocabulary")]
    UnknownMerge {
        /// Its place in the list, from 0.
        index: usize,
        /// The token as bytes, escaped.
        token: String,
    },
    /// A merge that stands in the list twice.
    #[error("tokenizer: merge {index} was given before")]
    DuplicateMerge {
        /// The place of the second one, from 0.
        index: usize,
    },
    /// An added token of a kind that Qwen does not have.
    #[error("tokenizer: added token `{token}` sets `{flag}`, which is not supported")]
    UnsupportedFlag {
        /// The text.
        token: String,
        /// The flag.
        flag: &'static str,
    },
    /// A vocabulary past what ids and offsets hold.
    #[error("tokenizer: {what} is {found}, more than {limit}")]
    TooLarge {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A list of kinds that does not fit the list of tokens.
    #[error("tokenizer.ggml.token_type has {kinds} entries for {tokens} tokens")]
    KindCount {
        /// Tokens.
        tokens: usize,
        /// Kinds.
        kinds: usize,
    },
    /// A model with fewer rows than the tokenizer has tokens.
    #[error("the model has {rows} rows, the tokenizer {tokens} tokens")]
    TooFewRows {
        /// Rows of the output head.
        rows: usize,
        /// Tokens of the tokenizer.
        tokens: usize,
    },
    /// An id past the vocabulary and the padding of the model's head.
    #[error("token id {id} is past the {rows} rows of the vocabulary")]
    UnknownId {
        /// The id.
        id: TokenId,
        /// Ids there are.
        rows: usize,
    },
    /// An added token of a kind that cannot be one.
    #[error("tokenizer: `{token}` is of kind {kind:?} but its text is not unique")]
    AmbiguousAddedToken {
        /// The text.
        token: String,
        /// Its kind.
        kind: TokenKind,
    },
}

/// A text from the file, fit for a message: control characters escaped, at most 64 characters.
pub(super) fn shown(text: &str) -> String {
    escaped(text, 64)
}

/// The parser's own message, which may quote the file.
pub(super) fn shown_message(text: &str) -> String {
    escaped(text, 300)
}

fn escaped(text: &str, limit: usize) -> String {
    let mut short: String = text.chars().take(limit).flat_map(char::escape_debug).collect();
    if text.chars().nth(limit).is_some() {
        short.push('\u{2026}');
    }
    short
}

/// Bytes from the file, fit for a message.
pub(super) fn shown_bytes(bytes: &[u8]) -> String {
    shown(&String::from_utf8_lossy(bytes.get(..256).unwrap_or(bytes)))
}
