//! Kipp's tokenizer as `toktrie` wants it: the bytes of each id, and how a text is tokenized.
//!
//! Added tokens are names of themselves, never text: a string of an answer cannot hold `<tool_call>` as the token that
//! begins a call, only as its letters; a grammar can name the token. Padding ids have no bytes and are
//! never allowed, whatever the width of the model's head.

use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use super::ConstraintError;
use crate::TokenId;
use crate::tokenizer::Tokenizer;

/// The tree numbers its nodes in 22 bits, one for each byte of a text at most.
const MAX_BYTES: usize = (1 << 22) - 1;

/// The tree holds ids in 24 bits, one value of which means none.
const MAX_TOKENS: usize = (1 << 24) - 1;

/// Longer tokens are not offered to a grammar: the tree is built by recursion, and no text of use is this long.
const MAX_TOKEN_BYTES: usize = 512;

struct Vocabulary {
    tokenizer: Tokenizer,
    trie: TokTrie,
}

/// The vocabulary with the tokens that end an answer.
pub(super) fn environment(tokenizer: &Tokenizer, end_tokens: &[TokenId]) -> Result<TokEnv, ConstraintError> {
    let tokens = tokenizer.len();
    if tokens > MAX_TOKENS {
        return Err(ConstraintError::Vocabulary { what: "tokens", found: tokens, limit: MAX_TOKENS });
    }
    let ends: Vec<TokenId> = end_tokens.iter().copied().filter(|id| (*id as usize) < tokens).collect();
    let first = *ends.first().ok_or(ConstraintError::NoEndToken { tokens })?;
    let words = words(tokenizer)?;
    let trie = TokTrie::from(&TokRxInfo::new(tokens as u32, first), &words).with_eos_tokens(&ends);
    Ok(std::sync::Arc::new(Vocabulary { tokenizer: tokenizer.clone(), trie }))
}

/// What each id spells; empty for what no grammar can ask for.
fn words(tokenizer: &Tokenizer) -> Result<Vec<Vec<u8>>, ConstraintError> {
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    let spelled = |id: usize| tokenizer.token_bytes(id as TokenId);
    let usable = |bytes: &[u8]| bytes.len() <= MAX_TOKEN_BYTES && !bytes.contains(&marker);
    let mut words: Vec<Vec<u8>> = (0..tokenizer.len())
        .map(|id| match tokenizer.decode(&[id as TokenId], false) {
            // What decodes to nothing is padding.
            Ok(text) if !text.is_empty() && usable(spelled(id)) => spelled(id).to_vec(),
            _ => Vec::new(),
        })
        .collect();
    for (text, id) in tokenizer.added_tokens() {
        if let Some(word) = words.get_mut(id as usize).filter(|word| !word.is_empty()) {
            *word = [&[marker], text.as_bytes()].concat();
        }
    }
    let found: usize = words.iter().map(Vec::len).sum();
    if found > MAX_BYTES {
        return Err(ConstraintError::Vocabulary { what: "bytes of tokens", found, limit: MAX_BYTES });
    }
    Ok(words)
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// As the model's prompts are tokenized, so that what a grammar forces comes in the tokens that the model knows it
    /// in. A text that the tokenizer would change (it makes NFC of it) is cut into its longest tokens instead.
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let ids = self.tokenizer.encode(text);
            let spelled = ids.iter().flat_map(|id| self.tokenizer.token_bytes(*id));
            match spelled.eq(text.as_bytes()) {
                true => ids,
                false => self.trie.greedy_tokenize(text.as_bytes()),
            }
        })
    }
}
