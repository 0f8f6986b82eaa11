//! Every block's state: free, held by tables, or cached (findable, held by nobody), and the moves between these.
//!
//! ```text
//! free --take--> held, private --publish--> held, findable --last release--> cached --evict--> taken anew
//!                      |                          ^                            |
//!                      +--last release--> free    +------------adopt-----------+
//! ```
//!
//! Whoever holds a findable block holds all blocks before it, and tables give back their last block first. So a cached
//! block was given back no later than the one before it, and eviction, oldest first, shortens prefixes from their end:
//! what is cached can be found.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::content::{Before, Content, Index, Publication};
use super::{BLOCK_TOKENS, BlockId, KvError, KvStats};
use crate::token::TokenId;

#[derive(Debug, Default)]
struct Block {
    /// Tables that hold it.
    tables: usize,
    /// Copies that wait to read it. They keep it from being handed out, not from being written: copies are made first.
    copies: usize,
    findable: Option<Findable>,
    /// When it was given back; the key of `cached`.
    released: u64,
}

#[derive(Debug)]
struct Findable {
    content: Arc<Content>,
    number: Publication,
}

/// The books of one KV store.
#[derive(Debug)]
pub(super) struct Ledger<S = RandomState> {
    blocks: Vec<Block>,
    /// Neither held nor findable; the last one is handed out next.
    free: Vec<BlockId>,
    /// Findable and held by nobody, by when they were given back; the first one is evicted next.
    cached: BTreeMap<u64, BlockId>,
    index: Index<S>,
    /// Counts releases and publications.
    clock: u64,
    pub(super) queries: u64,
    pub(super) hits: u64,
    pub(super) tokens_reused: u64,
    evictions: u64,
}

impl<S: BuildHasher + Default> Ledger<S> {
    /// A store of `blocks` blocks, all free.
    pub(super) fn new(blocks: usize) -> Ledger<S> {
        Ledger {
            blocks: (0..blocks).map(|_| Block::default()).collect(),
            free: (0..blocks as BlockId).rev().collect(),
            cached: BTreeMap::new(),
            index: Index::default(),
            clock: 0,
            queries: 0,
            hits: 0,
            tokens_reused: 0,
            evictions: 0,
        }
    }

    pub(super) fn stats(&self) -> KvStats {
        let (total, cached, free) = (self.blocks.len(), self.cached.len(), self.free.len());
        KvStats {
            total,
            used: total - cached - free,
            cached,
            free,
            queries: self.queries,
            hits: self.hits,
            tokens_reused: self.tokens_reused,
            evictions: self.evictions,
        }
    }

    /// Others may hold its content, now or later, so it must not be written.
    pub(super) fn is_sealed(&self, block: BlockId) -> bool {
        let Block { tables, findable, .. } = self.block(block);
        *tables > 1 || findable.is_some()
    }

    /// Nobody would hold it if one table, or one copy, gave it back.
    pub(super) fn has_one_holder(&self, block: BlockId) -> bool {
        let Block { tables, copies, .. } = self.block(block);
        tables + copies == 1
    }

    /// One table more.
    pub(super) fn hold(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        if block.tables + block.copies == 0 {
            self.cached.remove(&block.released);
        }
        block.tables += 1;
    }

    /// One table less. Of a sequence the last block is given back first.
    pub(super) fn release(&mut self, id: BlockId) {
        self.block_mut(id).tables -= 1;
        self.settle(id);
    }

    /// One copy that waits to read a block that a table holds.
    pub(super) fn await_copy(&mut self, id: BlockId) {
        self.block_mut(id).copies += 1;
    }

    /// One such copy less: made, or given up.
    pub(super) fn end_copy(&mut self, id: BlockId) {
        self.block_mut(id).copies -= 1;
        self.settle(id);
    }

    /// Where a block goes that nobody holds any more.
    fn settle(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        if block.tables + block.copies > 0 {
            return;
        }
        self.clock += 1;
        block.released = self.clock;
        match block.findable {
            Some(_) => {
                self.cached.insert(self.clock, id);
            }
            None => self.free.push(id),
        }
    }

    /// Blocks that can be handed out.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.cached.len()
    }

    /// Hands out `count` blocks, each held by one table, onto the end of `blocks`, or none at all.
    pub(super) fn take(&mut self, count: usize, blocks: &mut Vec<BlockId>) -> Result<(), KvError> {
        let available = self.available();
        if count > available {
            return Err(KvError::Full { needed: count, free: available, total: self.blocks.len() });
        }
        for _ in 0..count {
            let Some(block) = self.free.pop().or_else(|| self.evict()) else { break };
            self.block_mut(block).tables = 1;
            blocks.push(block);
        }
        Ok(())
    }

    /// Takes the cached block that was given back first.
    fn evict(&mut self) -> Option<BlockId> {
        let (_, id) = self.cached.pop_first()?;
        if let Some(findable) = self.block_mut(id).findable.take() {
            self.index.remove(&findable.content);
        }
        self.evictions += 1;
        Some(id)
    }

    /// The longest findable prefix of `tokens`, in whole blocks.
    pub(super) fn find(&self, salt: &Arc<[u8]>, tokens: &[TokenId]) -> Vec<BlockId> {
        let mut found = Vec::new();
        let mut before = Before::Salt(salt.clone());
        for tokens in tokens.as_chunks::<BLOCK_TOKENS>().0 {
            let Some(block) = self.index.get(&Content { before, tokens: *tokens }) else { break };
            let Some(Findable { number, .. }) = &self.block(*block).findable else { break };
            before = Before::Block(*number);
            found.push(*block);
        }
        found
    }

    /// Makes a block findable as the one that holds `tokens` after the findable block `before` (none: it is the first).
    /// Returns the block that holds this content from now on: another one where the content was findable already. None
    /// where the caller cannot change to that one, because others share the caller's; it may ask again.
    pub(super) fn publish(
        &mut self,
        id: BlockId,
        salt: &Arc<[u8]>,
        before: Option<BlockId>,
        tokens: &[TokenId; BLOCK_TOKENS],
    ) -> Option<BlockId> {
        let before = match before {
            Some(block) => Before::Block(self.block(block).findable.as_ref()?.number),
            None => Before::Salt(salt.clone()),
        };
        let content = Content { before, tokens: *tokens };
        match self.index.get(&content).copied() {
            Some(equal) if equal == id => {}
            Some(_) if self.block(id).tables > 1 => return None,
            Some(equal) => {
                self.hold(equal);
                self.release(id);
                return Some(equal);
            }
            None => {
                self.clock += 1;
                let content = Arc::new(content);
                self.index.insert(content.clone(), id);
                self.block_mut(id).findable = Some(Findable { content, number: self.clock });
            }
        }
        Some(id)
    }

    fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, Hasher};

    use super::*;

    /// Every content collides with every other.
    #[derive(Default)]
    struct Constant;

    impl Hasher for Constant {
        fn finish(&self) -> u64 {
            7
        }

        fn write(&mut self, _: &[u8]) {}
    }

    #[test]
    fn contents_whose_hashes_collide_are_told_apart() {
        let mut ledger = Ledger::<BuildHasherDefault<Constant>>::new(64);
        let salts: [Arc<[u8]>; 2] = [Arc::from(&b""[..]), Arc::from(&b"s"[..])];
        let mut published = Vec::new();
        for salt in &salts {
            // The same second and third block after different first ones.
            for first in 0..4 {
                let mut blocks: Vec<BlockId> = Vec::new();
                let mut tokens: Vec<TokenId> = Vec::new();
                for part in [first, 9, 9] {
                    let before = blocks.last().copied();
                    ledger.take(1, &mut blocks).unwrap();
                    let id = blocks[blocks.len() - 1];
                    assert_eq!(ledger.publish(id, salt, before, &[part; BLOCK_TOKENS]), Some(id));
                    tokens.extend([part; BLOCK_TOKENS]);
                }
                published.push((salt.clone(), tokens, blocks));
            }
        }
        for (salt, tokens, blocks) in &published {
            assert_eq!(ledger.find(salt, tokens), *blocks);
            let mut other = tokens.clone();
            other[40] = 8;
            assert_eq!(ledger.find(salt, &other), blocks[..1]);
        }
        assert_eq!(ledger.find(&salts[1], &[4; 96]), [0; 0]);
        assert_eq!(ledger.find(&Arc::from(&b"t"[..]), &published[0].1), [0; 0]);
    }
}
