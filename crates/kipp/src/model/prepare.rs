//! Loading: every matrix checked and prepared for the device, the file's pages given back as it goes. Not the room for
//! sequences, whose size a program may know only later.

use super::forward::Workspace;
use super::{Interrupt, Model, ModelOptions, Rope};
use crate::artifact::{Artifact, BindingError, LayerWeights, Matrix, Vector};
use crate::backend::{Backend, BackendError, KvShape};
use crate::spec::ModelSpec;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A weight that is not finite.
    #[error(transparent)]
    Weights(#[from] BindingError),
    /// The device refuses.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// The prepared weights of one transformer layer.
pub(super) struct Layer<B: Backend> {
    pub(super) attn_norm: B::Vector,
    pub(super) q: B::Matrix,
    pub(super) k: B::Matrix,
    pub(super) v: B::Matrix,
    pub(super) o: B::Matrix,
    pub(super) q_norm: B::Vector,
    pub(super) k_norm: B::Vector,
    pub(super) ffn_norm: B::Vector,
    pub(super) gate: B::Matrix,
    pub(super) up: B::Matrix,
    pub(super) down: B::Matrix,
}

/// Weights on the device `B`: a model that has no room for a sequence yet.
pub struct PreparedWeights<B: Backend> {
    spec: ModelSpec,
    backend: B,
    embedding: B::Matrix,
    layers: Vec<Layer<B>>,
    final_norm: B::Vector,
    head: Option<B::Matrix>,
}

impl<B: Backend> PreparedWeights<B> {
    /// Prepares the weights of `artifact` for `backend`. `spec` is the artifact's, with what flags changed of it;
    /// `progress` is told the weight bytes done and those to do.
    ///
    /// The memory of the mapped file is given back after each matrix, so at no time are both all of the file and all of
    /// the prepared weights resident.
    pub fn load(
        artifact: &Artifact,
        spec: ModelSpec,
        backend: B,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, LoadError> {
        let weights = artifact.weights();
        let total_bytes = weights.matrices().map(|m| m.bytes.len()).sum();
        let mut loader = Loader { artifact, backend, done_bytes: 0, total_bytes, progress };
        // The largest first: while it is prepared it is resident twice, and nothing else is yet.
        let embedding = loader.matrix(&weights.embedding)?;
        let head = weights.head.as_ref().map(|head| loader.matrix(head)).transpose()?;
        let layers = weights.layers.iter().map(|layer| loader.layer(layer)).collect::<Result<_, _>>()?;
        let final_norm = loader.vector(&weights.final_norm)?;
        loader.backend.seal();
        Ok(PreparedWeights { spec, backend: loader.backend, embedding, layers, final_norm, head })
    }

    /// Makes room for sequences.
    pub fn with_room(mut self, options: ModelOptions) -> Result<Model<B>, BackendError> {
        let spec = &self.spec;
        let kv = self.backend.kv_store(KvShape {
            scheme: options.kv,
            blocks: options.kv_blocks,
            layers: spec.n_layers,
            n_kv_heads: spec.n_kv_heads,
            head_dim: spec.head_dim,
        })?;
        let work = Workspace::new(&mut self.backend, spec, options.max_rows)?;
        let rope = Rope::new(spec);
        let PreparedWeights { spec, backend, embedding, layers, final_norm, head } = self;
        let (pending, interrupt) = (None, Interrupt::default());
        Ok(Model {
            spec,
            options,
            rope,
            backend,
            embedding,
            layers,
            final_norm,
            head,
            kv,
            work,
            pending,
            interrupt,
        })
    }
}

/// A load on its way.
struct Loader<'a, B> {
    artifact: &'a Artifact,
    backend: B,
    done_bytes: usize,
    total_bytes: usize,
    progress: &'a mut dyn FnMut(usize, usize),
}

impl<B: Backend> Loader<'_, B> {
    fn matrix(&mut self, matrix: &Matrix<'_>) -> Result<B::Matrix, LoadError> {
        self.backend.check_finite(matrix)?;
        let prepared = self.backend.matrix(matrix)?;
        // All of the file and not the matrix alone: the system maps more than was touched, neighbours included.
        self.artifact.release_pages();
        self.done_bytes += matrix.bytes.len();
        (self.progress)(self.done_bytes, self.total_bytes);
        Ok(prepared)
    }

    fn vector(&mut self, vector: &Vector<'_>) -> Result<B::Vector, LoadError> {
        vector.check_finite()?;
        Ok(self.backend.vector(&vector.decode())?)
    }

    fn layer(&mut self, w: &LayerWeights<'_>) -> Result<Layer<B>, LoadError> {
        Ok(Layer {
            attn_norm: self.vector(&w.attn_norm)?,
            q: self.matrix(&w.q)?,
            k: self.matrix(&w.k)?,
            v: self.matrix(&w.v)?,
            o: self.matrix(&w.o)?,
            q_norm: self.vector(&w.q_norm)?,
            k_norm: self.vector(&w.k_norm)?,
            ffn_norm: self.vector(&w.ffn_norm)?,
            gate: self.matrix(&w.gate)?,
            up: self.matrix(&w.up)?,
            down: self.matrix(&w.down)?,
        })
    }
}
