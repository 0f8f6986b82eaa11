//! A token is an id and a kind; its text belongs to the tokenizer.

/// The id of one token of a model's vocabulary.
pub type TokenId = u32;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Made by merging; spelled in the byte-level alphabet.
    Normal,
    /// An added token that structures a text and is no part of it: a turn marker, the end of a text.
    Control,
    /// An added token that is part of the text, such as `<think>`.
    UserDefined,
    /// A row that only pads the vocabulary; decodes to nothing.
    Unused,
}

impl TokenKind {
    /// The kind that a number of GGUF's `tokenizer.ggml.token_type` stands for; none for 2 (unknown) and 6 (byte), which
    /// a byte-level vocabulary does not have.
    pub fn from_gguf(number: i64) -> Option<TokenKind> {
        match number {
            1 => Some(TokenKind::Normal),
            3 => Some(TokenKind::Control),
            4 => Some(TokenKind::UserDefined),
            5 => Some(TokenKind::Unused),
            _ => None,
        }
    }

    /// The number of this kind in `tokenizer.ggml.token_type`.
    pub fn to_gguf(self) -> i32 {
        match self {
            TokenKind::Normal => 1,
            TokenKind::Control => 3,
            TokenKind::UserDefined => 4,
            TokenKind::Unused => 5,
        }
    }
}
