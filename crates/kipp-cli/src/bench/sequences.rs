//! Sequences of random ids on a model, in batches like everybody's. Every row that would be sampled asks for an argmax,
//! so that the forward pass is measured and not the copying of logits.

use anyhow::Result;
use kipp::TokenId;
use kipp::batch::{Ask, Batch, Outputs};
use kipp::gates::gate_tokens;
use kipp::kv::{BlockTable, KvPool};
use kipp::model::Forward;

/// Sequences of one length that grow together.
pub(crate) struct Sequences<'m> {
    model: &'m mut dyn Forward,
    tables: Vec<BlockTable>,
    /// The same ids in every run, a stretch of its own for each sequence. `[sequences][positions]`
    tokens: Vec<Vec<TokenId>>,
    len_tokens: usize,
    outputs: Outputs,
}

impl<'m> Sequences<'m> {
    /// `count` empty sequences that may have `positions` each.
    pub(crate) fn new(model: &'m mut dyn Forward, count: usize, positions: usize) -> Sequences<'m> {
        let pool = KvPool::new(model.kv_blocks());
        let ids = gate_tokens(model.spec().vocab_size, count * positions);
        Sequences {
            model,
            tables: (0..count).map(|_| pool.table()).collect(),
            tokens: ids.chunks(positions.max(1)).map(<[TokenId]>::to_vec).collect(),
            len_tokens: 0,
            outputs: Outputs::default(),
        }
    }

    /// Appends `count` tokens to each sequence, one after the other, in steps of as many rows as the model takes; the
    /// last token of each is asked for `last`.
    pub(crate) fn prefill(&mut self, count: usize, last: Ask) -> Result<()> {
        let end = self.len_tokens + count;
        let step_tokens = self.model.max_rows().max(1);
        for sequence in 0..self.tables.len() {
            for start in (self.len_tokens..end).step_by(step_tokens) {
                let stop = end.min(start + step_tokens);
                let mut batch = Batch::default();
                self.push(&mut batch, sequence, start..stop, if stop == end { last } else { Ask::Nothing })?;
                self.evaluate(&batch)?;
            }
        }
        self.len_tokens = end;
        Ok(())
    }

    /// One token for each sequence, in one batch.
    pub(crate) fn decode(&mut self) -> Result<()> {
        let mut batch = Batch::default();
        for sequence in 0..self.tables.len() {
            self.push(&mut batch, sequence, self.len_tokens..self.len_tokens + 1, Ask::Argmax)?;
        }
        self.evaluate(&batch)?;
        self.len_tokens += 1;
        Ok(())
    }

    /// Forgets all but the first `len_tokens` positions of each.
    pub(crate) fn truncate(&mut self, len_tokens: usize) {
        self.len_tokens = self.len_tokens.min(len_tokens);
        for table in &mut self.tables {
            // All blocks are the sequences' own: nothing is to be copied, and nothing can fail.
            let _ = table.truncate(self.len_tokens);
        }
    }

    fn push(
        &mut self,
        batch: &mut Batch,
        sequence: usize,
        rows: std::ops::Range<usize>,
        last: Ask,
    ) -> Result<()> {
        let table = &mut self.tables[sequence];
        batch.zero.extend_from_slice(table.reserve(rows.end)?);
        batch.push(&self.tokens[sequence][rows.clone()], rows.start, table.blocks(), last);
        Ok(())
    }

    fn evaluate(&mut self, batch: &Batch) -> Result<()> {
        self.model.submit(batch)?;
        self.model.wait(&mut self.outputs)?;
        Ok(())
    }
}
