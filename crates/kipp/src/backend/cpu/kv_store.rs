//! Keys and values of every layer in blocks; the layout inside a block belongs to the kernels.

use kipp_kernels::kernels::Kernels;
use kipp_kernels::kv::{BLOCK_TOKENS, KvLayout};

use super::memory::AlignedBytes;
use crate::backend::{BackendError, KvShape};
use crate::kv::BlockId;

/// The KV store of one model.
pub struct CpuKvStore {
    layout: KvLayout,
    /// One mapping a layer, block after block.
    layers: Vec<AlignedBytes>,
}

impl CpuKvStore {
    pub(super) fn new(shape: KvShape) -> Result<CpuKvStore, BackendError> {
        let KvShape { scheme, blocks, layers, n_kv_heads, head_dim } = shape;
        let layout = KvLayout { scheme, n_kv_heads, head_dim };
        let too_large = || BackendError::Memory { what: "the KV cache".to_owned(), bytes: usize::MAX };
        let layer_bytes = layout.block_bytes().checked_mul(blocks).ok_or_else(too_large)?;
        let layers = (0..layers).map(|_| AlignedBytes::zeroed(layer_bytes, "the KV cache"));
        Ok(CpuKvStore { layout, layers: layers.collect::<Result<_, _>>()? })
    }

    pub(super) fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// All blocks of a layer.
    pub(super) fn layer(&self, layer: usize) -> &[u8] {
        self.layers[layer].bytes()
    }

    /// Zeroes blocks that were handed out (unwritten values must be finite, or 0 x NaN poisons a row), then copies.
    pub(super) fn prepare_blocks(&mut self, zero: &[BlockId], copy: &[(BlockId, BlockId)]) {
        for layer in &mut self.layers {
            for block in zero {
                let range = block_range(&self.layout, *block);
                layer.bytes_mut()[range].fill(0);
            }
            for (from, to) in copy {
                let to = block_range(&self.layout, *to).start;
                layer.bytes_mut().copy_within(block_range(&self.layout, *from), to);
            }
        }
    }

    /// Stores one position of one layer; `place` is its block and slot.
    pub(super) fn write(
        &mut self,
        kernels: &dyn Kernels,
        layer: usize,
        place: (BlockId, usize),
        k: &[f32],
        v: &[f32],
    ) {
        let range = block_range(&self.layout, place.0);
        kernels.write_kv(&self.layout, &mut self.layers[layer].bytes_mut()[range], place.1, k, v);
    }

    pub(super) fn read_block(&self, block: BlockId) -> Vec<f32> {
        let width = self.layout.n_kv_heads * self.layout.head_dim;
        let mut values = vec![0.0; self.layers.len() * 2 * BLOCK_TOKENS * width];
        let parts = values.chunks_exact_mut(2 * BLOCK_TOKENS * width);
        for (layer, values) in self.layers.iter().zip(parts) {
            let bytes = &layer.bytes()[block_range(&self.layout, block)];
            let (k, v) = values.split_at_mut(BLOCK_TOKENS * width);
            let slots = k.chunks_exact_mut(width).zip(v.chunks_exact_mut(width));
            for (slot, (k, v)) in slots.enumerate() {
                self.layout.read_slot(bytes, slot, k, v);
            }
        }
        values
    }

    pub(super) fn write_block(&mut self, kernels: &dyn Kernels, block: BlockId, values: &[f32]) {
        let width = self.layout.n_kv_heads * self.layout.head_dim;
        for layer in 0..self.layers.len() {
            let values = &values[layer * 2 * BLOCK_TOKENS * width..][..2 * BLOCK_TOKENS * width];
            let (k, v) = values.split_at(BLOCK_TOKENS * width);
            for slot in 0..BLOCK_TOKENS {
                let (k, v) = (&k[slot * width..][..width], &v[slot * width..][..width]);
                self.write(kernels, layer, (block, slot), k, v);
            }
        }
    }
}

fn block_range(layout: &KvLayout, block: BlockId) -> std::ops::Range<usize> {
    let bytes = layout.block_bytes();
    let first = block as usize * bytes;
    first..first + bytes
}
