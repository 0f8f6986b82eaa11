//! THE forward pass, written once for every device. Read this file first.
//!
//! ```text
//! x = embedding[token]
//! for each layer:
//!     h = rms_norm(x)
//!     q, k, v = h * Wq, h * Wk, h * Wv
//!     q, k = rotate(rms_norm of each head)
//!     store k, v at the row's position
//!     x += attention(q, stored K and V) * Wo
//!     h = rms_norm(x)
//!     x += (silu(h * Wgate) * (h * Wup)) * Wdown
//! logits = rms_norm(x) * head, for the rows that ask
//! ```

use super::{Layer, Model};
use crate::backend::{Backend, BackendError, Product};
use crate::batch::Batch;
use crate::spec::ModelSpec;

/// The activations of a step, in buffers made once.
pub(super) struct Workspace<B: Backend> {
    /// The residual. `[rows, hidden_size]`
    x: B::Rows,
    /// A norm's output, or a block's contribution to the residual. `[rows, hidden_size]`
    h: B::Rows,
    /// `[rows, n_heads * head_dim]`
    q: B::Rows,
    /// `[rows, n_kv_heads * head_dim]`
    k: B::Rows,
    /// `[rows, n_kv_heads * head_dim]`
    v: B::Rows,
    /// What the heads attended to. `[rows, n_heads * head_dim]`
    attended: B::Rows,
    /// `[rows, intermediate_size]`
    gate: B::Rows,
    /// `[rows, intermediate_size]`
    up: B::Rows,
}

impl<B: Backend> Workspace<B> {
    pub(super) fn new(backend: &mut B, spec: &ModelSpec, max_rows: usize) -> Result<Self, BackendError> {
        Ok(Workspace {
            x: backend.rows(max_rows, spec.hidden_size)?,
            h: backend.rows(max_rows, spec.hidden_size)?,
            q: backend.rows(max_rows, spec.q_width())?,
            k: backend.rows(max_rows, spec.kv_width())?,
            v: backend.rows(max_rows, spec.kv_width())?,
            attended: backend.rows(max_rows, spec.q_width())?,
            gate: backend.rows(max_rows, spec.intermediate_size)?,
            up: backend.rows(max_rows, spec.intermediate_size)?,
        })
    }
}

impl<B: Backend> Model<B> {
    /// Runs one checked batch up to its submission.
    pub(super) fn forward(&mut self, batch: &Batch) -> Result<B::Step, BackendError> {
        let mut step = self.backend.begin(&mut self.kv, batch, &self.rope)?;
        self.backend.embed(&step, &self.embedding, &mut self.work.x);
        if let Err(interrupted) = self.run_layers(&step) {
            self.backend.abandon(step);
            return Err(interrupted);
        }
        let Workspace { x, h, .. } = &mut self.work;
        self.backend.gather(&step, x, h);
        self.backend.rms_norm(h, &self.final_norm, self.spec.rms_norm_eps, x);
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        self.backend.outputs(&mut step, x, head);
        self.backend.finish(&mut step)?;
        Ok(step)
    }

    /// All layers, unless somebody gives up meanwhile.
    fn run_layers(&mut self, step: &B::Step) -> Result<(), BackendError> {
        for index in 0..self.layers.len() {
            self.interrupt.check()?;
            self.attend(step, index);
            self.interrupt.check()?;
            self.feed_forward(index);
        }
        self.interrupt.check()
    }

    /// The attention half of a layer.
    fn attend(&mut self, step: &B::Step, index: usize) {
        let (backend, eps) = (&mut self.backend, self.spec.rms_norm_eps);
        let Workspace { x, h, q, k, v, attended, .. } = &mut self.work;
        let Layer { attn_norm, q: wq, k: wk, v: wv, o: wo, q_norm, k_norm, .. } = &self.layers[index];
        backend.rms_norm(x, attn_norm, eps, h);
        backend.linear(
            h,
            &mut [
                Product { matrix: wq, out: q },
                Product { matrix: wk, out: k },
                Product { matrix: wv, out: v },
            ],
        );
        backend.norm_rope(step, q, q_norm, eps);
        backend.norm_rope(step, k, k_norm, eps);
        backend.write_kv(step, &mut self.kv, index, k, v);
        backend.attention(step, &self.kv, index, q, attended);
        backend.linear(attended, &mut [Product { matrix: wo, out: h }]);
        backend.add(x, h);
    }

    /// The feed-forward half of a layer.
    fn feed_forward(&mut self, index: usize) {
        let backend = &mut self.backend;
        let Workspace { x, h, gate, up, .. } = &mut self.work;
        let Layer { ffn_norm, gate: wgate, up: wup, down: wdown, .. } = &self.layers[index];
        backend.rms_norm(x, ffn_norm, self.spec.rms_norm_eps, h);
        backend.linear(h, &mut [Product { matrix: wgate, out: gate }, Product { matrix: wup, out: up }]);
        backend.swiglu(gate, up);
        backend.linear(gate, &mut [Product { matrix: wdown, out: h }]);
        backend.add(x, h);
    }
}
