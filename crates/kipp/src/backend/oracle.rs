//! The oracle as something that evaluates batches: it keeps token ids in its blocks and recomputes the whole history of
//! every segment. Right and slow, so that any command can be run on the specification itself.

use super::{BackendError, BackendInfo};
use crate::answer::answer;
use crate::artifact::Artifact;
use crate::batch::{Answer, Ask, Batch, Limits, Outputs, Segment};
use crate::kv::{BLOCK_TOKENS, BlockId, KvScheme};
use crate::model::{Forward, Interrupt, ModelOptions};
use crate::oracle;
use crate::sampling::logprobs::in_turn;
use crate::spec::ModelSpec;
use crate::token::TokenId;

/// A [`Forward`] whose answers come from [`crate::oracle`].
pub struct OracleForward {
    artifact: Artifact,
    spec: ModelSpec,
    options: ModelOptions,
    /// What each position of each block holds.
    blocks: Vec<[TokenId; BLOCK_TOKENS]>,
    pending: Option<Vec<(usize, Answer)>>,
    interrupt: Interrupt,
}

impl OracleForward {
    /// The oracle over an artifact's weights. `spec` is the artifact's, with what flags changed of it.
    pub fn new(artifact: &Artifact, spec: ModelSpec, options: ModelOptions) -> OracleForward {
        let blocks = vec![[0; BLOCK_TOKENS]; options.kv_blocks];
        OracleForward {
            artifact: artifact.clone(),
            spec,
            options,
            blocks,
            pending: None,
            interrupt: Interrupt::default(),
        }
    }

    fn store(&mut self, batch: &Batch) {
        for block in &batch.zero {
            self.blocks[*block as usize] = [0; BLOCK_TOKENS];
        }
        for (from, to) in &batch.copy {
            self.blocks[*to as usize] = self.blocks[*from as usize];
        }
        let slots = batch.segments.iter().flat_map(Segment::slots);
        for (token, (block, slot)) in batch.tokens.iter().zip(slots) {
            self.blocks[block as usize][slot] = *token;
        }
    }

    fn answer_segment(
        &self,
        batch: &Batch,
        segment: &Segment,
        answers: &mut Vec<(usize, Answer)>,
    ) -> Result<(), BackendError> {
        let asks = &batch.asks[segment.rows.clone()];
        if asks.iter().all(|ask| *ask == Ask::Nothing) {
            return Ok(());
        }
        let end = segment.start + segment.rows.len();
        let history: Vec<TokenId> = (0..end)
            .map(|p| self.blocks[segment.table[p / BLOCK_TOKENS] as usize][p % BLOCK_TOKENS])
            .collect();
        let weights = self.artifact.weights();
        let mut layers = oracle::Layers::new(&weights, &self.spec, &history, self.options.kv);
        while layers.run_next() {
            self.interrupt.check()?;
        }
        let states = layers.into_states();
        let asking = asks.iter().enumerate().filter(|(_, ask)| **ask != Ask::Nothing);
        let (rows, hidden): (Vec<usize>, Vec<Vec<f32>>) =
            asking.map(|(i, _)| (i, states.final_norm[segment.start + i].clone())).unzip();
        let logits = oracle::head(&weights, &hidden);
        for ((row, hidden), logits) in rows.into_iter().zip(hidden).zip(&logits) {
            let answer = match asks[row] {
                Ask::Hidden => Answer::Hidden(hidden),
                ask => answer(ask, logits, &mut in_turn),
            };
            answers.push((segment.rows.start + row, answer));
        }
        Ok(())
    }
}

impl Forward for OracleForward {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn describe(&self) -> BackendInfo {
        BackendInfo {
            name: "oracle",
            kernels: "plain loops".to_owned(),
            activations: "f32".to_owned(),
            threads: 1,
            demoted: Vec::new(),
        }
    }

    fn kv_scheme(&self) -> KvScheme {
        self.options.kv
    }

    fn kv_blocks(&self) -> usize {
        self.options.kv_blocks
    }

    fn max_rows(&self) -> usize {
        self.options.max_rows
    }

    fn submit(&mut self, batch: &Batch) -> Result<(), BackendError> {
        if self.pending.is_some() {
            return Err(BackendError::StillPending);
        }
        batch.check(Limits {
            rows: self.options.max_rows,
            vocab_size: self.spec.vocab_size,
            blocks: self.options.kv_blocks,
        })?;
        self.store(batch);
        let mut answers = Vec::new();
        for segment in &batch.segments {
            self.answer_segment(batch, segment, &mut answers)?;
        }
        self.pending = Some(answers);
        Ok(())
    }

    fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError> {
        outputs.answers = self.pending.take().ok_or(BackendError::NothingPending)?;
        Ok(())
    }

    fn set_interrupt(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    /// The token ids of the block, one value a position: the oracle stores nothing else.
    fn read_block(&self, block: BlockId) -> Vec<f32> {
        self.blocks[block as usize].iter().map(|token| *token as f32).collect()
    }

    fn write_block(&mut self, block: BlockId, values: &[f32]) {
        for (slot, value) in self.blocks[block as usize].iter_mut().zip(values) {
            *slot = *value as TokenId;
        }
    }
}
