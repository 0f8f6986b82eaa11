//! Keys and values of every layer in blocks; the layout inside a block belongs to the kernels.

use std::ops::Range;

use kipp_kernels::kernels::Kernels;
use kipp_kernels::kv::{BLOCK_TOKENS, KvLayout};

use super::memory::AlignedBytes;
use super::threads::Pool;
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

    /// Stores keys and values, `[rows, n_kv_heads * head_dim]` each, of one layer; `slots` names each row's block and slot.
    pub(super) fn write(
        &mut self,
        kernels: &dyn Kernels,
        pool: &mut Pool,
        layer: usize,
        slots: &[(BlockId, usize)],
        [k, v]: [&[f32]; 2],
    ) {
        let layout = self.layout;
        let width = layout.n_kv_heads * layout.head_dim;
        let mut runs = runs(slots);
        runs.sort_by_key(|run| run.block);
        // The runs of one block, several only where a caller cuts a sequence oddly, go to one thread.
        let runs = runs.chunk_by(|a, b| a.block == b.block);
        let mut parts = Vec::new();
        let (mut rest, mut next) = (self.layers[layer].bytes_mut(), 0);
        for runs in runs {
            let block = runs[0].block as usize;
            let (bytes, after) =
                rest[(block - next) * layout.block_bytes()..].split_at_mut(layout.block_bytes());
            (rest, next) = (after, block + 1);
            parts.push((bytes, runs));
        }
        let write = |(block, runs): (&mut [u8], &[Run])| {
            for run in runs {
                let values = run.rows.start * width..run.rows.end * width;
                kernels.write_kv(&layout, block, run.slot, &k[values.clone()], &v[values]);
            }
        };
        match parts.len() {
            0 | 1 => parts.into_iter().for_each(write),
            _ => pool.for_each(parts.into_iter(), |_, part| write(part)),
        }
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

    pub(super) fn write_block(
        &mut self,
        kernels: &dyn Kernels,
        pool: &mut Pool,
        block: BlockId,
        values: &[f32],
    ) {
        let part = BLOCK_TOKENS * self.layout.n_kv_heads * self.layout.head_dim;
        let slots: Vec<(BlockId, usize)> = (0..BLOCK_TOKENS).map(|slot| (block, slot)).collect();
        for layer in 0..self.layers.len() {
            let (k, v) = values[layer * 2 * part..][..2 * part].split_at(part);
            self.write(kernels, pool, layer, &slots, [k, v]);
        }
    }
}

/// Consecutive rows that go to consecutive slots of one block.
struct Run {
    block: BlockId,
    slot: usize,
    rows: Range<usize>,
}

fn runs(slots: &[(BlockId, usize)]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (row, (block, slot)) in slots.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run.block == *block && run.slot + run.rows.len() == *slot => run.rows.end += 1,
            _ => runs.push(Run { block: *block, slot: *slot, rows: row..row + 1 }),
        }
    }
    runs
}

fn block_range(layout: &KvLayout, block: BlockId) -> std::ops::Range<usize> {
    let bytes = layout.block_bytes();
    let first = block as usize * bytes;
    first..first + bytes
}
