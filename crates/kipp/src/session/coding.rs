//! How a block's values lie in a session file: the canonical layout of [`Backend::read_block`], each head of each position
//! one row, in the number format of the KV scheme.
//!
//! The values that a store gives back are its numbers widened, so coding them again gives the same numbers: always in f32
//! and bf16, and in q8_0 but for groups whose scale is so small that f16 rounds it coarsely. Such a block is not saved,
//! and what is not saved is evaluated again.
//!
//! [`Backend::read_block`]: crate::backend::Backend::read_block

use kipp_kernels::Scheme;

use crate::kv::{BLOCK_TOKENS, KvScheme};
use crate::model::Forward;

/// The shape of one block in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockCoding {
    scheme: Scheme,
    layers: usize,
    n_kv_heads: usize,
    head_dim: usize,
    /// `head_dim`, padded with zeros to whole groups.
    row_len: usize,
    row_bytes: usize,
}

impl BlockCoding {
    pub(super) fn new(model: &dyn Forward) -> BlockCoding {
        let scheme = match model.kv_scheme() {
            KvScheme::F32 => Scheme::F32,
            KvScheme::Bf16 => Scheme::Bf16,
            KvScheme::Q8_0 => Scheme::Q8_0,
        };
        let spec = model.spec();
        let row_len = spec.head_dim.next_multiple_of(scheme.group_len());
        let row_bytes = row_len / scheme.group_len() * scheme.group_bytes();
        let (layers, n_kv_heads, head_dim) = (spec.n_layers, spec.n_kv_heads, spec.head_dim);
        BlockCoding { scheme, layers, n_kv_heads, head_dim, row_len, row_bytes }
    }

    /// Heads of all positions, keys and values, layers.
    fn rows(&self) -> usize {
        self.layers * 2 * BLOCK_TOKENS * self.n_kv_heads
    }

    /// Bytes of a block in a file.
    pub(super) fn block_bytes(&self) -> usize {
        self.rows() * self.row_bytes
    }

    /// Codes a block of which `positions` are written; what lies behind them becomes zero. `None` where the values would
    /// not come back bit for bit, or are no keys and values at all (the oracle keeps tokens).
    pub(super) fn encode(&self, mut values: Vec<f32>, positions: usize) -> Option<Vec<u8>> {
        if values.len() != self.rows() * self.head_dim {
            return None;
        }
        let width = self.n_kv_heads * self.head_dim;
        for part in values.chunks_exact_mut(BLOCK_TOKENS * width) {
            part[positions.min(BLOCK_TOKENS) * width..].fill(0.0);
        }
        let mut bytes = vec![0; self.block_bytes()];
        let (mut row, mut again) = (vec![0.0; self.row_len], vec![0.0; self.row_len]);
        for (values, bytes) in values.chunks_exact(self.head_dim).zip(bytes.chunks_exact_mut(self.row_bytes))
        {
            row[..self.head_dim].copy_from_slice(values);
            self.scheme.encode_row(&row, bytes).ok()?;
            self.scheme.decode_row(bytes, &mut again);
            if row.iter().zip(&again).any(|(x, y)| x.to_bits() != y.to_bits()) {
                return None;
            }
        }
        Some(bytes)
    }

    /// The values of a block of [`block_bytes`](Self::block_bytes). `None` where one is not finite.
    pub(super) fn decode(&self, bytes: &[u8]) -> Option<Vec<f32>> {
        let mut values = vec![0.0; self.rows() * self.head_dim];
        let mut row = vec![0.0; self.row_len];
        for (values, bytes) in values.chunks_exact_mut(self.head_dim).zip(bytes.chunks_exact(self.row_bytes))
        {
            self.scheme.decode_row(bytes, &mut row);
            values.copy_from_slice(&row[..self.head_dim]);
        }
        values.iter().all(|value| value.is_finite()).then_some(values)
    }
}
