//! The pool against a naive model that keeps whole prefixes, lists and the contents of every block: random operations on
//! small pools, compared after each.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{BLOCK_TOKENS, BlockId, BlockTable, KvError, KvPool, KvStats};
use crate::token::TokenId;

/// What a slot of a block holds: the salt and all tokens up to it. `None`: zero, or never written.
type Slot = Option<(u8, Vec<TokenId>)>;

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// A new sequence: its salt, the variant of its text, the length of its prompt.
    Adopt(u8, u8, usize),
    /// Evaluates that many tokens, in a step of their own.
    Append(usize, usize),
    Publish(usize),
    /// To that many hundredths of its length.
    Truncate(usize, usize),
    Fork(usize, usize),
    Drop(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let who = 0usize..8;
    prop_oneof![
        3 => (0u8..2, any::<u8>(), 0usize..150).prop_map(|(salt, text, len)| Operation::Adopt(salt, text % 4, len)),
        6 => (who.clone(), 1usize..80).prop_map(|(who, len)| Operation::Append(who, len)),
        6 => who.clone().prop_map(Operation::Publish),
        2 => (who.clone(), 0usize..110).prop_map(|(who, percent)| Operation::Truncate(who, percent)),
        2 => (who.clone(), 0usize..110).prop_map(|(who, percent)| Operation::Fork(who, percent)),
        2 => who.prop_map(Operation::Drop),
    ]
}

/// Texts share prefixes of whole blocks and differ from some block on.
fn token(text: u8, position: usize) -> TokenId {
    TokenId::from(text >> (position / BLOCK_TOKENS).min(2) & 1) * 100 + (position % 7) as TokenId
}

struct Sequence {
    table: BlockTable,
    salt: u8,
    text: u8,
    tokens: Vec<TokenId>,
    /// A copy whose step has not run.
    copy: Option<(BlockId, BlockId)>,
    /// Blocks that copies read, until the next publication.
    sources: Vec<(usize, BlockId)>,
}

struct Naive {
    pool: KvPool,
    sequences: Vec<Sequence>,
    /// `[blocks][BLOCK_TOKENS]`
    store: Vec<Vec<Slot>>,
    zero: Vec<BlockId>,
    /// Findable blocks with all tokens up to their end.
    findable: BTreeMap<BlockId, (u8, Vec<TokenId>)>,
    /// Findable and held by nobody, the oldest first.
    cached: Vec<BlockId>,
    stats: KvStats,
}

impl Naive {
    fn new(blocks: usize) -> Naive {
        Naive {
            pool: KvPool::new(blocks),
            sequences: Vec::new(),
            store: vec![vec![None; BLOCK_TOKENS]; blocks],
            zero: Vec::new(),
            findable: BTreeMap::new(),
            cached: Vec::new(),
            stats: KvStats { total: blocks, ..KvStats::default() },
        }
    }

    fn tables_of(&self, block: BlockId) -> usize {
        self.sequences.iter().filter(|s| s.table.blocks().contains(&block)).count()
    }

    fn is_held(&self, block: BlockId) -> bool {
        let read = |s: &Sequence| s.sources.iter().any(|(_, source)| *source == block);
        self.tables_of(block) > 0 || self.sequences.iter().any(read)
    }

    fn used(&self) -> usize {
        (0..self.stats.total).filter(|block| self.is_held(*block as BlockId)).count()
    }

    fn available(&self) -> usize {
        self.stats.total - self.used()
    }

    /// Findable blocks in `blocks`, in this order, are cached when nobody holds them any more, or only since (`taken`).
    fn given_back(&mut self, blocks: &[BlockId], taken: Option<BlockId>) {
        for block in blocks {
            if (Some(*block) == taken || !self.is_held(*block))
                && self.findable.contains_key(block)
                && !self.cached.contains(block)
            {
                self.cached.push(*block);
            }
        }
    }

    /// `count` blocks were handed out, while so many were free.
    fn handed_out(&mut self, count: usize, free: usize) {
        for _ in free..count.max(free) {
            self.findable.remove(&self.cached.remove(0));
            self.stats.evictions += 1;
        }
    }

    fn free(&self) -> usize {
        self.available() - self.cached.len()
    }

    /// Blocks of the longest prefix whose every block is findable.
    fn known(&self, salt: u8, tokens: &[TokenId]) -> usize {
        let most = tokens.len().saturating_sub(1) / BLOCK_TOKENS;
        let is_known = |blocks: usize| {
            let prefix = &tokens[..blocks * BLOCK_TOKENS];
            self.findable.values().any(|(s, known)| *s == salt && known == prefix)
        };
        (1..=most).take_while(|blocks| is_known(*blocks)).count()
    }

    fn run(&mut self, operation: Operation) {
        let count = self.sequences.len();
        match operation {
            Operation::Adopt(salt, text, len) if count < 8 => self.adopt(salt, text, len),
            Operation::Append(who, len) if who < count => self.append(who, len),
            Operation::Publish(who) if who < count => self.publish(who),
            Operation::Truncate(who, percent) if who < count => self.truncate(who, percent),
            Operation::Fork(who, percent) if who < count && count < 8 => self.fork(who, percent),
            Operation::Drop(who) if who < count => self.drop(who),
            _ => {}
        }
        self.check();
    }

    fn adopt(&mut self, salt: u8, text: u8, len: usize) {
        let prompt: Vec<TokenId> = (0..len).map(|position| token(text, position)).collect();
        let known = self.known(salt, &prompt);
        assert_eq!(self.pool.lookup(&[salt], &prompt), known * BLOCK_TOKENS);
        let table = self.pool.adopt(&[salt], &prompt);
        assert_eq!(table.adopted_tokens(), known * BLOCK_TOKENS);
        assert_eq!(table.blocks().len(), known);
        self.stats.queries += 1;
        self.stats.hits += u64::from(known > 0);
        self.stats.tokens_reused += (known * BLOCK_TOKENS) as u64;
        self.cached.retain(|block| !table.blocks().contains(block));
        let tokens = prompt[..known * BLOCK_TOKENS].to_vec();
        self.sequences.push(Sequence { table, salt, text, tokens, copy: None, sources: Vec::new() });
    }

    /// One step: zeroes and copies what waits, then writes.
    fn append(&mut self, who: usize, len: usize) {
        let (available, free) = (self.available(), self.free());
        let s = &mut self.sequences[who];
        let (start, end) = (s.tokens.len(), s.tokens.len() + len);
        let needed = end.div_ceil(BLOCK_TOKENS).saturating_sub(s.table.blocks().len());
        let before = s.table.blocks().to_vec();
        let new = s.table.reserve(end).map(<[BlockId]>::to_vec);
        if needed > available {
            assert_eq!(new, Err(KvError::Full { needed, free: available, total: self.stats.total }));
            assert_eq!(s.table.blocks(), before);
            return;
        }
        let new = new.unwrap();
        assert_eq!((new.len(), s.table.blocks()), (needed, &[before, new.clone()].concat()[..]));
        self.zero.extend(&new);
        self.handed_out(needed, free);

        for block in self.zero.drain(..) {
            self.store[block as usize].fill(None);
        }
        for (from, to) in self.sequences.iter_mut().filter_map(|s| s.copy.take()) {
            self.store[to as usize] = self.store[from as usize].clone();
        }
        let s = &mut self.sequences[who];
        s.tokens.extend((start..end).map(|position| token(s.text, position)));
        let s = &self.sequences[who];
        for position in start..end {
            let block = s.table.blocks()[position / BLOCK_TOKENS];
            assert_eq!(self.tables_of(block), 1, "a shared block is written");
            assert!(!self.findable.contains_key(&block), "a findable block is written");
            self.store[block as usize][position % BLOCK_TOKENS] =
                Some((s.salt, s.tokens[..=position].to_vec()));
        }
    }

    fn publish(&mut self, who: usize) {
        // Only what a step has written.
        if self.sequences[who].copy.is_some() {
            return;
        }
        let s = &mut self.sequences[who];
        let before = s.table.blocks().to_vec();
        let sources = std::mem::take(&mut s.sources);
        s.table.publish(&s.tokens);
        let sources: Vec<BlockId> = sources.iter().rev().map(|(_, source)| *source).collect();
        self.given_back(&sources, None);
        let s = &self.sequences[who];
        let (now, salt, tokens) = (s.table.blocks().to_vec(), s.salt, s.tokens.clone());
        assert_eq!(now.len(), before.len());
        let mut behind_a_shared_one = false;
        for index in 0..tokens.len() / BLOCK_TOKENS {
            let prefix = (salt, tokens[..(index + 1) * BLOCK_TOKENS].to_vec());
            let equal = self.findable.iter().find(|(_, known)| **known == prefix).map(|(block, _)| *block);
            // Who shared it, before this table may have left it.
            let others = self.tables_of(before[index]) - usize::from(now[index] == before[index]);
            behind_a_shared_one |= equal.is_some_and(|equal| equal != before[index]) && others > 0;
            if behind_a_shared_one {
                assert_eq!(now[index], before[index]);
                continue;
            }
            assert_eq!(now[index], equal.unwrap_or(before[index]));
            self.cached.retain(|block| *block != now[index]);
            self.findable.insert(now[index], prefix);
        }
    }

    fn truncate(&mut self, who: usize, percent: usize) {
        let available = self.available();
        let s = &self.sequences[who];
        let len = s.tokens.len() * percent.min(100) / 100;
        let before = s.table.blocks().to_vec();
        let keep = len.div_ceil(BLOCK_TOKENS).min(before.len());
        let cut = (!len.is_multiple_of(BLOCK_TOKENS)).then(|| before[keep - 1]);
        let sealed = cut.filter(|block| self.findable.contains_key(block) || self.tables_of(*block) > 1);
        let mut gone: Vec<BlockId> =
            s.sources.iter().rev().filter(|(index, _)| *index >= keep).map(|(_, source)| *source).collect();
        gone.extend(before[keep..].iter().rev());

        let s = &mut self.sequences[who];
        let result = s.table.truncate(len);
        if let Err(error) = result {
            assert_eq!(error, KvError::Full { needed: 1, free: 0, total: self.stats.total });
            assert!(sealed.is_some() && available == 0);
            assert_eq!(s.table.blocks(), before);
            return;
        }
        let copy = result.unwrap();
        assert_eq!(copy.map(|(from, _)| from), sealed);
        s.tokens.truncate(len);
        s.sources.retain(|(index, _)| *index < keep);
        if s.copy.is_some_and(|(_, to)| !s.table.blocks().contains(&to)) {
            s.copy = None;
        }
        assert_eq!(s.table.blocks().len(), keep);
        if let Some((from, to)) = copy {
            s.sources.push((keep - 1, from));
            // A copy of what is still to be copied is a step too early for a caller.
            s.copy = Some((from, to));
            assert_eq!(s.table.blocks()[keep - 1], to);
        }
        // The block taken for the copy may be one that was given back a moment before.
        let taken = copy.map(|(_, to)| to);
        self.given_back(&gone, taken);
        if taken.is_some() {
            let free = self.stats.total - (self.used() - 1) - self.cached.len();
            self.handed_out(1, free);
        }
    }

    fn fork(&mut self, who: usize, percent: usize) {
        // What waits to be copied is not there yet to be shared.
        if self.sequences[who].copy.is_some() {
            return;
        }
        let (available, free) = (self.available(), self.free());
        let s = &self.sequences[who];
        let len = s.tokens.len() * percent.min(100) / 100;
        let cut = !len.is_multiple_of(BLOCK_TOKENS);
        match s.table.fork(len) {
            Err(error) => {
                assert_eq!(error, KvError::Full { needed: 1, free: 0, total: self.stats.total });
                assert!(cut && available == 0);
            }
            Ok((table, copy)) => {
                assert_eq!(copy.is_some(), cut);
                let whole = len / BLOCK_TOKENS;
                assert_eq!(table.blocks()[..whole], s.table.blocks()[..whole]);
                assert_eq!(table.adopted_tokens(), s.table.adopted_tokens());
                let mut sources = Vec::new();
                if let Some((from, to)) = copy {
                    assert_eq!((from, to), (s.table.blocks()[whole], table.blocks()[whole]));
                    sources.push((whole, from));
                }
                let (salt, text, tokens) = (s.salt, s.text, s.tokens[..len].to_vec());
                // Another choice goes on with another text.
                let text = text ^ 4;
                self.sequences.push(Sequence { table, salt, text, tokens, copy, sources });
                self.handed_out(usize::from(cut), free);
            }
        }
    }

    fn drop(&mut self, who: usize) {
        let s = self.sequences.remove(who);
        let mut gone: Vec<BlockId> = s.sources.iter().rev().map(|(_, source)| *source).collect();
        gone.extend(s.table.blocks().iter().rev());
        drop(s);
        self.given_back(&gone, None);
    }

    fn check(&mut self) {
        self.stats.used = self.used();
        self.stats.cached = self.cached.len();
        self.stats.free = self.free();
        assert_eq!(self.pool.stats(), self.stats);
        for s in self.sequences.iter().filter(|s| s.copy.is_none()) {
            for position in 0..s.tokens.len() {
                let block = s.table.blocks()[position / BLOCK_TOKENS] as usize;
                let expected = Some((s.salt, s.tokens[..=position].to_vec()));
                assert_eq!(self.store[block][position % BLOCK_TOKENS], expected, "position {position}");
            }
        }
        // Exactly what should be findable is: so the right block was evicted each time.
        for (salt, prefix) in self.findable.values() {
            let more = [&prefix[..], &[0]].concat();
            assert_eq!(self.pool.lookup(&[*salt], &more), prefix.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_does_what_a_naive_one_does(
        blocks in 3usize..14,
        operations in prop::collection::vec(operation(), 1..90),
    ) {
        let mut naive = Naive::new(blocks);
        for operation in operations {
            naive.run(operation);
        }
        while !naive.sequences.is_empty() {
            naive.run(Operation::Drop(0));
        }
        prop_assert_eq!(naive.pool.stats().used, 0);
    }
}
