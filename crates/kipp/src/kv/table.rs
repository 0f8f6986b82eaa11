//! One sequence's blocks, in order of position. Dropping the table returns them: finish, failure and cancel are one path.

use std::sync::Arc;

use super::ledger::Ledger;
use super::{BLOCK_TOKENS, BlockId, KvError, KvPool};
use crate::token::TokenId;

/// The block table of one sequence.
///
/// A block that is published, or that another table holds too, is never written again: tables are only extended, and
/// where one is cut inside such a block, [`truncate`](BlockTable::truncate) and [`fork`](BlockTable::fork) replace it by
/// a private one and ask for a copy. The block that a copy reads stays held until the next
/// [`publish`](BlockTable::publish), so that it is still there when the step that copies runs, whatever becomes of its
/// owner. A copy whose target the table has given up before that step must not be run.
#[derive(Debug)]
pub struct BlockTable {
    pool: KvPool,
    salt: Arc<[u8]>,
    blocks: Vec<BlockId>,
    /// Leading blocks that are findable.
    published: usize,
    adopted_tokens: usize,
    /// Blocks that copies will read, each with the index of the block that it is copied to; ascending.
    sources: Vec<(usize, BlockId)>,
}

impl BlockTable {
    pub(super) fn new(pool: KvPool, salt: Arc<[u8]>) -> BlockTable {
        BlockTable::adopted(pool, salt, Vec::new())
    }

    /// `blocks` are findable and held for this table.
    pub(super) fn adopted(pool: KvPool, salt: Arc<[u8]>, blocks: Vec<BlockId>) -> BlockTable {
        let (published, adopted_tokens) = (blocks.len(), blocks.len() * BLOCK_TOKENS);
        BlockTable { pool, salt, blocks, published, adopted_tokens, sources: Vec::new() }
    }

    /// The blocks, in order of position.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Positions that were there when the table was made by [`KvPool::adopt`].
    pub fn adopted_tokens(&self) -> usize {
        self.adopted_tokens
    }

    /// Grows to hold `tokens` positions, or not at all; the blocks that are new (to be zeroed before use) are returned.
    /// Cached blocks are evicted where free ones do not suffice.
    pub fn reserve(&mut self, tokens: usize) -> Result<&[BlockId], KvError> {
        let held = self.blocks.len();
        let needed = tokens.div_ceil(BLOCK_TOKENS).saturating_sub(held);
        self.pool.ledger().take(needed, &mut self.blocks)?;
        Ok(&self.blocks[held..])
    }

    /// To be called when a step has completed: `tokens` are all of the sequence's accepted tokens, from position 0, that
    /// steps which are complete have written. Every whole block of them becomes findable.
    ///
    /// Where the same content is findable already (two sequences evaluated one prompt side by side), the table changes
    /// over to that block and gives its own back: memory is held once, and whoever holds a findable block holds all
    /// blocks before it, which the order of eviction rests on. Bits do not change, for a position's keys and values
    /// depend on the tokens alone. A block that forks share cannot be changed for one of them: it is left private, with
    /// all after it, and tried again the next time.
    pub fn publish(&mut self, tokens: &[TokenId]) {
        let mut ledger = self.pool.ledger();
        while let Some((_, source)) = self.sources.pop() {
            ledger.end_copy(source);
        }
        let whole = tokens.as_chunks::<BLOCK_TOKENS>().0;
        for (index, tokens) in whole.iter().enumerate().take(self.blocks.len()).skip(self.published) {
            let before = index.checked_sub(1).map(|before| self.blocks[before]);
            match ledger.publish(self.blocks[index], &self.salt, before, tokens) {
                Some(block) => self.blocks[index] = block,
                None => break,
            }
            self.published = index + 1;
        }
    }

    /// Keeps what `tokens` positions need and returns the rest: rolls back. Where the cut lies inside a block that is
    /// published or shared, that block is replaced by a private one, and the copy to make before the next step is
    /// returned, from and to (for [`Batch::copy`](crate::batch::Batch::copy)). Without a block for it, nothing changes
    /// and an error is returned; a sequence that neither adopted, published nor forked never meets either.
    pub fn truncate(&mut self, tokens: usize) -> Result<Option<(BlockId, BlockId)>, KvError> {
        let keep = tokens.div_ceil(BLOCK_TOKENS).min(self.blocks.len());
        let cut = self.cut_block(tokens);
        let mut ledger = self.pool.ledger();
        let sealed = cut.filter(|block| ledger.is_sealed(*block));
        if sealed.is_some() && ledger.available() == 0 {
            let sources = self.sources.iter().filter(|(index, _)| *index >= keep).map(|(_, source)| source);
            let mut given_back = self.blocks[keep..].iter().chain(sources);
            if !given_back.any(|block| ledger.has_one_holder(*block)) {
                return Err(KvError::Full { needed: 1, free: 0, total: ledger.stats().total });
            }
        }
        give_back(&mut ledger, &mut self.blocks, &mut self.sources, keep);
        self.published = self.published.min(keep);
        let Some(from) = sealed else { return Ok(None) };
        // There is one: available before, or given back just now.
        ledger.take(1, &mut self.blocks)?;
        self.blocks.swap_remove(keep - 1);
        let to = self.blocks[keep - 1];
        ledger.await_copy(from);
        ledger.release(from);
        self.published = self.published.min(keep - 1);
        self.sources.push((keep - 1, from));
        Ok(Some((from, to)))
    }

    /// A second table for the first `tokens` positions: another choice after the same prompt. Whole blocks are shared;
    /// the last one, where it is not whole, is copied, from and to (for [`Batch::copy`](crate::batch::Batch::copy)), in
    /// the next step, before any row is written.
    pub fn fork(&self, tokens: usize) -> Result<(BlockTable, Option<(BlockId, BlockId)>), KvError> {
        let whole = (tokens / BLOCK_TOKENS).min(self.blocks.len());
        let mut blocks = self.blocks[..whole].to_vec();
        let mut ledger = self.pool.ledger();
        let mut sources = Vec::new();
        let mut copy = None;
        if let Some(from) = self.cut_block(tokens) {
            ledger.take(1, &mut blocks)?;
            ledger.await_copy(from);
            sources.push((whole, from));
            copy = Some((from, blocks[whole]));
        }
        blocks[..whole].iter().for_each(|block| ledger.hold(*block));
        drop(ledger);
        let (pool, salt) = (self.pool.clone(), self.salt.clone());
        let (published, adopted_tokens) = (self.published.min(whole), self.adopted_tokens);
        Ok((BlockTable { pool, salt, blocks, published, adopted_tokens, sources }, copy))
    }

    /// The block that holds both the last of `tokens` positions and later ones.
    fn cut_block(&self, tokens: usize) -> Option<BlockId> {
        let inside = !tokens.is_multiple_of(BLOCK_TOKENS);
        self.blocks.get(tokens / BLOCK_TOKENS).copied().filter(|_| inside)
    }
}

impl Drop for BlockTable {
    fn drop(&mut self) {
        give_back(&mut self.pool.ledger(), &mut self.blocks, &mut self.sources, 0);
    }
}

/// Gives back the blocks from index `keep` on, the last one first, and what copies to them would have read.
fn give_back(
    ledger: &mut Ledger,
    blocks: &mut Vec<BlockId>,
    sources: &mut Vec<(usize, BlockId)>,
    keep: usize,
) {
    while let Some((_, source)) = sources.pop_if(|(index, _)| *index >= keep) {
        ledger.end_copy(source);
    }
    blocks.drain(keep..).rev().for_each(|block| ledger.release(block));
}

#[cfg(test)]
mod tests {
    use super::super::KvStats;
    use super::*;

    fn filled(pool: &KvPool, tokens: &[TokenId]) -> BlockTable {
        let mut table = pool.adopt(b"", tokens);
        table.reserve(tokens.len()).unwrap();
        table.publish(tokens);
        table
    }

    #[test]
    fn a_full_pool_hands_out_nothing() {
        let pool = KvPool::new(3);
        let mut a = pool.table();
        assert_eq!(a.reserve(33).map(<[BlockId]>::len), Ok(2));
        let mut b = pool.table();
        assert_eq!(b.reserve(64), Err(KvError::Full { needed: 2, free: 1, total: 3 }));
        assert_eq!((b.blocks().len(), pool.stats().free), (0, 1));
        drop(a);
        assert_eq!(b.reserve(96).map(<[BlockId]>::len), Ok(3));
    }

    #[test]
    fn h25_at_least_one_token_is_left_to_evaluate() {
        let pool = KvPool::new(16);
        for len in [0, 1, 31, 32, 33, 64, 65] {
            let prompt: Vec<TokenId> = (0..len).map(|i| len * 100 + i).collect();
            assert_eq!(filled(&pool, &prompt).adopted_tokens(), 0);
            let expected = (prompt.len().saturating_sub(1)) / BLOCK_TOKENS * BLOCK_TOKENS;
            for _ in 0..2 {
                let before = pool.stats();
                assert_eq!(pool.lookup(b"", &prompt), expected);
                assert_eq!(pool.stats(), before, "a look counts nothing");
                assert_eq!(filled(&pool, &prompt).adopted_tokens(), expected, "{len} tokens");
                assert_eq!(pool.stats().tokens_reused - before.tokens_reused, expected as u64);
            }
            if len > 32 {
                // Cut by one token, its last token changed, its first token changed, another salt.
                let (short, mut last, mut first) =
                    (&prompt[..prompt.len() - 1], prompt.clone(), prompt.clone());
                last[prompt.len() - 1] = 9;
                first[0] = 9;
                assert_eq!(pool.lookup(b"", short), (short.len() - 1) / BLOCK_TOKENS * BLOCK_TOKENS);
                assert_eq!(pool.lookup(b"", &last), expected);
                assert_eq!((pool.lookup(b"", &first), pool.lookup(b"s", &prompt)), (0, 0));
            }
        }
    }

    #[test]
    fn h26_a_block_is_findable_only_when_it_is_published() {
        let pool = KvPool::new(16);
        let prompt: Vec<TokenId> = (0..128).chain([7]).collect();
        // Eight with one prefix in one step: none finds what no step has written.
        let mut tables: Vec<BlockTable> = (0..8).map(|_| pool.adopt(b"", &prompt)).collect();
        assert!(tables.iter().all(|table| table.adopted_tokens() == 0));
        tables[0].reserve(96).unwrap();
        tables[1].reserve(96).unwrap();
        assert_eq!(pool.lookup(b"", &prompt), 0, "reserved is not written");
        // A prefill that was cancelled publishes what its steps completed, and nothing else.
        tables[0].publish(&prompt[..70]);
        drop(tables.remove(0));
        assert_eq!(pool.lookup(b"", &prompt), 64);
        assert_eq!((pool.stats().cached, pool.stats().used), (2, 3));
        // The other one changes over to the blocks that are findable, and its own return.
        let own = tables[0].blocks().to_vec();
        tables[0].publish(&prompt[..96]);
        assert_eq!(tables[0].blocks()[2], own[2]);
        assert!(!own[..2].contains(&tables[0].blocks()[0]) && !own[..2].contains(&tables[0].blocks()[1]));
        let KvStats { used, cached, free, .. } = pool.stats();
        assert_eq!((used, cached, free), (3, 0, 13));
        assert_eq!(pool.adopt(b"", &prompt).adopted_tokens(), 96);
    }

    #[test]
    fn a_published_block_that_is_cut_is_copied_and_not_written() {
        let pool = KvPool::new(4);
        let tokens: Vec<TokenId> = (0..96).collect();
        let mut table = filled(&pool, &tokens);
        let before = table.blocks().to_vec();
        assert_eq!(table.truncate(64), Ok(None));
        let copy = table.truncate(40).unwrap().unwrap();
        assert_eq!((copy.0, table.blocks()), (before[1], &[before[0], copy.1][..]));
        assert_eq!(table.truncate(35), Ok(None), "it is private now");
        // Its source is held until the step that copies has completed, whatever else is needed.
        assert_eq!(table.reserve(96).map(<[BlockId]>::len), Ok(1));
        assert_eq!(
            pool.stats(),
            KvStats { total: 4, used: 4, evictions: 1, queries: 1, ..KvStats::default() }
        );
        table.publish(&tokens[..35]);
        assert_eq!((pool.stats().used, pool.stats().cached), (3, 1));
        assert_eq!(pool.lookup(b"", &tokens), 64);
    }

    #[test]
    fn without_a_block_for_the_copy_nothing_changes() {
        let pool = KvPool::new(2);
        let tokens: Vec<TokenId> = (0..64).collect();
        let mut table = filled(&pool, &tokens);
        let before = table.blocks().to_vec();
        assert_eq!(table.truncate(40), Err(KvError::Full { needed: 1, free: 0, total: 2 }));
        assert_eq!(table.blocks(), before);
        // The block that is given back serves for the copy.
        let (from, to) = table.truncate(20).unwrap().unwrap();
        assert_eq!((from, to), (before[0], before[1]));
    }

    #[test]
    fn a_fork_shares_whole_blocks_and_copies_the_rest() {
        let pool = KvPool::new(8);
        let mut table = pool.table();
        table.reserve(70).unwrap();
        let (mut choice, copy) = table.fork(70).unwrap();
        let (from, to) = copy.unwrap();
        assert_eq!((from, &choice.blocks()[..2]), (table.blocks()[2], &table.blocks()[..2]));
        assert_eq!(
            table.truncate(66),
            Ok(None),
            "a copy that waits to read a block does not keep it from being written"
        );
        drop(table);
        assert_eq!(pool.stats().used, 4, "the source stays until the step has completed");
        choice.publish(&[]);
        assert_eq!((choice.blocks()[2], pool.stats().used), (to, 3));
        let (whole, copy) = choice.fork(64).unwrap();
        assert_eq!((whole.blocks().len(), copy), (2, None));
        // What is shared is not written by either.
        assert!(choice.truncate(33).unwrap().is_some());
    }
}
