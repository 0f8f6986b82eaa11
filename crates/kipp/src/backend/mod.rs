//! What a device offers: about a dozen operations, named after the model's steps. The forward pass is written once over
//! this trait. A backend knows no sequence and no request; it sees rows, segments and block tables.

pub mod cpu;
pub mod oracle;

use crate::artifact::{self, BindingError};
use crate::batch::{Batch, BatchError, Outputs};
use crate::kv::{BlockId, KvScheme};
use crate::model::Rope;

/// Our fault or the device's, never the caller's; or an interrupt.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BackendError {
    /// The step was built wrongly.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The device does not have the memory.
    #[error("{what} needs {bytes} bytes, which cannot be had")]
    Memory {
        /// What for.
        what: String,
        /// How much.
        bytes: usize,
    },
    /// A tensor that the device has no kernel for.
    #[error("tensor {tensor}: {backend} has no kernel for {scheme} with {rows} x {cols} weights")]
    Unsupported {
        /// The tensor's name in the file.
        tensor: String,
        /// The backend's name.
        backend: &'static str,
        /// How it is stored.
        scheme: &'static str,
        /// Output width.
        rows: usize,
        /// Input width.
        cols: usize,
    },
    /// A kernel class that this machine cannot run.
    #[error("kernel class {class} cannot run on this machine; it can run {available}")]
    Class {
        /// The class asked for.
        class: &'static str,
        /// Those that can run, best last.
        available: String,
    },
    /// A wait without a submitted step.
    #[error("no step was submitted")]
    NothingPending,
    /// A step submitted before the last one was waited for.
    #[error("the last step was not waited for")]
    StillPending,
    /// The step was ended by a [`crate::model::Interrupt`].
    #[error("the step was interrupted")]
    Interrupted,
}

/// What was chosen, for people and for records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInfo {
    /// `cpu`, `oracle`, ...
    pub name: &'static str,
    /// The kernel class, `avx512` for example.
    pub kernels: String,
    /// How activations are coded, by weight scheme where it differs.
    pub activations: String,
    /// Threads that compute.
    pub threads: usize,
    /// Fast kernels that were not taken and why; empty when nothing was demoted.
    pub demoted: Vec<String>,
}

/// The size of a KV store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// How keys and values are stored.
    pub scheme: KvScheme,
    /// Blocks of [`crate::kv::BLOCK_TOKENS`] positions, every layer's.
    pub blocks: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Values a head.
    pub head_dim: usize,
}

/// A matrix and the rows that its product goes to.
pub struct Product<'a, B: Backend + ?Sized> {
    /// `[width of out, width of x]`.
    pub matrix: &'a B::Matrix,
    /// Takes as many rows as the input has.
    pub out: &'a mut B::Rows,
}

/// A device. `Rows` are `[rows, width]` matrices of f32 in fixed buffers; how many rows they hold follows the input.
pub trait Backend: Send {
    /// Weights, prepared for the device.
    type Matrix: Send;
    /// A norm's weights.
    type Vector: Send;
    /// Activations.
    type Rows: Send;
    /// Keys and values of every layer.
    type KvStore: Send;
    /// What the operations of one step share: positions, tables, row maps.
    type Step: Send;

    /// What was chosen.
    fn describe(&self) -> BackendInfo;

    /// Refuses a matrix that holds NaN or an infinity. A device whose threads are to do the reading overrides it.
    fn check_finite(&mut self, matrix: &artifact::Matrix<'_>) -> Result<(), BindingError> {
        matrix.check_finite()
    }
    /// Prepares one matrix; the bytes are not needed afterwards. It may be used after [`Backend::seal`].
    fn matrix(&mut self, matrix: &artifact::Matrix<'_>) -> Result<Self::Matrix, BackendError>;
    /// Makes every matrix that was prepared so far usable. A device that has them at once needs nothing here.
    fn seal(&mut self) {}
    /// Prepares a norm's weights.
    fn vector(&mut self, values: &[f32]) -> Result<Self::Vector, BackendError>;
    /// A buffer for up to `max_rows` rows.
    fn rows(&mut self, max_rows: usize, width: usize) -> Result<Self::Rows, BackendError>;
    /// A store of zeroed blocks.
    fn kv_store(&mut self, shape: KvShape) -> Result<Self::KvStore, BackendError>;

    /// Starts a step over a batch that has been checked: takes positions, angles and tables to the device once, zeroes
    /// and copies the blocks that the batch lists.
    fn begin(
        &mut self,
        kv: &mut Self::KvStore,
        batch: &Batch,
        rope: &Rope,
    ) -> Result<Self::Step, BackendError>;
    /// `x = table[token]` for every row.
    fn embed(&mut self, step: &Self::Step, table: &Self::Matrix, x: &mut Self::Rows);
    /// `y = x / sqrt(mean(x^2) + eps) * weight`, row by row.
    fn rms_norm(&mut self, x: &Self::Rows, weight: &Self::Vector, eps: f32, y: &mut Self::Rows);
    /// `out = x * matrix^T` for matrices that share one input, which is coded once.
    fn linear(&mut self, x: &Self::Rows, products: &mut [Product<'_, Self>]);
    /// RMS norm of each head with the shared weight, then the rotation by the row's position, in place.
    fn norm_rope(&mut self, step: &Self::Step, x: &mut Self::Rows, weight: &Self::Vector, eps: f32);
    /// Stores the keys and values of every row at its position.
    fn write_kv(
        &mut self,
        step: &Self::Step,
        kv: &mut Self::KvStore,
        layer: usize,
        k: &Self::Rows,
        v: &Self::Rows,
    );
    /// Causal grouped-query attention of every row over its sequence's positions up to its own.
    fn attention(
        &mut self,
        step: &Self::Step,
        kv: &Self::KvStore,
        layer: usize,
        q: &Self::Rows,
        out: &mut Self::Rows,
    );
    /// `gate = silu(gate) * up`.
    fn swiglu(&mut self, gate: &mut Self::Rows, up: &Self::Rows);
    /// `x += y`.
    fn add(&mut self, x: &mut Self::Rows, y: &Self::Rows);
    /// Takes the rows that ask for something, in order.
    fn gather(&mut self, step: &Self::Step, x: &Self::Rows, out: &mut Self::Rows);
    /// Answers what each gathered row asked, through the output head.
    fn outputs(&mut self, step: &mut Self::Step, hidden: &Self::Rows, head: &Self::Matrix);
    /// Gives up a step before [`Backend::finish`]: what it wrote is not looked at.
    fn abandon(&mut self, step: Self::Step) {
        drop(step);
    }
    /// Submits the step.
    fn finish(&mut self, step: &mut Self::Step) -> Result<(), BackendError>;
    /// Waits for it and hands over its answers.
    fn wait(&mut self, step: Self::Step, outputs: &mut Outputs) -> Result<(), BackendError>;

    /// Reads a block in the canonical layout: `[layers, K then V, positions, n_kv_heads, head_dim]` as f32.
    fn read_block(&self, kv: &Self::KvStore, block: BlockId) -> Vec<f32>;
    /// Writes a block given in the canonical layout.
    fn write_block(&mut self, kv: &mut Self::KvStore, block: BlockId, values: &[f32]);
}
