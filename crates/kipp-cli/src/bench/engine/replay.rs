//! A model that says what a text says: every row is evaluated as ever, and then the logit of the text's next token is made
//! the largest. So a drafted token is accepted where it is the text's, and time is that of the model's shape.

use std::sync::{Arc, Mutex, PoisonError};

use kipp::backend::{BackendError, BackendInfo};
use kipp::batch::{Answer, Batch, Outputs};
use kipp::kv::{BlockId, KvScheme};
use kipp::model::Forward;
use kipp::{ModelSpec, TokenId};

/// The text that is said, from position 0 on; without one, the model speaks for itself.
#[derive(Clone, Default)]
pub(super) struct Script(Arc<Mutex<Option<Arc<[TokenId]>>>>);

impl Script {
    /// What the next sequence says.
    pub(super) fn set(&self, text: Option<Arc<[TokenId]>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn get(&self) -> Option<Arc<[TokenId]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A model with one sequence at a time, and what that says.
pub(super) struct Replay {
    inner: Box<dyn Forward>,
    script: Script,
    /// The position of each row of the step that runs.
    positions: Vec<usize>,
}

impl Replay {
    pub(super) fn new(inner: Box<dyn Forward>, script: Script) -> Replay {
        Replay { inner, script, positions: Vec::new() }
    }
}

impl Forward for Replay {
    fn spec(&self) -> &ModelSpec {
        self.inner.spec()
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
        self.positions = batch.positions().collect();
        self.inner.submit(batch)
    }

    fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError> {
        self.inner.wait(outputs)?;
        let Some(text) = self.script.get() else { return Ok(()) };
        let next = |row: usize| text.get(self.positions.get(row)? + 1);
        for (row, answer) in &mut outputs.answers {
            if let (Answer::Logits(logits), Some(next)) = (answer, next(*row))
                && let Some(logit) = logits.get_mut(*next as usize)
            {
                *logit = f32::MAX;
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
