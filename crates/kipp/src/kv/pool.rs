//! The handle on the blocks of one KV store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ledger::Ledger;
use super::{BLOCK_TOKENS, BlockTable};
use crate::token::TokenId;

/// Why blocks cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// Tables hold too many blocks.
    #[error("the KV cache is full: {needed} more blocks needed, {free} of {total} not in use")]
    Full {
        /// Blocks asked for.
        needed: usize,
        /// Blocks that nobody holds, those that are findable included.
        free: usize,
        /// Blocks of the store.
        total: usize,
    },
}

/// What became of the blocks, and how often prefixes were reused. `used + cached + free = total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvStats {
    /// Blocks of the store.
    pub total: usize,
    /// Blocks that tables hold.
    pub used: usize,
    /// Blocks that nobody holds and that can be adopted; they are evicted when others are needed.
    pub cached: usize,
    /// Blocks that hold nothing.
    pub free: usize,
    /// Calls of [`KvPool::adopt`].
    pub queries: u64,
    /// Those that adopted at least one block.
    pub hits: u64,
    /// Positions that were adopted instead of evaluated.
    pub tokens_reused: u64,
    /// Cached blocks that were handed out for something else.
    pub evictions: u64,
}

/// A cheap handle on the pool, so that a table can give back what it holds.
///
/// Dropping a table returns its blocks. Those that were published stay findable until other tables need their place: the
/// one given back first goes first, and a sequence gives back its last block first.
#[derive(Clone, Debug)]
pub struct KvPool(Arc<Mutex<Ledger>>);

impl KvPool {
    /// A pool over a store of `blocks` blocks, all free.
    pub fn new(blocks: usize) -> KvPool {
        KvPool(Arc::new(Mutex::new(Ledger::new(blocks))))
    }

    /// An empty table without a salt, whose blocks come from here and return when it is dropped.
    pub fn table(&self) -> BlockTable {
        BlockTable::new(self.clone(), Arc::from([]))
    }

    /// A table that begins with the published blocks of the longest known prefix of `tokens`. At least the last token is
    /// left to evaluate, so that there are logits: at most `tokens.len() - 1` positions are adopted, in whole blocks.
    ///
    /// What this table publishes is found only by those who give the same `salt`; an empty one is none.
    pub fn adopt(&self, salt: &[u8], tokens: &[TokenId]) -> BlockTable {
        let salt = Arc::from(salt);
        let mut ledger = self.ledger();
        let blocks = ledger.find(&salt, but_the_last(tokens));
        blocks.iter().for_each(|block| ledger.hold(*block));
        ledger.queries += 1;
        ledger.hits += u64::from(!blocks.is_empty());
        ledger.tokens_reused += (blocks.len() * BLOCK_TOKENS) as u64;
        drop(ledger);
        BlockTable::adopted(self.clone(), salt, blocks)
    }

    /// The positions that [`KvPool::adopt`] would give; counts nothing and keeps nothing from eviction.
    pub fn lookup(&self, salt: &[u8], tokens: &[TokenId]) -> usize {
        self.ledger().find(&Arc::from(salt), but_the_last(tokens)).len() * BLOCK_TOKENS
    }

    /// How the blocks are used, and how often they were reused.
    pub fn stats(&self) -> KvStats {
        self.ledger().stats()
    }

    /// No operation panics half way through, so the books are right even where a thread that held the lock panicked.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn but_the_last(tokens: &[TokenId]) -> &[TokenId] {
    &tokens[..tokens.len().saturating_sub(1)]
}
