//! The candidates of a long piece: which place to merge next, the lowest rank first and of equals the leftmost.
//!
//! A binary heap of all candidates misses the cache at each of its levels. But few ranks are alive at a time, and the
//! places of one rank come almost always from left to right, so each rank keeps a plain list, and a heap only for the
//! places that come out of turn. The order is that of one heap whatever comes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The places of one rank.
#[derive(Debug, Default)]
struct Places {
    /// Ascending; those before `taken` are gone.
    run: Vec<u32>,
    taken: usize,
    /// Places that came after a later one.
    late: BinaryHeap<Reverse<u32>>,
}

impl Places {
    fn push(&mut self, place: u32) {
        match self.run.last() {
            Some(&last) if place < last => self.late.push(Reverse(place)),
            _ => self.run.push(place),
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let (next, late) = (self.run.get(self.taken).copied(), self.late.peek().map(|late| late.0));
        match (next, late) {
            (next, Some(late)) if next.is_none_or(|next| late < next) => {
                self.late.pop();
                Some(late)
            }
            (next, _) => {
                self.taken += usize::from(next.is_some());
                next
            }
        }
    }
}

/// Places by rank.
#[derive(Debug, Default)]
pub(super) struct MergeQueue {
    ranks: BTreeMap<u32, Places>,
}

impl MergeQueue {
    pub(super) fn push(&mut self, rank: u32, place: u32) {
        self.ranks.entry(rank).or_default().push(place);
    }

    /// The lowest rank and its leftmost place.
    pub(super) fn pop(&mut self) -> Option<(u32, u32)> {
        loop {
            let mut first = self.ranks.first_entry()?;
            match first.get_mut().pop() {
                Some(place) => return Some((*first.key(), place)),
                None => first.remove(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MergeQueue;

    #[test]
    fn pops_in_the_order_of_one_heap() {
        let mut queue = MergeQueue::default();
        let (mut model, mut state) = (std::collections::BTreeSet::new(), 1u64);
        for step in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if step % 5 < 3 {
                let item = ((state >> 60) as u32, (state >> 33) as u32 % 5000);
                if model.insert(item) {
                    queue.push(item.0, item.1);
                }
            } else {
                assert_eq!(queue.pop(), model.pop_first());
            }
        }
        while let Some(item) = model.pop_first() {
            assert_eq!(queue.pop(), Some(item));
        }
        assert_eq!(queue.pop(), None);
    }
}
