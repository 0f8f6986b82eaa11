//! The vocabulary: the bytes of every id, and the id of a piece of bytes.

use std::hash::{BuildHasher, RandomState};

use super::TokenKind;
use super::error::{TokenizerError, shown_bytes};
use crate::TokenId;

/// Ids there may be. Real vocabularies have 10^5; more is a mistake or an attack.
pub(super) const MAX_TOKENS: usize = 1 << 24;

/// Many short byte strings in one allocation.
#[derive(Debug, Default)]
pub(super) struct ByteStrings {
    bytes: Vec<u8>,
    /// Where each ends; it starts where the one before ends.
    ends: Vec<u32>,
}

impl ByteStrings {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start =
            index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&end| end as usize);
        self.bytes.get(start..end)
    }

    /// Appends what `write` appends to the bytes it is given.
    pub(super) fn push_with(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), TokenizerError>,
    ) -> Result<(), TokenizerError> {
        write(&mut self.bytes)?;
        let limit = u32::MAX as usize;
        let end = u32::try_from(self.bytes.len()).map_err(|_| TokenizerError::TooLarge {
            what: "the text of the vocabulary in bytes",
            found: self.bytes.len(),
            limit,
        })?;
        self.ends.push(end);
        Ok(())
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), TokenizerError> {
        self.push_with(|out| {
            out.extend_from_slice(bytes);
            Ok(())
        })
    }

    /// The same strings in the order of `ids`: string `i` becomes string `ids[i]`. `ids` is a permutation.
    fn permuted(&self, ids: &[TokenId]) -> Result<ByteStrings, TokenizerError> {
        let mut sources = vec![0usize; ids.len()];
        for (source, &id) in ids.iter().enumerate() {
            if let Some(slot) = sources.get_mut(id as usize) {
                *slot = source;
            }
        }
        let mut ordered = ByteStrings::default();
        for source in sources {
            ordered.push(self.get(source).unwrap_or_default())?;
        }
        Ok(ordered)
    }

    /// Brings strings that came in the order of a file into the order of their ids, which must be 0 to n - 1.
    pub(super) fn into_id_order(self, ids: &[u64]) -> Result<ByteStrings, TokenizerError> {
        if ids.iter().enumerate().all(|(place, &id)| place as u64 == id) {
            return Ok(self);
        }
        let mut seen = vec![false; ids.len()];
        let mut narrow = Vec::with_capacity(ids.len());
        for (place, &id) in ids.iter().enumerate() {
            let token = || shown_bytes(self.get(place).unwrap_or_default());
            let slot = usize::try_from(id).ok().and_then(|id| seen.get_mut(id));
            let Some(slot) = slot else {
                return Err(TokenizerError::IdGap { token: token(), id, tokens: ids.len() });
            };
            let id = id as TokenId;
            if std::mem::replace(slot, true) {
                return Err(TokenizerError::DuplicateId { id, token: token() });
            }
            narrow.push(id);
        }
        self.permuted(&narrow)
    }
}

/// A seeded hash of short byte strings and of pairs of ids.
///
/// The seed is drawn for each tokenizer, so that a hostile file cannot choose tokens that all fall into one slot. Ids do
/// not depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    seed: u64,
}

/// An odd constant with bits in no pattern: the fractional part of the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies to 128 bits and folds the halves together, so that every bit of the result hangs on every bit of both.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0u8; 8];
    if let Some(part) = bytes.get(at..at + N) {
        word[..N].copy_from_slice(part);
    }
    u64::from_le_bytes(word)
}

impl Hasher {
    fn new() -> Hasher {
        Hasher { seed: RandomState::new().hash_one(0u8) | 1 }
    }

    fn bytes(self, bytes: &[u8]) -> u64 {
        let len = bytes.len();
        let mut hash = self.seed ^ fold(len as u64 ^ MIX, self.seed);
        let mut at = 0;
        while at + 8 < len {
            hash = fold(hash ^ word::<8>(bytes, at), MIX ^ self.seed);
            at += 8;
        }
        // The last up to 8 bytes, read as two words that may overlap.
        let last = match len {
            8.. => word::<8>(bytes, len - 8),
            4..=7 => word::<4>(bytes, 0) | word::<4>(bytes, len - 4) << 32,
            1..=3 => u64::from(bytes[0]) | u64::from(bytes[len / 2]) << 8 | u64::from(bytes[len - 1]) << 16,
            0 => 0,
        };
        fold(hash ^ last, MIX)
    }

    pub(super) fn pair(self, key: u64) -> u64 {
        fold(key ^ self.seed, MIX ^ self.seed.rotate_left(32))
    }
}

/// Slots for `entries` in open addressing: a power of two, at most 0.7 full.
pub(super) fn table_slots(entries: usize) -> usize {
    (entries + entries / 2).next_power_of_two().max(16)
}

/// The bytes of every id, what kind it is, and the id of a piece of bytes.
#[derive(Debug)]
pub(super) struct Vocabulary {
    strings: ByteStrings,
    kinds: Vec<TokenKind>,
    hasher: Hasher,
    /// Hash tag in the upper half, id in the lower; `EMPTY` where there is none.
    slots: Vec<u64>,
}

const EMPTY: u64 = u64::MAX;

impl Vocabulary {
    /// The tokens that `merges` accepts take part in merging and are found by their bytes.
    pub(super) fn new(
        strings: ByteStrings,
        kinds: Vec<TokenKind>,
        merges: impl Fn(usize, TokenKind) -> bool,
    ) -> Result<Vocabulary, TokenizerError> {
        let found = strings.len();
        if found > MAX_TOKENS {
            return Err(TokenizerError::TooLarge { what: "the number of tokens", found, limit: MAX_TOKENS });
        }
        let slots = vec![EMPTY; table_slots(found)];
        let mut vocabulary = Vocabulary { strings, kinds, hasher: Hasher::new(), slots };
        for id in 0..found {
            if vocabulary.kinds.get(id).is_some_and(|&kind| merges(id, kind)) {
                vocabulary.insert(id as TokenId)?;
            }
        }
        Ok(vocabulary)
    }

    fn insert(&mut self, id: TokenId) -> Result<(), TokenizerError> {
        let bytes = self.strings.get(id as usize).unwrap_or_default();
        if bytes.is_empty() {
            return Err(TokenizerError::EmptyToken { id });
        }
        match self.probe(bytes) {
            Ok(first) => Err(TokenizerError::DuplicateToken { token: shown_bytes(bytes), first, second: id }),
            Err((slot, tag)) => {
                self.slots[slot] = tag << 32 | u64::from(id);
                Ok(())
            }
        }
    }

    /// The id of `bytes`, or the slot and tag where it would stand.
    fn probe(&self, bytes: &[u8]) -> Result<TokenId, (usize, u64)> {
        let hash = self.hasher.bytes(bytes);
        let (mask, tag) = (self.slots.len() - 1, hash >> 32);
        let mut slot = hash as usize & mask;
        loop {
            let entry = self.slots[slot];
            if entry == EMPTY {
                return Err((slot, tag));
            }
            let id = entry as TokenId;
            if entry >> 32 == tag && self.strings.get(id as usize) == Some(bytes) {
                return Ok(id);
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The token that is exactly these bytes, if it takes part in merging.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<TokenId> {
        self.probe(bytes).ok()
    }

    pub(super) fn bytes(&self, id: TokenId) -> Option<&[u8]> {
        self.strings.get(id as usize)
    }

    pub(super) fn kind(&self, id: TokenId) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.strings.len()
    }

    pub(super) fn hasher(&self) -> Hasher {
        self.hasher
    }
}
