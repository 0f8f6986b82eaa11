//! Prompt lookup: where the last tokens of a history stood before, what followed them is likely to follow again.
//!
//! ```text
//! index: hash of each 2, 3 and 4 tokens that stand together -> position after them, the last one wins
//! draft: look up the last 4 tokens of the history, else the last 3, else the last 2; copy what follows
//! ```
//!
//! A copy that reaches the end of the history goes on with itself, so that a text with a period yields a draft of any
//! length. Looking up and indexing cost the same for every token, however long the history.

use super::Drafter;
use crate::TokenId;

/// Lengths that are looked up. One token says too little; over four rarely find more than four do.
const SHORTEST: usize = 2;
const LONGEST: usize = 4;

/// Slots an index has at most, 4 bytes each: enough for 3 entries of each of 65,536 tokens at a third full. Longer histories
/// lose entries to others, never correctness.
const MAX_SLOTS: usize = 1 << 19;

/// Slots of an empty index.
const MIN_SLOTS: usize = 1 << 10;

/// A slot that nothing was written to. Position 0 follows no tokens.
const EMPTY: u32 = 0;

/// Drafts by looking up the last tokens of a history in itself.
#[derive(Clone, Debug)]
pub struct NgramDrafter {
    /// Position after an n-gram, by its hash; checked against the history when used. A power of two of them.
    slots: Vec<u32>,
    /// Positions up to here, exclusive, are indexed: `slots` holds those that follow the n-grams before them.
    indexed: usize,
}

impl Default for NgramDrafter {
    fn default() -> Self {
        NgramDrafter::new()
    }
}

impl NgramDrafter {
    /// A drafter for one sequence.
    pub fn new() -> NgramDrafter {
        NgramDrafter { slots: vec![EMPTY; MIN_SLOTS], indexed: SHORTEST }
    }

    /// Makes `position` findable by the tokens before it.
    fn index(&mut self, history: &[TokenId], position: usize) {
        let Ok(entry) = u32::try_from(position) else { return };
        for n in SHORTEST..=LONGEST.min(position) {
            let slot = self.slot(&history[position - n..position]);
            self.slots[slot] = entry;
        }
    }

    /// Indexes what the history gained, without its end: nothing follows that yet.
    fn catch_up(&mut self, history: &[TokenId]) {
        // A history that shrank is indexed again from where it ends now.
        self.indexed = self.indexed.min(history.len().max(SHORTEST));
        let wanted = (history.len().saturating_mul(8)).next_power_of_two().clamp(MIN_SLOTS, MAX_SLOTS);
        if wanted > self.slots.len() {
            self.slots.clear();
            self.slots.resize(wanted, EMPTY);
            self.indexed = SHORTEST;
        }
        for position in self.indexed..history.len() {
            self.index(history, position);
        }
        self.indexed = self.indexed.max(history.len());
    }

    /// The position after the last earlier place of the history's last tokens, the most tokens first.
    fn find(&self, history: &[TokenId]) -> Option<usize> {
        (SHORTEST..=LONGEST.min(history.len())).rev().find_map(|n| {
            let last = &history[history.len() - n..];
            let position = self.slots[self.slot(last)] as usize;
            let before = position.checked_sub(n).and_then(|from| history.get(from..position));
            (position < history.len() && before == Some(last)).then_some(position)
        })
    }

    fn slot(&self, tokens: &[TokenId]) -> usize {
        // FNV-1a over whole ids, its bits mixed once more, since slots are taken from the low ones.
        let hash = tokens.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, token| {
            (hash ^ u64::from(*token)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mixed = (hash ^ hash >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.slots.len() - 1)
    }
}

impl Drafter for NgramDrafter {
    fn draft(&mut self, history: &[TokenId], max_tokens: usize, draft: &mut Vec<TokenId>) {
        draft.clear();
        self.catch_up(history);
        let Some(position) = self.find(history) else { return };
        for at in position..position.saturating_add(max_tokens) {
            let next = match history.get(at) {
                Some(token) => *token,
                None => draft[at - history.len()],
            };
            draft.push(next);
        }
    }

    fn accepted(&mut self, _drafted: usize, _accepted: usize) {}

    fn is_free(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(history: &[TokenId], max_tokens: usize) -> Vec<TokenId> {
        let mut draft = vec![99];
        NgramDrafter::new().draft(history, max_tokens, &mut draft);
        draft
    }

    #[test]
    fn the_longest_match_wins_and_of_equal_ones_the_last() {
        // 2 3 4 5 stands first, 4 5 later: four tokens beat two.
        assert_eq!(draft(&[1, 2, 3, 4, 5, 60, 7, 8, 4, 5, 61, 2, 3, 4, 5], 2), [60, 7]);
        // Twice the same two tokens before: the later place counts.
        assert_eq!(draft(&[4, 5, 60, 9, 4, 5, 61, 8, 4, 5], 1), [61]);
        assert_eq!(draft(&[1, 2, 3], 4), [0; 0]);
        assert_eq!(draft(&[], 4), [0; 0]);
        assert_eq!(draft(&[7, 7], 4), [0; 0]);
        assert_eq!(draft(&[4, 5, 6, 4, 5], 0), [0; 0]);
    }

    #[test]
    fn a_copy_that_reaches_the_end_goes_on_with_itself() {
        assert_eq!(draft(&[1, 2, 1, 2], 5), [1, 2, 1, 2, 1]);
        assert_eq!(draft(&[7, 7, 7], 3), [7, 7, 7]);
        assert_eq!(draft(&[8, 1, 2, 3, 1, 2, 3], 7), [1, 2, 3, 1, 2, 3, 1]);
    }

    #[test]
    fn growing_step_by_step_drafts_as_at_once() {
        let mut seed = 5u32;
        let history: Vec<TokenId> = (0..3000)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                seed >> 28
            })
            .collect();
        let mut drafter = NgramDrafter::new();
        let mut stepwise = Vec::new();
        for len in 0..=history.len() {
            drafter.draft(&history[..len], 4, &mut stepwise);
            if len % 97 == 0 {
                assert_eq!(stepwise, draft(&history[..len], 4), "{len}");
            }
        }
    }

    #[test]
    fn a_history_that_shrank_or_changed_is_never_read_past_its_end() {
        let long: Vec<TokenId> = (0..2000).map(|i| i % 50).collect();
        let mut drafter = NgramDrafter::new();
        let mut out = Vec::new();
        drafter.draft(&long, 8, &mut out);
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 7]);
        for len in [120, 51, 3, 1, 0, 80] {
            drafter.draft(&long[..len], 8, &mut out);
            assert!(out.iter().all(|token| long[..len].contains(token)));
        }
        let other = [1, 2, 3, 9, 9, 1, 2, 3];
        drafter.draft(&other, 3, &mut out);
        assert!(out.iter().all(|token| other.contains(token)));
    }

    #[test]
    fn memory_is_bounded() {
        let history: Vec<TokenId> = (0..300_000).collect();
        let mut drafter = NgramDrafter::new();
        drafter.draft(&history, 4, &mut Vec::new());
        assert_eq!(drafter.slots.len(), MAX_SLOTS);
    }
}
