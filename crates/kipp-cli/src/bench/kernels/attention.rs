//! Attention alone, by length: a prompt's rows and a single row after so many positions. Layers take turns, so that keys
//! and values come from memory as in a decode step.

use anyhow::Result;
use kipp::ModelSpec;
use kipp::backend::Backend;
use kipp::backend::cpu::CpuBackend;
use kipp::kv::{BLOCK_TOKENS, KvScheme};
use kipp_kernels::KvLayout;
use kipp_kernels::probe::PeakLoop;

use super::input::Sequence;
use super::table::Work;
use super::timing;

/// Rows after a number of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttentionCase {
    pub(super) depth: usize,
    pub(super) rows: usize,
}

/// What scores and values are made of, half of the operations each: q8_0 keys meet coded queries.
pub(super) fn loops(kv: KvScheme) -> &'static [PeakLoop] {
    match kv {
        KvScheme::F32 | KvScheme::Bf16 => &[PeakLoop::F32Fma],
        KvScheme::Q8_0 => &[PeakLoop::U8Dot, PeakLoop::F32Fma],
    }
}

impl AttentionCase {
    /// The time of one layer's attention; its bytes are the keys and values that all rows together see.
    pub(super) fn measure(
        self,
        backend: &mut CpuBackend,
        spec: &ModelSpec,
        kv: KvScheme,
        rotated_bytes: usize,
    ) -> Result<Work> {
        let AttentionCase { depth, rows } = self;
        let layout = KvLayout { scheme: kv, n_kv_heads: spec.n_kv_heads, head_dim: spec.head_dim };
        let layer_bytes = (depth + rows).div_ceil(BLOCK_TOKENS) * layout.block_bytes();
        let layers = rotated_bytes.div_ceil(layer_bytes).clamp(1, spec.n_layers);
        let sequence = Sequence::new(backend, spec, kv, [depth, rows, layers])?;
        let q = sequence.rows(backend, rows, spec.q_width())?;
        let mut out = backend.rows(rows, spec.q_width())?;
        let time = timing::seconds(|turn| {
            backend.attention(&sequence.step, &sequence.kv, turn % sequence.layers, &q, &mut out);
        });
        sequence.end(backend)?;
        Ok(Work { time, operations: self.operations(spec), bytes: layer_bytes as f64 })
    }

    /// Two for each product in scores and values, over the positions that each row sees.
    pub(super) fn operations(self, spec: &ModelSpec) -> f64 {
        let seen = self.rows * self.depth + self.rows * (self.rows + 1) / 2;
        4.0 * spec.q_width() as f64 * seen as f64
    }
}
