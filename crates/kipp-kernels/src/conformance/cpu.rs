//! How the CPU kernels run a case: the closures that the checks want.

use super::attention::AttentionCase;
use super::product::ProductCase;
use crate::activations::CodedLayout;
use crate::attention::{Attended, AttentionTask, Cache, attention_scratch_len, span_count, span_state_len};
use crate::columns::Columns;
use crate::kernels::Kernels;
use crate::kv::BLOCK_TOKENS;
use crate::tile::{PANEL_ROWS, TileLayout, Tiles, prepare_panel};

/// A prepared matrix of a case; `None` if the scheme cannot have its width.
pub fn prepare(case: &ProductCase) -> Option<(TileLayout, Vec<u8>)> {
    let layout = TileLayout::new(case.scheme, case.rows, case.cols)?;
    let mut tiles = vec![0; layout.bytes()];
    for (panel, dst) in tiles.chunks_mut(layout.panel_bytes().max(1)).enumerate() {
        prepare_panel(&layout, &case.weights, panel, dst);
    }
    Some((layout, tiles))
}

/// The product of a case, `[tokens, rows]`, its panels computed `panels_at_once` at a time.
pub fn product(kernels: &dyn Kernels, case: &ProductCase, panels_at_once: usize) -> Vec<f32> {
    let Some((layout, tiles)) = prepare(case) else { return Vec::new() };
    let tiles = Tiles { layout: &layout, bytes: &tiles };
    let input = CodedLayout::new(kernels.coding(case.scheme, case.activations), case.tokens, case.cols);
    let mut coded = vec![0; input.bytes()];
    kernels.code(&input, &case.x, 0..input.blocks(), &mut coded);
    let mut out = vec![f32::NAN; case.tokens * case.rows];
    let mut rest = Columns::new(&mut out, case.rows);
    for first in (0..layout.panels()).step_by(panels_at_once.max(1)) {
        let panels = first..layout.panels().min(first + panels_at_once.max(1));
        let rows = (panels.len() * PANEL_ROWS).min(rest.width());
        let (window, right) = rest.split_columns_at(rows);
        kernels.matmul(tiles, &input, &coded, panels, window);
        rest = right;
    }
    out
}

/// The store of a case, every position written.
fn stored(kernels: &dyn Kernels, case: &AttentionCase) -> Vec<u8> {
    let layout = case.layout;
    let (block_bytes, width) = (layout.block_bytes(), layout.n_kv_heads * layout.head_dim);
    let mut blocks = vec![0; case.n_blocks * block_bytes];
    for (position, (k, v)) in case.k.chunks(width).zip(case.v.chunks(width)).enumerate() {
        let block = case.table[position / BLOCK_TOKENS] as usize;
        let block = &mut blocks[block * block_bytes..][..block_bytes];
        kernels.write_kv(&layout, block, position % BLOCK_TOKENS, k, v);
    }
    blocks
}

/// The attention of a case, `[rows, n_heads * head_dim]`, its kv heads computed `heads_at_once` at a time.
pub fn attention(kernels: &dyn Kernels, case: &AttentionCase, heads_at_once: usize) -> Vec<f32> {
    let layout = case.layout;
    let blocks = stored(kernels, case);
    let q_stride = case.n_heads * layout.head_dim;
    let mut out = vec![f32::NAN; case.q.len()];
    let mut scratch = vec![f32::NAN; attention_scratch_len(&layout)];
    let mut rest = Columns::new(&mut out, q_stride);
    for first in (0..layout.n_kv_heads).step_by(heads_at_once.max(1)) {
        let kv_heads = first..layout.n_kv_heads.min(first + heads_at_once.max(1));
        let columns = kv_heads.len() * (case.n_heads / layout.n_kv_heads) * layout.head_dim;
        let (window, right) = rest.split_columns_at(columns);
        kernels.attention(AttentionTask {
            cache: Cache { layout, blocks: &blocks, table: &case.table },
            start: case.start,
            q: &case.q,
            q_stride,
            n_heads: case.n_heads,
            kv_heads,
            scale: 1.0 / (layout.head_dim as f32).sqrt(),
            out: Attended::Rows(window),
            scratch: &mut scratch,
        });
        rest = right;
    }
    out
}

/// The same, every row, kv head and span by itself, then merged.
pub fn attention_by_spans(kernels: &dyn Kernels, case: &AttentionCase) -> Vec<f32> {
    let layout = case.layout;
    let blocks = stored(kernels, case);
    let width = case.n_heads * layout.head_dim;
    let group = case.n_heads / layout.n_kv_heads;
    let mut out = vec![f32::NAN; case.q.len()];
    let mut scratch = vec![f32::NAN; attention_scratch_len(&layout)];
    for (row, (q, out)) in case.q.chunks(width).zip(out.chunks_mut(width)).enumerate() {
        let start = case.start + row;
        let span_len = group * span_state_len(&layout);
        for (head, out) in out.chunks_mut(group * layout.head_dim).enumerate() {
            let mut states = vec![f32::NAN; span_count(start + 1) * span_len];
            for (index, state) in states.chunks_mut(span_len).enumerate() {
                kernels.attention(AttentionTask {
                    cache: Cache { layout, blocks: &blocks, table: &case.table },
                    start,
                    q,
                    q_stride: width,
                    n_heads: case.n_heads,
                    kv_heads: head..head + 1,
                    scale: 1.0 / (layout.head_dim as f32).sqrt(),
                    out: Attended::Span { index, state },
                    scratch: &mut scratch,
                });
            }
            kernels.merge_spans(&layout, &mut states, out);
        }
    }
    out
}
