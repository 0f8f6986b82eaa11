//! The fake model with the head of a real one: rows for every token of kipp-tiny's tokenizer and for the padding after them.

use kipp::ModelSpec;
use kipp::TokenId;
use kipp::backend::{BackendError, BackendInfo};
use kipp::batch::{Answer, Batch, Outputs};
use kipp::kv::{BlockId, KvScheme};
use kipp::model::Forward;

use super::fake::Fake;

/// Rows of the head: kipp-tiny's, whose tokenizer has 4,026 tokens.
pub(super) const ROWS: usize = 4096;

pub(super) struct Wide {
    inner: Fake,
    spec: ModelSpec,
    /// Logits that are raised over those of the fake model's own tokens.
    raised: Vec<(TokenId, f32)>,
}

impl Wide {
    pub(super) fn new(mut inner: Fake, raised: Vec<(TokenId, f32)>) -> Wide {
        inner.vocab_size = ROWS;
        let spec = ModelSpec { vocab_size: ROWS, ..inner.spec().clone() };
        Wide { inner, spec, raised }
    }
}

impl Forward for Wide {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }
    fn describe(&self) -> BackendInfo {
        self.inner.describe()
    }
    fn kv_scheme(&self) -> KvScheme {
        self.inner.kv_scheme()
    }
    fn kv_blocks(&self) -> usize {
        self.inner.kv_blocks()
    }
    fn max_rows(&self) -> usize {
        self.inner.max_rows()
    }
    fn submit(&mut self, batch: &Batch) -> Result<(), BackendError> {
        self.inner.submit(batch)
    }
    fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError> {
        self.inner.wait(outputs)?;
        for (_, answer) in &mut outputs.answers {
            if let Answer::Logits(logits) = answer {
                logits.resize(ROWS, -1e9);
                self.raised.iter().for_each(|(id, logit)| logits[*id as usize] = *logit);
            }
        }
        Ok(())
    }
    fn read_block(&self, block: BlockId) -> Vec<f32> {
        self.inner.read_block(block)
    }
    fn write_block(&mut self, block: BlockId, values: &[f32]) {
        self.inner.write_block(block, values);
    }
}
