//! Attention: rows and heads divided among the threads; with more threads than those make parts, a row's spans too.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use kipp_kernels::attention::{
    Attended, AttentionTask, Cache, attention_scratch_len, span_count, span_state_len,
};
use kipp_kernels::columns::Columns;
use kipp_kernels::kernels::Kernels;
use kipp_kernels::kv::KvLayout;

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

/// Buffers kept from layer to layer.
#[derive(Default)]
pub(super) struct Scratch {
    /// Each thread locks its own, so nobody waits.
    threads: Vec<Mutex<Vec<f32>>>,
    /// Rows that are divided by spans: for each of them `[kv heads, spans, heads of the group, span_state_len]`.
    states: Vec<f32>,
}

/// Some rows of one segment and some heads.
struct Part<'a> {
    segment: &'a Segment,
    /// First of the rows, in the batch.
    row: usize,
    kv_heads: Range<usize>,
    out: Attended<'a>,
}

/// How the heads and spans of a step are divided.
struct Division {
    layout: KvLayout,
    /// Query heads a kv head.
    group: usize,
    /// kv heads that a part of one row computes: neighbours, which are read in one stream.
    heads: usize,
    by_spans: bool,
}

impl Division {
    fn new(layout: KvLayout, n_heads: usize, segments: usize, threads: usize) -> Division {
        let heads = layout.n_kv_heads.div_ceil(threads);
        let by_spans = segments * layout.n_kv_heads.div_ceil(heads) < threads;
        Division { layout, group: n_heads / layout.n_kv_heads, heads, by_spans }
    }

    /// Spans that the only row of a segment is divided into; 0 where it is not.
    fn spans(&self, segment: &Segment) -> usize {
        match span_count(segment.start + 1) {
            spans if self.by_spans && segment.rows.len() == 1 && spans > 1 => spans,
            _ => 0,
        }
    }

    fn span_len(&self) -> usize {
        self.group * span_state_len(&self.layout)
    }

    /// Values that the states of a segment's spans take.
    fn states_len(&self, segment: &Segment) -> usize {
        self.spans(segment) * self.layout.n_kv_heads * self.span_len()
    }

    /// The parts of a segment that is divided by rows and heads.
    fn rows_and_heads<'a>(&self, segment: &'a Segment, out: Columns<'a>, parts: &mut Vec<Part<'a>>) {
        // A long prompt has parts enough with one head each.
        let heads = if segment.rows.len() > 1 { 1 } else { self.heads };
        let mut rest = out;
        for row in segment.rows.clone().step_by(PART_ROWS) {
            let (mut these, after) = rest.split_rows_at(PART_ROWS.min(segment.rows.end - row));
            rest = after;
            for first in (0..self.layout.n_kv_heads).step_by(heads) {
                let kv_heads = first..self.layout.n_kv_heads.min(first + heads);
                let width = kv_heads.len() * self.group * self.layout.head_dim;
                let (out, after) = these.split_columns_at(width);
                these = after;
                parts.push(Part { segment, row, kv_heads, out: Attended::Rows(out) });
            }
        }
    }

    /// The parts of a segment whose only row is divided by kv heads and spans.
    fn spans_of_heads<'a>(&self, segment: &'a Segment, states: &'a mut [f32], parts: &mut Vec<Part<'a>>) {
        let of_heads = states.chunks_exact_mut(self.spans(segment) * self.span_len());
        for (head, states) in of_heads.enumerate() {
            for (index, state) in states.chunks_exact_mut(self.span_len()).enumerate() {
                let (row, out) = (segment.rows.start, Attended::Span { index, state });
                parts.push(Part { segment, row, kv_heads: head..head + 1, out });
            }
        }
    }
}

/// Attends for every row of the step.
pub(super) fn attention(
    kernels: &dyn Kernels,
    pool: &mut Pool,
    scratch: &mut Scratch,
    inputs: Inputs<'_>,
    out: &mut CpuRows,
) {
    let Inputs { step, kv, layer, q } = inputs;
    let layout = *kv.layout();
    let n_heads = q.width / layout.head_dim;
    let segments = &step.batch.segments;
    let division = Division::new(layout, n_heads, segments.len(), pool.threads());
    let Scratch { threads, states } = scratch;
    threads.resize_with(pool.threads(), Mutex::default);
    states.resize(segments.iter().map(|segment| division.states_len(segment)).sum(), 0.0);

    let mut parts = Vec::new();
    let (mut rest, mut free) = (Columns::new(out.filled_mut(), q.width), &mut states[..]);
    for segment in segments {
        let (rows, after) = rest.split_rows_at(segment.rows.len());
        rest = after;
        let (states, after) = free.split_at_mut(division.states_len(segment));
        free = after;
        match states.is_empty() {
            true => division.rows_and_heads(segment, rows, &mut parts),
            false => division.spans_of_heads(segment, states, &mut parts),
        }
    }
    pool.for_each(parts.into_iter(), |thread, part: Part<'_>| {
        let Part { segment, row, kv_heads, out } = part;
        let mut scratch = threads[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let needed = scratch.len().max(attention_scratch_len(&layout));
        scratch.resize(needed, 0.0);
        kernels.attention(AttentionTask {
            cache: Cache { layout, blocks: kv.layer(layer), table: &segment.table },
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
    // By the calling thread: half a KB a span and query head. Not measured with many threads.
    let mut states = &mut states[..];
    for segment in segments.iter().filter(|segment| division.spans(segment) > 0) {
        let (these, after) = states.split_at_mut(division.states_len(segment));
        states = after;
        let of_heads = these.chunks_exact_mut(division.spans(segment) * division.span_len());
        let out = out.row_mut(segment.rows.start).chunks_exact_mut(division.group * layout.head_dim);
        of_heads.zip(out).for_each(|(states, out)| kernels.merge_spans(&layout, states, out));
    }
}
