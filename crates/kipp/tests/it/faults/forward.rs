//! A model with one fault in how batches go in and answers come out.

use kipp::ModelSpec;
use kipp::backend::{BackendError, BackendInfo};
use kipp::batch::{Answer, Batch, Outputs};
use kipp::kv::{BlockId, KvScheme};
use kipp::model::Forward;

use super::Fault;

pub(super) struct FaultyForward {
    inner: Box<dyn Forward>,
    fault: Fault,
    /// The answers of the step before.
    before: Vec<(usize, Answer)>,
}

impl FaultyForward {
    pub(super) fn new(inner: Box<dyn Forward>, fault: Fault) -> FaultyForward {
        FaultyForward { inner, fault, before: Vec::new() }
    }
}

impl Forward for FaultyForward {
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
        let mut batch = batch.clone();
        match self.fault {
            Fault::ZeroingForgotten => batch.zero.clear(),
            Fault::CopyForgotten => batch.copy.clear(),
            _ => {}
        }
        self.inner.submit(&batch)
    }

    fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError> {
        self.inner.wait(outputs)?;
        let answers = &mut outputs.answers;
        match self.fault {
            Fault::RowsSwapped if answers.len() > 1 => {
                let (first, rest) = answers.split_at_mut(1);
                std::mem::swap(&mut first[0].1, &mut rest[0].1);
            }
            Fault::StaleOutputs => {
                let now = answers.clone();
                for (answer, before) in answers.iter_mut().zip(&self.before) {
                    answer.1 = before.1.clone();
                }
                self.before = now;
            }
            _ => {}
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
