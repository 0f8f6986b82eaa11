//! Paged grouped-query attention, the plain class: queries and probabilities in f32, keys and values widened to f32.
//!
//! ```text
//! for each kv head, for each tile of N (query row, head of the group) pairs, which share the read of K and V:
//!     for each span of 1,024 absolute positions:         own maximum m, sum l, accumulator a
//!         for each step of 128 absolute positions:
//!             s = scale * q . k                           lanes are positions; masked: -1e30
//!             m' = max(m, max s);  p = exp(s - m');  a = a * exp(m - m') + p V;  l = l * exp(m - m') + sum p
//!         merge the span into the total, ascending
//!     out = a / l
//! ```
//!
//! Steps and spans stand at absolute positions, so neither chunking nor the number of rows computed together moves a
//! sum, and spans can later go to threads. A masked position adds exactly nothing: its p is zero. (It may flip the sign
//! of a zero; the last line adds +0, which makes all zeros alike.)

use std::ops::Range;

use crate::columns::Columns;
use crate::isa::{Isa, LANES};
use crate::kv::{BLOCK_TOKENS, Bf16Lanes, F32Lanes, KvLanes, KvLayout, KvScheme};
use crate::math::{exp, exp_one};

/// Positions of one softmax step.
const STEP: usize = 128;
/// Positions of a span with a maximum and sum of its own.
const SPAN: usize = 1024;
/// The score of a position that is not attended. Not minus infinity: infinity less infinity is NaN.
const MASKED: f32 = -1e30;
/// Queries of the largest tile.
const MAX_QUERIES: usize = 8;

/// Attention of some query rows of one sequence over one layer's cache, for a range of kv heads.
pub struct AttentionTask<'a> {
    /// Shape of the cache.
    pub layout: KvLayout,
    /// The layer's store: block `b` at `b * layout.block_bytes()`.
    pub blocks: &'a [u8],
    /// The sequence's blocks; entry `i` holds positions `32 i ..`. It covers all attended positions.
    pub table: &'a [u32],
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
    /// `[query rows, kv_heads.len() * n_heads / n_kv_heads * head_dim]`.
    pub out: Columns<'a>,
    /// Room for [`attention_scratch_len`] values; what it holds before and after means nothing.
    pub scratch: &'a mut [f32],
}

/// Values of scratch that one task needs.
pub fn attention_scratch_len(layout: &KvLayout) -> usize {
    MAX_QUERIES * (layout.head_dim + 2 * layout.value_dim())
}

/// Computes the task.
pub(crate) fn attention<I: Isa>(isa: I, task: AttentionTask<'_>) {
    let layout = task.layout;
    let group = task.n_heads / layout.n_kv_heads.max(1);
    assert_eq!(group * layout.n_kv_heads, task.n_heads, "query heads are no multiple of kv heads");
    assert!(task.kv_heads.end <= layout.n_kv_heads, "kv heads outside the layout");
    assert_eq!(task.out.width(), task.kv_heads.len() * group * layout.head_dim, "an output of another width");
    assert!(task.scratch.len() >= attention_scratch_len(&layout), "scratch too small");
    assert!(task.table.len() * BLOCK_TOKENS >= task.start + task.out.rows(), "table too short");
    isa.vectorize(
        #[inline(always)]
        || match layout.scheme {
            KvScheme::F32 => heads::<I, F32Lanes>(isa, task, group),
            KvScheme::Bf16 => heads::<I, Bf16Lanes>(isa, task, group),
        },
    );
}

#[inline(always)]
fn heads<I: Isa, K: KvLanes>(isa: I, task: AttentionTask<'_>, group: usize) {
    let AttentionTask { layout, start, q, q_stride, scale, mut out, scratch, .. } = task;
    let first_head = task.kv_heads.start;
    for kv_head in task.kv_heads {
        let cache = Cache { layout, blocks: task.blocks, table: task.table, kv_head };
        let mut queries = Queries {
            start,
            q,
            q_stride,
            scale,
            group,
            head: kv_head * group,
            column: (kv_head - first_head) * group,
            first: 0,
        };
        let count = out.rows() * group;
        while queries.first < count {
            queries.first += match count - queries.first {
                8.. if I::DENSE_TOKENS >= 8 => tile::<I, K, 8>(isa, &cache, &queries, &mut out, scratch),
                4.. => tile::<I, K, 4>(isa, &cache, &queries, &mut out, scratch),
                2.. => tile::<I, K, 2>(isa, &cache, &queries, &mut out, scratch),
                _ => tile::<I, K, 1>(isa, &cache, &queries, &mut out, scratch),
            };
        }
    }
}

/// The keys and values of one head of one sequence.
struct Cache<'a> {
    layout: KvLayout,
    blocks: &'a [u8],
    table: &'a [u32],
    kv_head: usize,
}

impl Cache<'_> {
    /// Keys and values of the block that begins at a position.
    #[inline(always)]
    fn at(&self, position: usize) -> (&[u8], &[u8]) {
        let block = self.table[position / BLOCK_TOKENS] as usize;
        let bytes = self.layout.block_bytes();
        self.layout.head(&self.blocks[block * bytes..][..bytes], self.kv_head)
    }
}

/// The queries of one kv head, numbered by row and then head of the group; `first` is the first of a tile.
struct Queries<'a> {
    start: usize,
    q: &'a [f32],
    q_stride: usize,
    scale: f32,
    group: usize,
    /// Index of the group's first query head among all, and in the output.
    head: usize,
    column: usize,
    first: usize,
}

impl Queries<'_> {
    /// The last position that query `n` of the tile attends.
    #[inline(always)]
    fn last_position(&self, n: usize) -> usize {
        self.start + (self.first + n) / self.group
    }

    #[inline(always)]
    fn row_and_head(&self, n: usize) -> (usize, usize) {
        ((self.first + n) / self.group, (self.first + n) % self.group)
    }
}

/// Running maximum and sum of `N` softmaxes.
#[derive(Clone, Copy)]
struct Softmax<const N: usize> {
    max: [f32; N],
    sum: [f32; N],
}

/// One tile of `N` queries over all their positions. Returns `N`.
#[inline(always)]
fn tile<I: Isa, K: KvLanes, const N: usize>(
    isa: I,
    cache: &Cache<'_>,
    queries: &Queries<'_>,
    out: &mut Columns<'_>,
    scratch: &mut [f32],
) -> usize {
    let (head_dim, value_dim) = (cache.layout.head_dim, cache.layout.value_dim());
    let (q, scratch) = scratch.split_at_mut(N * head_dim);
    let (total, scratch) = scratch.split_at_mut(N * value_dim);
    let span = &mut scratch[..N * value_dim];
    for n in 0..N {
        let (row, head) = queries.row_and_head(n);
        let values = &queries.q[row * queries.q_stride + (queries.head + head) * head_dim..][..head_dim];
        for (d, value) in values.iter().enumerate() {
            q[d * N + n] = *value;
        }
    }
    let q: &[[f32; N]] = q.as_chunks().0;
    let end = queries.last_position(N - 1) + 1;
    let mut softmax = Softmax { max: [MASKED; N], sum: [0.0; N] };
    for from in (0..end).step_by(SPAN) {
        let part = one_span::<I, K, N>(isa, cache, queries, q, from..end.min(from + SPAN), span);
        if from == 0 {
            softmax = part;
            total.copy_from_slice(span);
            continue;
        }
        for n in (0..N).filter(|&n| queries.last_position(n) >= from) {
            let rows = n * value_dim..(n + 1) * value_dim;
            merge(isa, &mut softmax, &mut total[rows.clone()], &part, &span[rows], n);
        }
    }
    for n in 0..N {
        let (row, head) = queries.row_and_head(n);
        let out = &mut out.row_mut(row)[(queries.column + head) * head_dim..][..head_dim];
        for (out, a) in out.iter_mut().zip(&total[n * value_dim..]) {
            *out = a / softmax.sum[n] + 0.0;
        }
    }
    N
}

/// Adds a span's sum and accumulator to the total's, both scaled to the larger maximum.
#[inline(always)]
fn merge<I: Isa, const N: usize>(
    isa: I,
    total: &mut Softmax<N>,
    total_values: &mut [f32],
    span: &Softmax<N>,
    span_values: &[f32],
    n: usize,
) {
    let max = if span.max[n] > total.max[n] { span.max[n] } else { total.max[n] };
    let (of_total, of_span) = (exp_one(total.max[n] - max), exp_one(span.max[n] - max));
    total.max[n] = max;
    total.sum[n] = span.sum[n].mul_add(of_span, total.sum[n] * of_total);
    let (of_total, of_span) = (isa.splat(of_total), isa.splat(of_span));
    for (a, b) in total_values.as_chunks_mut::<LANES>().0.iter_mut().zip(span_values.as_chunks::<LANES>().0) {
        let scaled = isa.mul(isa.load(a), of_total);
        isa.store(a, isa.fma(isa.load(b), of_span, scaled));
    }
}

/// The softmax and accumulators (`values`, `[N, value_dim]`) of one span.
#[inline(always)]
fn one_span<I: Isa, K: KvLanes, const N: usize>(
    isa: I,
    cache: &Cache<'_>,
    queries: &Queries<'_>,
    q: &[[f32; N]],
    positions: Range<usize>,
    values: &mut [f32],
) -> Softmax<N> {
    let mut softmax = Softmax { max: [MASKED; N], sum: [0.0; N] };
    values.fill(0.0);
    let mut scores = [[0.0f32; STEP]; N];
    for step in positions.clone().step_by(STEP) {
        let step = step..positions.end.min(step + STEP);
        let steps_scores = Step { cache, positions: step.clone() };
        steps_scores.scores::<I, K, N>(isa, q, queries.scale, &mut scores);
        let mut decay = [1.0; N];
        for n in 0..N {
            let attended = (queries.last_position(n) + 1).saturating_sub(step.start).min(STEP);
            scores[n][attended..].fill(MASKED);
            decay[n] = probabilities(isa, &mut scores[n], &mut softmax.max[n], &mut softmax.sum[n]);
        }
        steps_scores.add_values::<I, K, N>(isa, &scores, &decay, values);
    }
    softmax
}

/// Turns one query's scores of a step into exp(score - maximum), moves maximum and sum on, and returns the factor of
/// what was accumulated before.
#[inline(always)]
fn probabilities<I: Isa>(isa: I, scores: &mut [f32; STEP], max: &mut f32, sum: &mut f32) -> f32 {
    let scores = scores.as_chunks_mut::<LANES>().0;
    let mut largest = isa.splat(MASKED);
    for lanes in scores.iter() {
        largest = isa.max(isa.load(lanes), largest);
    }
    let largest = isa.reduce_max(largest);
    let new_max = if largest > *max { largest } else { *max };
    let decay = exp_one(*max - new_max);
    let mut added = isa.splat(0.0);
    for lanes in scores.iter_mut() {
        let p = exp(isa, isa.sub(isa.load(lanes), isa.splat(new_max)));
        added = isa.add(added, p);
        isa.store(lanes, p);
    }
    *sum = sum.mul_add(decay, isa.reduce_add(added));
    *max = new_max;
    decay
}

/// Up to 128 positions of one head.
struct Step<'a> {
    cache: &'a Cache<'a>,
    positions: Range<usize>,
}

impl Step<'_> {
    /// `scale * q . k` for all positions of the step; later positions of its last 16 hold anything.
    #[inline(always)]
    fn scores<I: Isa, K: KvLanes, const N: usize>(
        &self,
        isa: I,
        q: &[[f32; N]],
        scale: f32,
        scores: &mut [[f32; STEP]; N],
    ) {
        for position in self.positions.clone().step_by(LANES) {
            let (keys, _) = self.cache.at(position);
            let half = position % BLOCK_TOKENS / LANES;
            let mut dots = [isa.splat(0.0); N];
            for (pair, q) in q.as_chunks::<2>().0.iter().enumerate() {
                let (even, odd) = K::key_pair(isa, keys, pair, half);
                for n in 0..N {
                    dots[n] = isa.fma(odd, isa.splat(q[1][n]), dots[n]);
                }
                for n in 0..N {
                    dots[n] = isa.fma(even, isa.splat(q[0][n]), dots[n]);
                }
            }
            let lanes = (position - self.positions.start) / LANES;
            for n in 0..N {
                let scaled = isa.mul(dots[n], isa.splat(scale));
                isa.store(&mut scores[n].as_chunks_mut().0[lanes], scaled);
            }
        }
    }

    /// `values = values * decay + p V` over the positions of the step, ascending by pairs, the odd one first.
    #[inline(always)]
    fn add_values<I: Isa, K: KvLanes, const N: usize>(
        &self,
        isa: I,
        p: &[[f32; STEP]; N],
        decay: &[f32; N],
        values: &mut [f32],
    ) {
        let value_dim = self.cache.layout.value_dim();
        let parts = value_dim / LANES;
        for part in 0..parts {
            let mut sums = [isa.splat(0.0); N];
            for n in 0..N {
                let lanes = &values.as_chunks::<LANES>().0[n * parts + part];
                sums[n] = isa.mul(isa.load(lanes), isa.splat(decay[n]));
            }
            for block in self.positions.clone().step_by(BLOCK_TOKENS) {
                let (_, stored) = self.cache.at(block);
                let first = block - self.positions.start;
                let pairs = (self.positions.end - block).min(BLOCK_TOKENS).div_ceil(2);
                for pair in 0..pairs {
                    let (even, odd) = K::value_pair(isa, stored, parts, pair, part);
                    let at = first + 2 * pair;
                    for n in 0..N {
                        sums[n] = isa.fma(odd, isa.splat(p[n][at + 1]), sums[n]);
                    }
                    for n in 0..N {
                        sums[n] = isa.fma(even, isa.splat(p[n][at]), sums[n]);
                    }
                }
            }
            for n in 0..N {
                isa.store(&mut values.as_chunks_mut::<LANES>().0[n * parts + part], sums[n]);
            }
        }
    }
}
