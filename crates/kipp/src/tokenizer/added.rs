//! Finding added tokens in a text: at each place the longest one that stands there, places from left to right.

use std::ops::Range;

use super::error::{TokenizerError, shown};
use super::{TokenKind, vocab::Vocabulary};
use crate::TokenId;

/// The added tokens by their text.
#[derive(Debug)]
pub(super) struct AddedTokens {
    /// Sorted by text.
    by_text: Vec<(Box<str>, TokenId)>,
    /// Bytes that some text starts with.
    starts: [bool; 256],
}

impl AddedTokens {
    /// # Errors
    /// Two added tokens with one text.
    pub(super) fn new(
        mut by_text: Vec<(Box<str>, TokenId)>,
        vocabulary: &Vocabulary,
    ) -> Result<AddedTokens, TokenizerError> {
        by_text.sort_unstable();
        let mut starts = [false; 256];
        for pair in by_text.windows(2) {
            if pair[0].0 == pair[1].0 {
                let kind = vocabulary.kind(pair[1].1).unwrap_or(TokenKind::UserDefined);
                return Err(TokenizerError::AmbiguousAddedToken { token: shown(&pair[0].0), kind });
            }
        }
        for (text, id) in &by_text {
            let first = text.as_bytes().first().ok_or(TokenizerError::EmptyToken { id: *id })?;
            starts[usize::from(*first)] = true;
        }
        Ok(AddedTokens { by_text, starts })
    }

    pub(super) fn len(&self) -> usize {
        self.by_text.len()
    }

    /// Text and id of every added token, sorted by text.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, TokenId)> {
        self.by_text.iter().map(|(text, id)| (&**text, *id))
    }

    pub(super) fn find(&self, text: &str) -> Option<TokenId> {
        let place = self.by_text.binary_search_by(|(known, _)| (**known).cmp(text)).ok()?;
        self.by_text.get(place).map(|(_, id)| *id)
    }

    /// The longest added token at `at` whose end `allowed` accepts: its end and id.
    fn longest_at(
        &self,
        text: &[u8],
        at: usize,
        allowed: impl Fn(usize) -> bool,
    ) -> Option<(usize, TokenId)> {
        let mut candidates = self.by_text.as_slice();
        let mut found = None;
        // Sorted texts with one beginning stand together; each byte more narrows them to those that share it.
        for (depth, byte) in text[at..].iter().enumerate() {
            let at_depth = |known: &(Box<str>, TokenId)| known.0.as_bytes().get(depth).copied();
            let from = candidates.partition_point(|known| at_depth(known) < Some(*byte));
            let to = candidates.partition_point(|known| at_depth(known) <= Some(*byte));
            candidates = candidates.get(from..to).unwrap_or_default();
            // Of those, one that ends here sorts first.
            let (shortest, id) = candidates.first()?;
            let end = at + depth + 1;
            if shortest.len() == depth + 1 && allowed(end) {
                found = Some((end, *id));
            }
            if candidates.len() == 1 && shortest.len() == depth + 1 {
                break;
            }
        }
        found
    }

    /// The next added token from `at` on that touches none of the `plain` byte ranges (sorted, apart): where and which.
    pub(super) fn next(
        &self,
        text: &[u8],
        mut at: usize,
        plain: &[Range<usize>],
    ) -> Option<(Range<usize>, TokenId)> {
        loop {
            at += text.get(at..)?.iter().position(|&byte| self.starts[usize::from(byte)])?;
            // The first plain range that ends past this place decides how far a token may reach.
            let barrier = plain
                .get(plain.partition_point(|range| range.end <= at))
                .map_or(usize::MAX, |range| range.start);
            if barrier > at
                && let Some((end, id)) = self.longest_at(text, at, |end| end <= barrier)
            {
                return Some((at..end, id));
            }
            at += 1;
        }
    }
}
