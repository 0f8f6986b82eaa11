//! The blocks of one KV store and who holds them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{BlockId, BlockTable};

/// Why blocks cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// Every block is held.
    #[error("the KV cache is full: {needed} more blocks needed, {free} of {total} free")]
    Full {
        /// Blocks asked for.
        needed: usize,
        /// Blocks that nobody holds.
        free: usize,
        /// Blocks of the store.
        total: usize,
    },
}

/// A cheap handle on the pool, so that a table can give back what it holds.
#[derive(Clone, Debug)]
pub struct KvPool(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Blocks that nobody holds; the last one is handed out next.
    free: Vec<BlockId>,
    total: usize,
}

impl KvPool {
    /// A pool over a store of `blocks` blocks, all free.
    pub fn new(blocks: usize) -> KvPool {
        let free = (0..blocks as BlockId).rev().collect();
        KvPool(Arc::new(Mutex::new(State { free, total: blocks })))
    }

    /// An empty table, whose blocks come from here and return when it is dropped.
    pub fn table(&self) -> BlockTable {
        BlockTable::new(self.clone())
    }

    /// Blocks that nobody holds.
    pub fn free_blocks(&self) -> usize {
        self.state().free.len()
    }

    /// Blocks of the store.
    pub fn total_blocks(&self) -> usize {
        self.state().total
    }

    /// Hands out `count` blocks onto the end of `blocks`, or none at all.
    pub(super) fn take(&self, count: usize, blocks: &mut Vec<BlockId>) -> Result<(), KvError> {
        let mut state = self.state();
        let free = state.free.len();
        if count > free {
            return Err(KvError::Full { needed: count, free, total: state.total });
        }
        blocks.extend(state.free.drain(free - count..).rev());
        Ok(())
    }

    pub(super) fn give_back(&self, blocks: impl DoubleEndedIterator<Item = BlockId>) {
        self.state().free.extend(blocks.rev());
    }

    /// A panic elsewhere cannot leave the free list half changed, so a poisoned lock is still good.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
