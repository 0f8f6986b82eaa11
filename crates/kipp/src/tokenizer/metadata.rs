//! A tokenizer from GGUF metadata: lists of tokens, of their kinds, of merges, and the name of the splitting rule.

use super::error::{TokenizerError, shown};
use super::vocab::ByteStrings;
use super::{Parts, TokenKind, alphabet};

/// The name of Qwen's splitting rule, the only one that there is here.
pub(super) const SPLITTING_RULE: &str = "qwen2";

/// Added tokens that Qwen declares to be part of the text, but that GGUF writers mark as control tokens because of their
/// spelling. Both kinds of file must decode alike.
const NOT_SPECIAL: [&str; 6] =
    ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"];

pub(super) fn read(
    tokens: &[String],
    kinds: &[TokenKind],
    merges: &[String],
    pre: &str,
) -> Result<Parts, TokenizerError> {
    if pre != SPLITTING_RULE {
        let (part, expected) = ("tokenizer.ggml.pre", "`qwen2`");
        return Err(TokenizerError::Unsupported { part, found: shown(pre), expected });
    }
    if !kinds.is_empty() && kinds.len() != tokens.len() {
        return Err(TokenizerError::KindCount { tokens: tokens.len(), kinds: kinds.len() });
    }
    let kind = |id: usize| kinds.get(id).copied().unwrap_or(TokenKind::Normal);
    // Rows at the end that only pad are no tokens: the tokenizer is the one of the original files.
    let used = (0..tokens.len()).rfind(|&id| kind(id) != TokenKind::Unused).map_or(0, |last| last + 1);
    let mut parts = Parts {
        strings: ByteStrings::default(),
        kinds: Vec::with_capacity(used),
        model_tokens: used,
        added_merge: false,
        merges: read_merges(merges)?,
        rows: tokens.len(),
    };
    for (id, token) in tokens.iter().enumerate().take(used) {
        let kind = kind(id);
        if kind == TokenKind::Normal {
            parts.strings.push_with(|out| alphabet::read(token, out))?;
        } else {
            parts.strings.push(token.as_bytes())?;
        }
        let text = kind == TokenKind::Control && NOT_SPECIAL.contains(&token.as_str());
        parts.kinds.push(if text { TokenKind::UserDefined } else { kind });
    }
    Ok(parts)
}

fn read_merges(merges: &[String]) -> Result<ByteStrings, TokenizerError> {
    let mut sides = ByteStrings::default();
    for (index, merge) in merges.iter().enumerate() {
        push_merge(merge, index, &mut sides)?;
    }
    Ok(sides)
}

/// Appends both sides of a merge that is spelled `left right`.
pub(super) fn push_merge(merge: &str, index: usize, sides: &mut ByteStrings) -> Result<(), TokenizerError> {
    let malformed = || TokenizerError::MalformedMerge { index, merge: shown(merge) };
    let (left, right) = merge.split_once(' ').ok_or_else(malformed)?;
    if left.is_empty() || right.is_empty() || right.contains(' ') {
        return Err(malformed());
    }
    sides.push_with(|out| alphabet::read(left, out))?;
    sides.push_with(|out| alphabet::read(right, out))
}
