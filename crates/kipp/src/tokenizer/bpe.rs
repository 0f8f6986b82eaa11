//! Byte-pair encoding of one piece.
//!
//! ```text
//! symbols = the bytes of the piece, each a token
//! while two neighbours are a merge:
//!     join the two whose merge has the lowest rank, the leftmost of equals
//! ```
//!
//! Departures: a piece that is itself a token is looked up first, which is right only where merging its bytes would
//! arrive there too, so this is worked out once for each token and remembered. Short pieces are scanned for the best
//! merge again and again. Long ones keep their candidates in a queue over a linked list, so that a piece of any length
//! costs little more than its bytes.

use std::sync::atomic::{AtomicU8, Ordering};

use super::TokenKind;
use super::error::{TokenizerError, shown_bytes};
use super::queue::MergeQueue;
use super::vocab::{ByteStrings, Hasher, MAX_TOKENS, Vocabulary, table_slots};
use crate::TokenId;

/// No merge: above every packed one.
const NO_MERGE: u64 = u64::MAX;
/// No neighbour in the linked list.
const NO_LINK: u32 = u32::MAX;
/// Bytes of a piece up to which candidates are scanned: a few cache lines of them. Not swept; words rarely reach it.
const SHORT_PIECE: usize = 48;
/// Bytes merged at once: links are 32 bits. A single piece past it, of gigabytes, is merged in parts.
const LONGEST_PIECE: usize = 1 << 31;

/// What merging two tokens gives, for every pair that has a merge: open addressing, one cache line a look-up.
#[derive(Debug)]
struct Merges {
    hasher: Hasher,
    /// The pair (left id above right id), then its rank above the id that results.
    slots: Vec<[u64; 2]>,
}

impl Merges {
    /// `rank << 32 | id`, or `NO_MERGE`.
    fn get(&self, left: TokenId, right: TokenId) -> u64 {
        let key = u64::from(left) << 32 | u64::from(right);
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.pair(key) as usize & mask;
        loop {
            let [found, merge] = self.slots[slot];
            if found == key || merge == NO_MERGE {
                return merge;
            }
            slot = (slot + 1) & mask;
        }
    }

    /// False where the pair was there already.
    fn insert(&mut self, left: TokenId, right: TokenId, merge: u64) -> bool {
        let key = u64::from(left) << 32 | u64::from(right);
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.pair(key) as usize & mask;
        while self.slots[slot][1] != NO_MERGE {
            if self.slots[slot][0] == key {
                return false;
            }
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = [key, merge];
        true
    }
}

/// Whether merging a token's bytes gives the token.
mod whole {
    pub(super) const UNKNOWN: u8 = 0;
    pub(super) const YES: u8 = 1;
    pub(super) const NO: u8 = 2;
}

/// The merging part of a tokenizer.
#[derive(Debug)]
pub(super) struct Bpe {
    byte_ids: [TokenId; 256],
    merges: Merges,
    /// One of `whole` for each id. Every thread that looks writes the same, so no order is needed.
    wholes: Vec<AtomicU8>,
}

/// Memory for merging, kept from piece to piece.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The tokens of the piece so far.
    ids: Vec<TokenId>,
    /// What joining each with its right neighbour gives.
    joined: Vec<u64>,
    previous: Vec<u32>,
    next: Vec<u32>,
    queue: MergeQueue,
}

impl Bpe {
    /// `merges` holds left and right side of each merge in turn, in the order of their ranks.
    pub(super) fn new(vocabulary: &Vocabulary, merges: &ByteStrings) -> Result<Bpe, TokenizerError> {
        let mut byte_ids = [0; 256];
        for (byte, id) in (0..=255u8).zip(&mut byte_ids) {
            *id = vocabulary.find(&[byte]).ok_or(TokenizerError::MissingByte { byte })?;
        }
        let count = merges.len() / 2;
        if count > MAX_TOKENS {
            return Err(TokenizerError::TooLarge {
                what: "the number of merges",
                found: count,
                limit: MAX_TOKENS,
            });
        }
        let slots = vec![[0, NO_MERGE]; table_slots(count)];
        let mut table = Merges { hasher: vocabulary.hasher(), slots };
        let mut joined = Vec::new();
        // Files give the tokens in the order of their merges, so the next id is a good guess.
        let mut guess: TokenId = 0;
        for index in 0..count {
            let sides =
                [merges.get(2 * index).unwrap_or_default(), merges.get(2 * index + 1).unwrap_or_default()];
            let unknown = |bytes: &[u8]| TokenizerError::UnknownMerge { index, token: shown_bytes(bytes) };
            let id_of = |bytes: &[u8]| vocabulary.find(bytes).ok_or_else(|| unknown(bytes));
            let (left, right) = (id_of(sides[0])?, id_of(sides[1])?);
            joined.clear();
            joined.extend_from_slice(sides[0]);
            joined.extend_from_slice(sides[1]);
            let in_turn =
                vocabulary.kind(guess) == Some(TokenKind::Normal) && vocabulary.bytes(guess) == Some(&joined);
            let id = if in_turn { guess } else { id_of(&joined)? };
            if !table.insert(left, right, (index as u64) << 32 | u64::from(id)) {
                return Err(TokenizerError::DuplicateMerge { index });
            }
            guess = id + 1;
        }
        let wholes = (0..vocabulary.len()).map(|_| AtomicU8::new(whole::UNKNOWN)).collect();
        Ok(Bpe { byte_ids, merges: table, wholes })
    }

    /// Left and right token of each merge, in the order of their ranks.
    pub(super) fn merges(&self) -> Vec<(TokenId, TokenId)> {
        let slots = &self.merges.slots;
        let mut taken: Vec<&[u64; 2]> = slots.iter().filter(|[_, merge]| *merge != NO_MERGE).collect();
        // The rank is the upper half.
        taken.sort_unstable_by_key(|[_, merge]| *merge);
        taken.into_iter().map(|[pair, _]| ((pair >> 32) as TokenId, *pair as TokenId)).collect()
    }

    /// Appends the tokens of one piece.
    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        piece: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<TokenId>,
    ) {
        if let [byte] = piece {
            out.push(self.byte_ids[usize::from(*byte)]);
            return;
        }
        if let Some(id) = vocabulary.find(piece)
            && self.is_whole(id, piece, scratch)
        {
            out.push(id);
            return;
        }
        for part in piece.chunks(LONGEST_PIECE) {
            self.merge(part, scratch);
            out.extend_from_slice(&scratch.ids);
        }
    }

    /// Whether merging the bytes of token `id` gives `id` alone.
    fn is_whole(&self, id: TokenId, bytes: &[u8], scratch: &mut Scratch) -> bool {
        let Some(known) = self.wholes.get(id as usize) else { return false };
        let mut state = known.load(Ordering::Relaxed);
        if state == whole::UNKNOWN {
            self.merge(bytes, scratch);
            state = if scratch.ids == [id] { whole::YES } else { whole::NO };
            known.store(state, Ordering::Relaxed);
        }
        state == whole::YES
    }

    /// Leaves the tokens of `piece` in `scratch.ids`.
    fn merge(&self, piece: &[u8], scratch: &mut Scratch) {
        scratch.ids.clear();
        scratch.ids.extend(piece.iter().map(|&byte| self.byte_ids[usize::from(byte)]));
        scratch.joined.clear();
        scratch.joined.extend(scratch.ids.windows(2).map(|pair| self.merges.get(pair[0], pair[1])));
        if piece.len() <= SHORT_PIECE {
            self.merge_by_scanning(scratch);
        } else {
            self.merge_by_queue(scratch);
        }
    }

    fn merge_by_scanning(&self, scratch: &mut Scratch) {
        let Scratch { ids, joined, .. } = scratch;
        loop {
            // A rank belongs to one pair, so the first of the lowest is the leftmost of the lowest rank.
            let (mut at, mut best) = (0, NO_MERGE);
            for (place, &merge) in joined.iter().enumerate() {
                if merge < best {
                    (at, best) = (place, merge);
                }
            }
            if best == NO_MERGE {
                return;
            }
            ids[at] = best as TokenId;
            ids.remove(at + 1);
            joined.remove(at);
            if at < joined.len() {
                joined[at] = self.merges.get(ids[at], ids[at + 1]);
            }
            if at > 0 {
                joined[at - 1] = self.merges.get(ids[at - 1], ids[at]);
            }
        }
    }

    fn merge_by_queue(&self, scratch: &mut Scratch) {
        let Scratch { ids, joined, previous, next, queue } = scratch;
        let count = ids.len() as u32;
        previous.clear();
        previous.extend((0..count).map(|place| place.wrapping_sub(1)));
        next.clear();
        next.extend((1..count).chain([NO_LINK]));
        for (place, &merge) in (0u32..).zip(joined.iter()) {
            if merge != NO_MERGE {
                queue.push((merge >> 32) as u32, place);
            }
        }
        joined.push(NO_MERGE);
        while let Some((rank, place)) = queue.pop() {
            let at = place as usize;
            // Stale: the place was swallowed, or has joined something else since.
            if joined[at] == NO_MERGE || (joined[at] >> 32) as u32 != rank {
                continue;
            }
            let right = next[at] as usize;
            ids[at] = joined[at] as TokenId;
            joined[right] = NO_MERGE;
            let after = next[right];
            next[at] = after;
            joined[at] = NO_MERGE;
            if let Some(link) = previous.get_mut(after as usize) {
                *link = place;
                let merge = self.merges.get(ids[at], ids[after as usize]);
                joined[at] = merge;
                if merge != NO_MERGE {
                    queue.push((merge >> 32) as u32, place);
                }
            }
            let before = previous[at];
            if let Some(&left) = ids.get(before as usize) {
                let merge = self.merges.get(left, ids[at]);
                joined[before as usize] = merge;
                if merge != NO_MERGE {
                    queue.push((merge >> 32) as u32, before);
                }
            }
        }
        keep_linked(ids, next);
    }
}

/// Moves the tokens that are still in the list to the front, and drops the rest.
fn keep_linked(ids: &mut Vec<TokenId>, next: &[u32]) {
    let (mut at, mut kept) = (0u32, 0);
    while at != NO_LINK {
        ids[kept] = ids[at as usize];
        kept += 1;
        at = next[at as usize];
    }
    ids.truncate(kept);
}
