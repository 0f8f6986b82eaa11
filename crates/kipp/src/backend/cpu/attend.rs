//! Attention: rows and heads divided among the threads.

use kipp_kernels::attention::{AttentionTask, Cache, attention_scratch_len};
use kipp_kernels::columns::Columns;
use kipp_kernels::kernels::Kernels;

use super::kv_store::CpuKvStore;
use super::threads::Pool;
use super::{CpuRows, CpuStep};
use crate::batch::Segment;

/// Query rows of one part. A part reads K and V once for all its rows, and 64 rows of one head still make enough parts.
const PART_ROWS: usize = 64;

/// What attention reads.
pub(super) struct Inputs<'a> {
    pub(super) step: &'a CpuStep,
    pub(super) kv: &'a CpuKvStore,
    pub(super) layer: usize,
    pub(super) q: &'a CpuRows,
}

/// Some rows of one segment and some heads.
struct Part<'a> {
    segment: &'a Segment,
    /// First of the rows, in the batch.
    row: usize,
    kv_heads: std::ops::Range<usize>,
    out: Columns<'a>,
}

/// Attends for every row of the step.
pub(super) fn attention(
    kernels: &dyn Kernels,
    pool: &mut Pool,
    scratch: &mut [Vec<f32>],
    inputs: Inputs<'_>,
    out: &mut CpuRows,
) {
    let Inputs { step, kv, layer, q } = inputs;
    let layout = kv.layout();
    let n_heads = q.width / layout.head_dim;
    let parts = divide(&step.batch.segments, layout.n_kv_heads, pool.threads(), out);
    let needed = attention_scratch_len(layout);
    let mut per_thread = Vec::with_capacity(scratch.len());
    for scratch in scratch.iter_mut() {
        scratch.resize(scratch.len().max(needed), 0.0);
        per_thread.push(std::sync::Mutex::new(scratch));
    }
    pool.for_each(parts.into_iter(), |thread, part: Part<'_>| {
        let Part { segment, row, kv_heads, out } = part;
        // Each thread locks its own, so nobody waits.
        let mut scratch = per_thread[thread].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kernels.attention(AttentionTask {
            cache: Cache { layout: *layout, blocks: kv.layer(layer), table: &segment.table },
            start: segment.start + (row - segment.rows.start),
            q: &q.filled()[row * q.width..],
            q_stride: q.width,
            n_heads,
            kv_heads,
            scale: 1.0 / (layout.head_dim as f32).sqrt(),
            out,
            scratch: &mut scratch,
        });
    });
}

fn divide<'a>(
    segments: &'a [Segment],
    n_kv_heads: usize,
    threads: usize,
    out: &'a mut CpuRows,
) -> Vec<Part<'a>> {
    let width = out.width;
    let kv_head_width = width / n_kv_heads;
    let mut parts = Vec::new();
    let mut rest = Columns::new(out.filled_mut(), width);
    for segment in segments {
        // A long prompt has parts enough with one head each; for one row, neighbouring heads are read in one stream.
        let heads = if segment.rows.len() > 1 { 1 } else { n_kv_heads.div_ceil(threads) };
        for row in segment.rows.clone().step_by(PART_ROWS) {
            let rows = PART_ROWS.min(segment.rows.end - row);
            let (mut these, after) = rest.split_rows_at(rows);
            rest = after;
            for first in (0..n_kv_heads).step_by(heads) {
                let kv_heads = first..n_kv_heads.min(first + heads);
                let (out, after) = these.split_columns_at(kv_heads.len() * kv_head_width);
                these = after;
                parts.push(Part { segment, row, kv_heads, out });
            }
        }
    }
    parts
}
