//! One sequence's blocks, in order of position. Dropping the table returns them: finish, failure and cancel are one path.

use super::{BLOCK_TOKENS, BlockId, KvError, KvPool};

/// The block table of one sequence.
#[derive(Debug)]
pub struct BlockTable {
    pool: KvPool,
    blocks: Vec<BlockId>,
}

impl BlockTable {
    pub(super) fn new(pool: KvPool) -> BlockTable {
        BlockTable { pool, blocks: Vec::new() }
    }

    /// Grows to hold `tokens` positions; the blocks that are new (to be zeroed before use) are returned.
    pub fn reserve(&mut self, tokens: usize) -> Result<&[BlockId], KvError> {
        let held = self.blocks.len();
        let needed = tokens.div_ceil(BLOCK_TOKENS).saturating_sub(held);
        self.pool.take(needed, &mut self.blocks)?;
        Ok(&self.blocks[held..])
    }

    /// Keeps what `tokens` positions need and returns the rest.
    pub fn truncate(&mut self, tokens: usize) {
        let keep = tokens.div_ceil(BLOCK_TOKENS).min(self.blocks.len());
        self.pool.give_back(self.blocks.drain(keep..));
    }

    /// The blocks, in order of position.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }
}

impl Drop for BlockTable {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_pool_hands_out_nothing() {
        let pool = KvPool::new(3);
        let mut a = pool.table();
        assert_eq!(a.reserve(33).map(<[BlockId]>::len), Ok(2));
        let mut b = pool.table();
        assert_eq!(b.reserve(64), Err(KvError::Full { needed: 2, free: 1, total: 3 }));
        assert_eq!((b.blocks().len(), pool.free_blocks()), (0, 1));
        drop(a);
        assert_eq!(b.reserve(96).map(<[BlockId]>::len), Ok(3));
    }

    proptest! {
        /// Against a naive model: no block is ever lost or held twice.
        #[test]
        fn blocks_are_never_lost_or_shared(steps in prop::collection::vec((0usize..4, 0usize..300), 1..80)) {
            let pool = KvPool::new(16);
            let mut tables: Vec<BlockTable> = (0..4).map(|_| pool.table()).collect();
            for (who, tokens) in steps {
                let held = tables[who].blocks().len();
                let free = pool.free_blocks();
                let wanted = tokens.div_ceil(BLOCK_TOKENS);
                if wanted >= held {
                    let fits = tables[who].reserve(tokens).is_ok();
                    prop_assert_eq!(fits, wanted - held <= free);
                } else if tokens % 7 == 0 {
                    tables[who] = pool.table();
                } else {
                    tables[who].truncate(tokens);
                    prop_assert_eq!(tables[who].blocks().len(), wanted);
                }
                let mut all: Vec<BlockId> = tables.iter().flat_map(|t| t.blocks().iter().copied()).collect();
                prop_assert_eq!(all.len() + pool.free_blocks(), pool.total_blocks());
                all.sort_unstable();
                all.dedup();
                prop_assert_eq!(all.len() + pool.free_blocks(), pool.total_blocks());
            }
        }
    }
}
