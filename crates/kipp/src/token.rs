//! A token is an id; its text belongs to the tokenizer.

/// The id of one token of a model's vocabulary.
pub type TokenId = u32;
