//! A model on a device: prepared weights, KV store and workspace, behind one object-safe trait.

mod forward;
mod interrupt;
mod prepare;
mod rope;

pub use interrupt::Interrupt;
pub use prepare::{LoadError, PreparedWeights};
pub use rope::Rope;

use prepare::Layer;

use crate::artifact::Artifact;
use crate::backend::{Backend, BackendError, BackendInfo};
use crate::batch::{Batch, Limits, Outputs};
use crate::kv::{BLOCK_TOKENS, BlockId, KvScheme};
use crate::spec::ModelSpec;
use forward::Workspace;

/// Something that evaluates batches: a [`Model`] on a device, or the oracle.
pub trait Forward: Send {
    /// The model's dimensions.
    fn spec(&self) -> &ModelSpec;
    /// What was chosen.
    fn describe(&self) -> BackendInfo;
    /// How keys and values are stored.
    fn kv_scheme(&self) -> KvScheme;
    /// Blocks of the KV store.
    fn kv_blocks(&self) -> usize;
    /// Rows that one batch may have.
    fn max_rows(&self) -> usize;
    /// Starts a step. On a CPU it may be complete on return.
    fn submit(&mut self, batch: &Batch) -> Result<(), BackendError>;
    /// Waits for the submitted step and takes its answers.
    fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError>;
    /// From now on steps end early where `interrupt` is raised. A model whose steps are short may leave it alone.
    fn set_interrupt(&mut self, _interrupt: Interrupt) {}
    /// A block in the canonical layout of [`Backend::read_block`].
    fn read_block(&self, block: BlockId) -> Vec<f32>;
    /// Writes a block given in the canonical layout.
    fn write_block(&mut self, block: BlockId, values: &[f32]);
}

/// How much a model may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelOptions {
    /// How keys and values are stored.
    pub kv: KvScheme,
    /// Blocks of the KV store.
    pub kv_blocks: usize,
    /// Rows a step.
    pub max_rows: usize,
}

impl ModelOptions {
    /// Room for one sequence of `context_tokens`, in steps of at most `step_tokens` rows.
    pub fn for_one_sequence(kv: KvScheme, context_tokens: usize, step_tokens: usize) -> ModelOptions {
        ModelOptions { kv, kv_blocks: context_tokens.div_ceil(BLOCK_TOKENS), max_rows: step_tokens }
    }
}

/// A model on the device `B`.
pub struct Model<B: Backend> {
    spec: ModelSpec,
    options: ModelOptions,
    rope: Rope,
    backend: B,
    embedding: B::Matrix,
    layers: Vec<Layer<B>>,
    final_norm: B::Vector,
    /// `None`: the embedding is the output head.
    head: Option<B::Matrix>,
    kv: B::KvStore,
    work: Workspace<B>,
    pending: Option<B::Step>,
    interrupt: Interrupt,
}

impl<B: Backend> Model<B> {
    /// Prepares the weights of `artifact` for `backend`, and makes room for sequences. `spec` is the artifact's, with
    /// what flags changed of it; `progress` is told the weight bytes done and those to do.
    pub fn load(
        artifact: &Artifact,
        spec: ModelSpec,
        backend: B,
        options: ModelOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, LoadError> {
        Ok(PreparedWeights::load(artifact, spec, backend, progress)?.with_room(options)?)
    }
}

impl<B: Backend> Forward for Model<B> {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn describe(&self) -> BackendInfo {
        self.backend.describe()
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
        let step = self.forward(batch)?;
        self.pending = Some(step);
        Ok(())
    }

    fn wait(&mut self, outputs: &mut Outputs) -> Result<(), BackendError> {
        let step = self.pending.take().ok_or(BackendError::NothingPending)?;
        self.backend.wait(step, outputs)
    }

    fn set_interrupt(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    fn read_block(&self, block: BlockId) -> Vec<f32> {
        self.backend.read_block(&self.kv, block)
    }

    fn write_block(&mut self, block: BlockId, values: &[f32]) {
        self.backend.write_block(&mut self.kv, block, values);
    }
}
