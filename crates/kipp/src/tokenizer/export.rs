//! A tokenizer as the lists that GGUF files hold.

use super::{TokenKind, Tokenizer, alphabet, metadata};
use crate::artifact::GgufVocabulary;

impl Tokenizer {
    /// The vocabulary as a GGUF file lists it, one entry for each of [`rows`](Tokenizer::rows): normal tokens and merges in
    /// the byte-level alphabet, added tokens as they are spelled, padding as `[PAD7]`.
    ///
    /// [`Tokenizer::from_vocabulary`] makes a tokenizer with the same ids of it, unless an added token of a
    /// `tokenizer.json` takes part in merges, which the lists cannot say; such lists are refused there.
    pub fn to_vocabulary(&self) -> GgufVocabulary {
        let vocabulary = &self.shared.vocabulary;
        let (mut tokens, mut kinds) = (Vec::with_capacity(self.rows), Vec::with_capacity(self.rows));
        for (id, row) in (0..).zip(0..self.rows) {
            let kind = vocabulary.kind(id).unwrap_or(TokenKind::Unused);
            tokens.push(match vocabulary.bytes(id) {
                Some(bytes) if kind == TokenKind::Normal => alphabet::write(bytes),
                Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                None => format!("[PAD{row}]"),
            });
            kinds.push(kind);
        }
        let spelled = |id| alphabet::write(self.token_bytes(id));
        let merges = self.shared.bpe.merges().into_iter();
        let merges = merges.map(|(left, right)| format!("{} {}", spelled(left), spelled(right))).collect();
        GgufVocabulary { tokens, kinds, merges, pre: metadata::SPLITTING_RULE.to_owned() }
    }
}
