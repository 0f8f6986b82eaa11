//! A model whose logits are a function of the history as it is read through the block table: it keeps token ids in its
//! blocks, so that a wrong block, slot, copy or position changes what it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kipp::backend::{BackendError, BackendInfo};
use kipp::batch::{Answer, Ask, Batch, Limits, Outputs, Segment};
use kipp::engine::Clock;
use kipp::kv::{BLOCK_TOKENS, BlockId, KvScheme};
use kipp::model::Forward;
use kipp::sampling::{log_prob, top_logprobs};
use kipp::{ModelSpec, TokenId};

use super::naive::{self, VOCAB};

/// What a block holds where nothing was written since it was handed out.
const UNWRITTEN: TokenId = TokenId::MAX;

/// A clock that a test moves, in microseconds.
#[derive(Clone, Default)]
pub(super) struct FakeClock(Arc<AtomicU64>);

impl FakeClock {
    pub(super) fn pass(&self, microseconds: u64) {
        self.0.fetch_add(microseconds, Ordering::Relaxed);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// How long a step takes on the fake clock.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) step_us: u64,
    pub(super) row_us: u64,
}

/// What goes wrong, and in which step.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fault {
    Error,
    ErrorInWait,
    Panic,
    NotFinite,
    /// Of the first row that asks, that is.
    FirstNotFinite,
}

pub(super) struct Fake {
    spec: ModelSpec,
    blocks: Vec<[TokenId; BLOCK_TOKENS]>,
    pub(super) max_rows: usize,
    /// Ids that it may be given; it says none but its own.
    pub(super) vocab_size: usize,
    pub(super) times: Times,
    pub(super) fault: Option<(usize, Fault)>,
    clock: FakeClock,
    steps: usize,
    pending: Option<Vec<(usize, Answer)>>,
    /// The rows of every step, shared with the test.
    pub(super) seen: Arc<std::sync::Mutex<Vec<Batch>>>,
    pub(super) keeps_batches: bool,
}

impl Fake {
    pub(super) fn new(blocks: usize, clock: FakeClock) -> Fake {
        Fake {
            spec: ModelSpec { vocab_size: VOCAB, ..naive::spec() },
            blocks: vec![[UNWRITTEN; BLOCK_TOKENS]; blocks],
            max_rows: 4096,
            vocab_size: VOCAB,
            times: Times::default(),
            fault: None,
            clock,
            steps: 0,
            pending: None,
            seen: Arc::default(),
            keeps_batches: false,
        }
    }

    fn store(&mut self, batch: &Batch) {
        for block in &batch.zero {
            self.blocks[*block as usize] = [UNWRITTEN; BLOCK_TOKENS];
        }
        for (from, to) in &batch.copy {
            self.blocks[*to as usize] = self.blocks[*from as usize];
        }
        let mut written = Vec::new();
        for (token, (block, slot)) in batch.tokens.iter().zip(batch.segments.iter().flat_map(Segment::slots))
        {
            self.blocks[block as usize][slot] = *token;
            written.push((block, slot));
        }
        written.sort_unstable();
        assert!(written.windows(2).all(|two| two[0] != two[1]), "two rows write one slot");
    }

    fn answers(&self, batch: &Batch) -> Vec<(usize, Answer)> {
        let mut answers = Vec::new();
        for segment in &batch.segments {
            let mut state = naive::START;
            for position in 0..segment.start + segment.rows.len() {
                let block = self.blocks[segment.table[position / BLOCK_TOKENS] as usize];
                state = naive::after(state, block[position % BLOCK_TOKENS]);
                let Some(row) = position.checked_sub(segment.start).map(|i| segment.rows.start + i) else {
                    continue;
                };
                if batch.asks[row] != Ask::Nothing {
                    answers.push((row, self.answer(batch.asks[row], state, answers.is_empty())));
                }
            }
        }
        answers
    }

    fn answer(&self, ask: Ask, state: u64, is_first: bool) -> Answer {
        let mut logits = naive::logits(state);
        let fault = self.fault.filter(|(step, _)| *step == self.steps).map(|(_, fault)| fault);
        if fault == Some(Fault::NotFinite) || (fault == Some(Fault::FirstNotFinite) && is_first) {
            logits[3] = f32::NAN;
        }
        match ask {
            Ask::LogProb(id) => Answer::LogProb(log_prob(&logits, id)),
            Ask::TopK(count) => Answer::TopK(top_logprobs(&logits, count)),
            _ => Answer::Logits(logits),
        }
    }
}

fn device_error() -> BackendError {
    BackendError::Memory { what: "a step".to_owned(), bytes: 1 }
}

impl Forward for Fake {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn describe(&self) -> BackendInfo {
        let (kernels, activations) = (String::new(), String::new());
        BackendInfo { name: "fake", kernels, activations, threads: 1, demoted: Vec::new() }
    }

    fn kv_scheme(&self) -> KvScheme {
        KvScheme::F32
    }

    fn kv_blocks(&self) -> usize {
        self.blocks.len()
    }

    fn max_rows(&self) -> usize {
        self.max_rows
    }

    fn submit(&mut self, batch: &Batch) -> Result<(), BackendError> {
        assert!(self.pending.is_none());
        self.steps += 1;
        let limits = Limits { rows: self.max_rows, vocab_size: self.vocab_size, blocks: self.blocks.len() };
        batch.check(limits).unwrap();
        self.clock.pass(self.times.step_us + self.times.row_us * batch.tokens.len() as u64);
        if self.keeps_batches {
            self.seen.lock().unwrap().push(batch.clone());
        }
        let fault = self.fault.filter(|(step, _)| *step == self.steps).map(|(_, fault)| fault);
        match fault {
            Some(Fault::Error) => return Err(device_error()),
            Some(Fault::Panic) => panic!("a kernel is broken"),
            _ => {}
        }
        self.store(batch);
        self.pending = Some(self.answers(batch));
        Ok(())
    }

    fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError> {
        outputs.answers = self.pending.take().unwrap();
        if self.fault == Some((self.steps, Fault::ErrorInWait)) {
            return Err(device_error());
        }
        Ok(())
    }

    fn read_block(&self, block: BlockId) -> Vec<f32> {
        self.blocks[block as usize].iter().map(|token| *token as f32).collect()
    }

    fn write_block(&mut self, block: BlockId, values: &[f32]) {
        for (slot, value) in self.blocks[block as usize].iter_mut().zip(values) {
            *slot = *value as TokenId;
        }
    }
}
