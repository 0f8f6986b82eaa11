//! What the gates of one sequence do not reach: prefixes that are adopted, prompts that are shared, sequences that come
//! and go. Each compares the bits of a sequence's logits with those of the same tokens evaluated alone.

use std::cell::RefCell;
use std::collections::HashMap;

use kipp::TokenId;
use kipp::batch::{Answer, Ask, Batch, Outputs};
use kipp::gates::{Loader, Variant, gate_tokens};
use kipp::kv::{BLOCK_TOKENS, BlockId, BlockTable, KvPool, KvScheme};
use kipp::model::Forward;

use super::Fault;

/// Blocks of the store.
const BLOCKS: usize = 24;

/// Over several blocks, with a tail.
const PROMPT: usize = 77;

type Check = fn(&mut Driver<'_>) -> bool;

const CHECKS: [(&str, Check); 7] = [
    ("adopted prefix, as computed", adopted),
    ("a prompt sent again, as the first time", sent_again),
    ("admitted while its prefix is computed, as alone", admitted_meanwhile),
    ("choices that share a prompt, as alone", choices),
    ("drafts rolled back, as never tried", rolled_back),
    ("beside sequences that come and go, as alone", come_and_go),
    // The last one, for it leaves the store poisoned.
    ("blocks that held no numbers, as fresh", poisoned),
];

/// Names and verdicts.
pub(super) fn all(load: &Loader<'_>, fault: Fault) -> Vec<(String, bool)> {
    let load = || {
        let (kv, max_rows) = (KvScheme::Bf16, 512);
        load(Variant { activations: None, kv, threads: None, max_rows, kv_blocks: BLOCKS }).unwrap()
    };
    let mut model = load();
    let tokens = gate_tokens(model.spec().vocab_size, 2 * PROMPT);
    let (prompt, other) = tokens.split_at(PROMPT);
    let known = RefCell::new(HashMap::new());
    let alone = |tokens: &[TokenId]| {
        let evaluate = || Driver::new(load().as_mut(), fault, prompt, other, &|_| Vec::new()).last(tokens);
        known.borrow_mut().entry(tokens.to_vec()).or_insert_with(evaluate).clone()
    };
    let mut verdict = |(name, check): (&str, Check)| {
        let passed = check(&mut Driver::new(model.as_mut(), fault, prompt, other, &alone));
        (format!("pool: {name}"), passed)
    };
    CHECKS.into_iter().map(&mut verdict).collect()
}

/// One model, its pool, and the step being built: as an engine would use them.
struct Driver<'a> {
    model: &'a mut dyn Forward,
    pool: KvPool,
    fault: Fault,
    prompt: &'a [TokenId],
    /// As long, and nowhere the same.
    other: &'a [TokenId],
    /// The logits after these tokens on a model that evaluates nothing else.
    alone: &'a dyn Fn(&[TokenId]) -> Vec<f32>,
    batch: Batch,
}

impl<'a> Driver<'a> {
    fn new(
        model: &'a mut dyn Forward,
        fault: Fault,
        prompt: &'a [TokenId],
        other: &'a [TokenId],
        alone: &'a dyn Fn(&[TokenId]) -> Vec<f32>,
    ) -> Driver<'a> {
        let pool = KvPool::new(model.kv_blocks());
        Driver { model, pool, fault, prompt, other, alone, batch: Batch::default() }
    }

    /// Begins a sequence; returns its table and the position to go on at.
    fn adopt(&self, tokens: &[TokenId]) -> (BlockTable, usize) {
        let table = self.pool.adopt(b"", tokens);
        let start = table.adopted_tokens();
        (table, start)
    }

    /// Adds `tokens[start..end]` of a sequence to the step; its last row is asked for logits.
    fn add(&mut self, table: &mut BlockTable, tokens: &[TokenId], start: usize, end: usize) {
        self.batch.zero.extend(table.reserve(end).unwrap());
        let mut rows = tokens[start..end].to_vec();
        if self.fault == Fault::TokenTwice && start > 0 && start == table.adopted_tokens() {
            rows = tokens[start - 1..end - 1].to_vec();
        }
        self.batch.push(&rows, start, table.blocks(), Ask::Logits);
        if self.fault == Fault::PublishedEarly {
            table.publish(tokens);
        }
    }

    fn copy(&mut self, copy: Option<(BlockId, BlockId)>) {
        self.batch.copy.extend(copy);
    }

    /// Runs the step: logits of the last row of each sequence in it.
    fn step(&mut self) -> Vec<Vec<f32>> {
        let batch = std::mem::take(&mut self.batch);
        let mut outputs = Outputs::default();
        self.model.submit(&batch).unwrap();
        self.model.wait(&mut outputs).unwrap();
        let logits = outputs.answers.into_iter().map(|(_, answer)| match answer {
            Answer::Logits(logits) => logits,
            other => panic!("{other:?}"),
        });
        logits.collect()
    }

    /// A sequence from its adopted prefix to its end, in one step; published when it is done, and dropped.
    fn last(&mut self, tokens: &[TokenId]) -> Vec<f32> {
        let (mut table, start) = self.adopt(tokens);
        self.add(&mut table, tokens, start, tokens.len());
        let logits = self.step().remove(0);
        table.publish(tokens);
        logits
    }

    fn as_alone(&self, tokens: &[TokenId], logits: &[f32]) -> bool {
        let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        bits(&(self.alone)(tokens)) == bits(logits)
    }
}

/// Another sequence after the same two blocks.
fn adopted(driver: &mut Driver<'_>) -> bool {
    driver.last(driver.prompt);
    let tokens = [&driver.prompt[..2 * BLOCK_TOKENS], &driver.other[..9]].concat();
    assert_eq!(driver.pool.lookup(b"", &tokens), 2 * BLOCK_TOKENS);
    let logits = driver.last(&tokens);
    driver.as_alone(&tokens, &logits)
}

/// Prompts of one token, of whole blocks and beside them, three times each.
fn sent_again(driver: &mut Driver<'_>) -> bool {
    [1, BLOCK_TOKENS - 1, BLOCK_TOKENS, BLOCK_TOKENS + 1, 2 * BLOCK_TOKENS, 2 * BLOCK_TOKENS + 1].iter().all(
        |len| {
            let tokens = &driver.prompt[..*len];
            let same: Vec<bool> = (0..3)
                .map(|_| {
                    let logits = driver.last(tokens);
                    driver.as_alone(tokens, &logits)
                })
                .collect();
            same.iter().all(|same| *same)
        },
    )
}

/// The second comes when the first has had one chunk of its prompt, and stands before it in the step.
fn admitted_meanwhile(driver: &mut Driver<'_>) -> bool {
    let tokens = driver.prompt;
    let (mut first, _) = driver.adopt(tokens);
    first.reserve(tokens.len()).unwrap();
    driver.batch.zero.extend(first.blocks());
    driver.add(&mut first, tokens, 0, 20);
    driver.step();
    let (mut second, start) = driver.adopt(tokens);
    driver.add(&mut second, tokens, start, tokens.len());
    let second = driver.step().remove(0);
    driver.add(&mut first, tokens, 20, tokens.len());
    let first = driver.step().remove(0);
    driver.as_alone(tokens, &first) && driver.as_alone(tokens, &second)
}

/// Two choices go on differently after one prompt that ends inside a block; the first leaves before the copy is made.
fn choices(driver: &mut Driver<'_>) -> bool {
    let (prompt, other) = (driver.prompt, driver.other);
    let (mut first, _) = driver.adopt(prompt);
    driver.add(&mut first, prompt, 0, PROMPT);
    driver.step();
    let (mut second, copy) = first.fork(PROMPT).unwrap();
    driver.copy(copy);
    let (mut third, copy) = first.fork(PROMPT).unwrap();
    driver.copy(copy);
    drop(first);
    let goes_on = |with: &[TokenId]| [prompt, with].concat();
    let (two, three) = (goes_on(&other[..3]), goes_on(&other[10..13]));
    driver.add(&mut second, &two, PROMPT, PROMPT + 3);
    driver.add(&mut third, &three, PROMPT, PROMPT + 3);
    let logits = driver.step();
    driver.as_alone(&two, &logits[0]) && driver.as_alone(&three, &logits[1])
}

/// Drafts over the border of a block that are not accepted, and then the tokens that are.
fn rolled_back(driver: &mut Driver<'_>) -> bool {
    let (prompt, other) = (driver.prompt, driver.other);
    let (mut table, _) = driver.adopt(prompt);
    driver.add(&mut table, prompt, 0, 60);
    driver.step();
    let drafts = [&prompt[..60], &other[..8]].concat();
    driver.add(&mut table, &drafts, 60, 68);
    driver.step();
    let copy = table.truncate(62).unwrap();
    driver.copy(copy);
    let accepted = [&drafts[..62], &prompt[62..70]].concat();
    driver.add(&mut table, &accepted, 62, 66);
    driver.step();
    driver.add(&mut table, &accepted, 66, 70);
    let logits = driver.step().remove(0);
    driver.as_alone(&accepted, &logits)
}

/// The first row of the steps belongs to one sequence, then to another.
fn come_and_go(driver: &mut Driver<'_>) -> bool {
    let (prompt, other) = (driver.prompt, driver.other);
    let (mut first, _) = driver.adopt(other);
    let (mut second, _) = driver.adopt(prompt);
    driver.add(&mut first, other, 0, 40);
    driver.add(&mut second, prompt, 0, 50);
    driver.step();
    drop(first);
    driver.add(&mut second, prompt, 50, 51);
    let logits = driver.step().remove(0);
    driver.as_alone(&prompt[..51], &logits)
}

/// What a block held before, even if it is no number, is gone when it is handed out.
fn poisoned(driver: &mut Driver<'_>) -> bool {
    for block in 0..BLOCKS as BlockId {
        let mut values = driver.model.read_block(block);
        values.fill(f32::NAN);
        driver.model.write_block(block, &values);
    }
    let tokens = driver.prompt;
    let logits = driver.last(tokens);
    driver.as_alone(tokens, &logits)
}
