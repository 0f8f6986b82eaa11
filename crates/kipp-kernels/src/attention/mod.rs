//! Paged grouped-query attention.
//!
//! ```text
//! for each tile of N (query row, head of the group) pairs, which share the read of K and V:
//!     for each span of 1,024 absolute positions:         own maximum m, sum l, accumulator a
//!         for each step of 128 absolute positions, for each kv head:
//!             s = scale * q . k                           lanes are positions; masked: -1e30
//!             m' = max(m, max s);  p = exp(s - m');  a = a * exp(m - m') + p V;  l = l * exp(m - m') + sum p
//!         merge the span into the total, ascending
//!     out = a / l
//! ```
//!
//! Steps and spans stand at absolute positions, so neither chunking nor the number of rows computed together moves a
//! sum, and spans may go to threads, which leave them to be merged afterwards. A masked position adds exactly nothing:
//! its p is zero. (It may flip the sign of a zero; the last line adds +0, which makes all zeros alike.)
//!
//! Few rows are bound by the reading of K and V, so heads lie inside the steps: then one ascending stretch of a block is
//! read, all heads of it. Many rows are bound by arithmetic: heads lie outside, and one head's K and V stay in the cache.

mod span;

pub(crate) use span::merge_spans;

use std::ops::Range;

use crate::columns::Columns;
use crate::isa::Isa;
use crate::kv::{BLOCK_TOKENS, Bf16Lanes, F32Lanes, KvLanes, KvLayout, KvScheme, Q8Lanes};
use span::Tile;

/// Positions of one softmax step.
const STEP: usize = 128;
/// Positions of a span with a maximum and sum of its own.
pub const SPAN: usize = 1024;
/// Queries of the largest tile.
const MAX_QUERIES: usize = 12;

/// Attention of some query rows of one sequence over one layer's cache, for a range of kv heads.
pub struct AttentionTask<'a> {
    /// What is read.
    pub cache: Cache<'a>,
    /// Absolute position of the first query row; row `i` attends positions `0..=start + i`.
    pub start: usize,
    /// Query rows, `[n_heads * head_dim]` each, `q_stride` apart.
    pub q: &'a [f32],
    /// Values from one query row to the next.
    pub q_stride: usize,
    /// Query heads, a multiple of `layout.n_kv_heads`.
    pub n_heads: usize,
    /// The kv heads to compute.
    pub kv_heads: Range<usize>,
    /// Factor of the scores: 1 / sqrt(head_dim).
    pub scale: f32,
    /// What is computed, and where it goes.
    pub out: Attended<'a>,
    /// Room for [`attention_scratch_len`] values; what it holds before and after means nothing.
    pub scratch: &'a mut [f32],
}

/// What a task computes.
pub enum Attended<'a> {
    /// The values of all query rows: `[query rows, kv_heads.len() * n_heads / n_kv_heads * head_dim]`.
    Rows(Columns<'a>),
    /// Of one query row and one kv head the state of one span, for `Kernels::merge_spans`:
    /// `[n_heads / n_kv_heads, span_state_len]`. So more threads than kv heads can share one row.
    Span {
        /// Which one: positions from `index * SPAN` on.
        index: usize,
        /// Its state.
        state: &'a mut [f32],
    },
}

/// Spans that so many positions lie in.
pub fn span_count(positions: usize) -> usize {
    positions.div_ceil(SPAN)
}

/// Values of the state of one span and query head: maximum, sum and values of its softmax.
pub fn span_state_len(layout: &KvLayout) -> usize {
    2 + layout.value_dim()
}

/// One layer's keys and values of one sequence.
#[derive(Clone, Copy)]
pub struct Cache<'a> {
    /// Shape of the cache.
    pub layout: KvLayout,
    /// The layer's store: block `b` at `b * layout.block_bytes()`.
    pub blocks: &'a [u8],
    /// The sequence's blocks; entry `i` holds positions `32 i ..`. It covers all attended positions.
    pub table: &'a [u32],
}

impl<'a> Cache<'a> {
    /// Keys and values of a head of the block that begins at a position.
    #[inline(always)]
    fn at(&self, position: usize, head: usize) -> (&'a [u8], &'a [u8]) {
        let block = self.table[position / BLOCK_TOKENS] as usize;
        let bytes = self.layout.block_bytes();
        self.layout.head(&self.blocks[block * bytes..][..bytes], head)
    }
}

/// Values of scratch that one task needs.
pub fn attention_scratch_len(layout: &KvLayout) -> usize {
    layout.n_kv_heads * span::head_scratch_len(layout, MAX_QUERIES)
}

impl AttentionTask<'_> {
    /// Query rows.
    #[inline(always)]
    fn rows(&self) -> usize {
        match &self.out {
            Attended::Rows(out) => out.rows(),
            Attended::Span { .. } => 1,
        }
    }
}

/// Computes the task.
pub(crate) fn attention<I: Isa>(isa: I, task: AttentionTask<'_>) {
    let layout = task.cache.layout;
    let group = task.n_heads / layout.n_kv_heads.max(1);
    assert_eq!(group * layout.n_kv_heads, task.n_heads, "query heads are no multiple of kv heads");
    assert!(task.kv_heads.end <= layout.n_kv_heads, "kv heads outside the layout");
    match &task.out {
        Attended::Rows(out) => {
            let width = task.kv_heads.len() * group * layout.head_dim;
            assert_eq!(out.width(), width, "an output of another width");
        }
        Attended::Span { index, state } => {
            assert_eq!(task.kv_heads.len(), 1, "a span of more than one kv head");
            assert_eq!(state.len(), group * span_state_len(&layout), "a state of another shape");
            assert!(*index < span_count(task.start + 1), "a span that is not attended");
        }
    }
    assert!(task.scratch.len() >= attention_scratch_len(&layout), "scratch too small");
    assert!(task.cache.table.len() * BLOCK_TOKENS >= task.start + task.rows(), "table too short");
    match layout.scheme {
        KvScheme::F32 => heads::<_, F32Lanes>(isa.of_floats(), task, group),
        KvScheme::Bf16 => heads::<_, Bf16Lanes>(isa.of_floats(), task, group),
        KvScheme::Q8_0 => heads::<_, Q8Lanes>(isa.of_codes(), task, group),
    }
}

fn heads<I: Isa, K: KvLanes>(isa: I, task: AttentionTask<'_>, group: usize) {
    isa.vectorize(
        #[inline(always)]
        || tiles::<I, K>(isa, task, group),
    );
}

#[inline(always)]
fn tiles<I: Isa, K: KvLanes>(isa: I, mut task: AttentionTask<'_>, group: usize) {
    let count = task.rows() * group;
    let (first_head, all) = (task.kv_heads.start, task.kv_heads.clone());
    let heads_at_once = if count <= MAX_QUERIES { all.len().max(1) } else { 1 };
    for head in all.clone().step_by(heads_at_once) {
        let heads = head..all.end.min(head + heads_at_once);
        let mut first = 0;
        while first < count {
            let tile = Tile { heads: heads.clone(), first_head, group, first };
            first += match count - first {
                12.. if I::DENSE_TOKENS >= 24 => span::tile::<I, K, 2, 12>(isa, &mut task, &tile),
                4.. if I::DENSE_TOKENS >= 24 => span::tile::<I, K, 2, 4>(isa, &mut task, &tile),
                4.. => span::tile::<I, K, 1, 4>(isa, &mut task, &tile),
                2.. => span::tile::<I, K, 2, 2>(isa, &mut task, &tile),
                _ => span::tile::<I, K, 2, 1>(isa, &mut task, &tile),
            };
        }
    }
}
