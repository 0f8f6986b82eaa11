//! One tile of queries over all their positions: spans, steps, the running softmax.

use std::ops::Range;

use super::{Attended, AttentionTask, Cache, SPAN, STEP, span_count, span_state_len};
use crate::isa::{Isa, LANES};
use crate::kv::{BLOCK_TOKENS, BlockProbabilities, KvLanes, KvLayout, Values};
use crate::math::{exp, exp_one};

/// The score of a position that is not attended. Not minus infinity: infinity less infinity is NaN.
const MASKED: f32 = -1e30;

/// Which queries: numbered by row and then head of the group, the same numbers for each kv head.
pub(super) struct Tile {
    /// kv heads.
    pub(super) heads: Range<usize>,
    /// The first kv head of the task's output.
    pub(super) first_head: usize,
    /// Query heads a kv head.
    pub(super) group: usize,
    /// The first query.
    pub(super) first: usize,
}

impl Tile {
    /// Row and head of the group of query `n`.
    #[inline(always)]
    fn row_and_head(&self, n: usize) -> (usize, usize) {
        ((self.first + n) / self.group, (self.first + n) % self.group)
    }
}

/// f32 of scratch for one kv head and `n` queries: their words (never more than one for each padded dimension), then
/// maximum, sum and values of the total and of the current span.
pub(super) fn head_scratch_len(layout: &KvLayout, n: usize) -> usize {
    n * (3 * layout.value_dim() + 4)
}

/// One kv head's part of the scratch.
struct Head<'a, const N: usize> {
    /// `[query rows, N]`
    queries: &'a mut [[[u8; 4]; N]],
    total: State<'a, N>,
    span: State<'a, N>,
}

/// A running softmax and the values it has gathered.
struct State<'a, const N: usize> {
    softmax: &'a mut Softmax<N>,
    /// `[N, value_dim]`
    values: &'a mut [f32],
}

/// Running maximum and sum of `N` softmaxes.
type Softmax<const N: usize> = [[f32; N]; 2];

impl<'a, const N: usize> Head<'a, N> {
    #[inline(always)]
    fn new(scratch: &'a mut [f32], query_rows: usize, value_dim: usize) -> Head<'a, N> {
        let (words, states) = scratch.split_at_mut(value_dim * N);
        let (total, span) = states.split_at_mut(states.len() / 2);
        let queries = &mut bytemuck::cast_slice_mut::<f32, [u8; 4]>(words)[..query_rows * N];
        Head { queries: queries.as_chunks_mut().0, total: State::new(total), span: State::new(span) }
    }
}

impl<'a, const N: usize> State<'a, N> {
    #[inline(always)]
    fn new(scratch: &'a mut [f32]) -> State<'a, N> {
        let (softmax, values) = scratch.split_at_mut(2 * N);
        State { softmax: &mut softmax.as_chunks_mut().0.as_chunks_mut().0[0], values }
    }

    #[inline(always)]
    fn query(&mut self, n: usize, value_dim: usize) -> Running<'_> {
        let [max, sum] = &mut *self.softmax;
        Running { max: &mut max[n], sum: &mut sum[n], values: &mut self.values[n * value_dim..][..value_dim] }
    }

    #[inline(always)]
    fn reset(&mut self) {
        *self.softmax = [[MASKED; N], [0.0; N]];
        self.values.fill(0.0);
    }
}

/// Scores of a step's positions, then their probabilities.
type StepProbabilities<const N: usize> = [BlockProbabilities<N>; STEP / BLOCK_TOKENS];

/// One tile of `N` queries over all their positions, `W` vectors of positions, and of dimensions, at once. Returns `N`.
#[inline(always)]
pub(super) fn tile<I: Isa, K: KvLanes, const W: usize, const N: usize>(
    isa: I,
    task: &mut AttentionTask<'_>,
    tile: &Tile,
) -> usize {
    let layout = task.cache.layout;
    let (head_dim, value_dim) = (layout.head_dim, layout.value_dim());
    let head_len = head_scratch_len(&layout, N);
    let scratch = &mut task.scratch[..tile.heads.len() * head_len];
    for (head, scratch) in tile.heads.clone().zip(scratch.chunks_exact_mut(head_len)) {
        let words = Head::<N>::new(scratch, K::query_rows(head_dim), value_dim).queries.as_flattened_mut();
        for n in 0..N {
            let (row, in_group) = tile.row_and_head(n);
            let query =
                &task.q[row * task.q_stride + (head * tile.group + in_group) * head_dim..][..head_dim];
            K::code_query(isa, query, N, &mut words[n..]);
        }
    }
    let last_position: [usize; N] = std::array::from_fn(|n| task.start + tile.row_and_head(n).0);
    let end = last_position[N - 1] + 1;
    let spans = match &task.out {
        Attended::Rows(_) => 0..span_count(end),
        Attended::Span { index, .. } => *index..index + 1,
    };
    for index in spans {
        let from = index * SPAN;
        let span = Span {
            cache: task.cache,
            positions: from..end.min(from + SPAN),
            scale: task.scale,
            last_position,
        };
        span.run::<I, K, W>(isa, tile.heads.clone(), scratch);
        for scratch in scratch.chunks_exact_mut(head_len) {
            let Head { mut total, mut span, .. } = Head::<N>::new(scratch, 0, value_dim);
            match &mut task.out {
                Attended::Span { state, .. } => {
                    let states = state.chunks_exact_mut(span_state_len(&layout)).skip(tile.first);
                    for (n, state) in (0..N).zip(states) {
                        Running::new(state).set(span.query(n, value_dim));
                    }
                }
                Attended::Rows(_) if index == 0 => {
                    *total.softmax = *span.softmax;
                    total.values.copy_from_slice(span.values);
                }
                Attended::Rows(_) => {
                    for n in (0..N).filter(|&n| last_position[n] >= from) {
                        merge(isa, total.query(n, value_dim), span.query(n, value_dim));
                    }
                }
            }
        }
    }
    let Attended::Rows(out) = &mut task.out else { return N };
    for (head, scratch) in tile.heads.clone().zip(scratch.chunks_exact_mut(head_len)) {
        let Head { mut total, .. } = Head::<N>::new(scratch, 0, value_dim);
        for n in 0..N {
            let (row, in_group) = tile.row_and_head(n);
            let column = (head - tile.first_head) * tile.group + in_group;
            total.query(n, value_dim).finish(&mut out.row_mut(row)[column * head_dim..][..head_dim]);
        }
    }
    N
}

/// One query's running softmax and what it has gathered.
struct Running<'a> {
    max: &'a mut f32,
    sum: &'a mut f32,
    values: &'a mut [f32],
}

impl<'a> Running<'a> {
    /// In a state as tasks leave it for [`merge_spans`]: maximum, sum, values.
    #[inline(always)]
    fn new(state: &'a mut [f32]) -> Running<'a> {
        let (softmax, values) = state.split_at_mut(2);
        let (max, sum) = softmax.split_at_mut(1);
        Running { max: &mut max[0], sum: &mut sum[0], values }
    }

    #[inline(always)]
    fn set(self, other: Running<'_>) {
        (*self.max, *self.sum) = (*other.max, *other.sum);
        self.values.copy_from_slice(other.values);
    }

    /// The attended values.
    #[inline(always)]
    fn finish(self, out: &mut [f32]) {
        for (out, a) in out.iter_mut().zip(&*self.values) {
            *out = a / *self.sum + 0.0;
        }
    }
}

/// Adds a span to a query's total, both scaled to the larger maximum.
#[inline(always)]
fn merge<I: Isa>(isa: I, total: Running<'_>, span: Running<'_>) {
    let max = if *span.max > *total.max { *span.max } else { *total.max };
    let (of_total, of_span) = (exp_one(*total.max - max), exp_one(*span.max - max));
    *total.max = max;
    *total.sum = span.sum.mul_add(of_span, *total.sum * of_total);
    let (of_total, of_span) = (isa.splat(of_total), isa.splat(of_span));
    let values = total.values.as_chunks_mut::<LANES>().0.iter_mut();
    for (a, b) in values.zip(span.values.as_chunks::<LANES>().0) {
        let scaled = isa.mul(isa.load(a), of_total);
        isa.store(a, isa.fma(isa.load(b), of_span, scaled));
    }
}

/// Merges the spans of one query row and kv head, ascending, and gives the attended values: `states` is
/// `[spans, queries, span_state_len]` and changed, `out` `[queries, head_dim]`.
pub(crate) fn merge_spans<I: Isa>(isa: I, layout: &KvLayout, states: &mut [f32], out: &mut [f32]) {
    let (state_len, queries) = (span_state_len(layout), out.len() / layout.head_dim);
    let span_len = state_len * queries;
    assert!(span_len > 0 && states.len().is_multiple_of(span_len), "states of another shape");
    isa.vectorize(
        #[inline(always)]
        || {
            let (totals, spans) = states.split_at_mut(span_len);
            for span in spans.chunks_exact_mut(span_len) {
                let of_queries = totals.chunks_exact_mut(state_len).zip(span.chunks_exact_mut(state_len));
                for (total, span) in of_queries {
                    merge(isa, Running::new(total), Running::new(span));
                }
            }
            for (total, out) in totals.chunks_exact_mut(state_len).zip(out.chunks_exact_mut(layout.head_dim))
            {
                Running::new(total).finish(out);
            }
        },
    );
}

/// Up to 1,024 positions and the queries that look at them.
struct Span<'a, const N: usize> {
    cache: Cache<'a>,
    positions: Range<usize>,
    scale: f32,
    /// The last position that each query attends.
    last_position: [usize; N],
}

impl<const N: usize> Span<'_, N> {
    /// Softmax and values of the span, for each head into its part of the scratch.
    #[inline(always)]
    fn run<I: Isa, K: KvLanes, const W: usize>(&self, isa: I, heads: Range<usize>, scratch: &mut [f32]) {
        let layout = &self.cache.layout;
        let (query_rows, value_dim) = (K::query_rows(layout.head_dim), layout.value_dim());
        let head_len = head_scratch_len(layout, N);
        for scratch in scratch.chunks_exact_mut(head_len) {
            Head::<N>::new(scratch, 0, value_dim).span.reset();
        }
        for step in self.positions.clone().step_by(STEP) {
            let step = step..self.positions.end.min(step + STEP);
            for (head, scratch) in heads.clone().zip(scratch.chunks_exact_mut(head_len)) {
                let Head { queries, span, .. } = Head::<N>::new(scratch, query_rows, value_dim);
                self.step::<I, K, W>(isa, head, step.clone(), queries, span);
            }
        }
    }

    /// One step of one head.
    #[inline(always)]
    fn step<I: Isa, K: KvLanes, const W: usize>(
        &self,
        isa: I,
        head: usize,
        positions: Range<usize>,
        queries: &[[[u8; 4]; N]],
        state: State<'_, N>,
    ) {
        let mut p: StepProbabilities<N> = [[[0.0; BLOCK_TOKENS]; N]; STEP / BLOCK_TOKENS];
        let scale = isa.splat(self.scale);
        for (block, position) in positions.clone().step_by(BLOCK_TOKENS).enumerate() {
            let (keys, _) = self.cache.at(position, head);
            for half in (0..BLOCK_TOKENS / LANES).step_by(W) {
                let scores = K::scores::<I, W, N>(isa, keys, half, queries);
                for (w, scores) in scores.iter().enumerate() {
                    for n in 0..N {
                        let lanes = &mut p[block][n].as_chunks_mut().0[half + w];
                        isa.store(lanes, isa.mul(scores[n], scale));
                    }
                }
            }
        }
        for n in 0..N {
            let attended = (self.last_position[n] + 1).saturating_sub(positions.start).min(STEP);
            for position in attended..STEP {
                p[position / BLOCK_TOKENS][n][position % BLOCK_TOKENS] = MASKED;
            }
        }
        let decay = probabilities(isa, &mut p, state.softmax);
        self.add_values::<I, K, W>(isa, head, positions, &p, &decay, state.values);
    }

    /// `values = values * decay + p V` over the positions of a step.
    #[inline(always)]
    fn add_values<I: Isa, K: KvLanes, const W: usize>(
        &self,
        isa: I,
        head: usize,
        positions: Range<usize>,
        p: &StepProbabilities<N>,
        decay: &[f32; N],
        values: &mut [f32],
    ) {
        let parts = self.cache.layout.value_dim() / LANES;
        let values = values.as_chunks_mut::<LANES>().0;
        for part in (0..parts).step_by(W) {
            let mut sums = [[isa.splat(0.0); N]; W];
            for n in 0..N {
                for w in 0..W {
                    sums[w][n] = isa.mul(isa.load(&values[n * parts + part + w]), isa.splat(decay[n]));
                }
            }
            for (block, position) in positions.clone().step_by(BLOCK_TOKENS).enumerate() {
                let (_, bytes) = self.cache.at(position, head);
                let pairs = (positions.end - position).min(BLOCK_TOKENS).div_ceil(2);
                K::add_values::<I, W, N>(isa, Values { bytes, parts, pairs }, part, &p[block], &mut sums);
            }
            for n in 0..N {
                for w in 0..W {
                    isa.store(&mut values[n * parts + part + w], sums[w][n]);
                }
            }
        }
    }
}

/// Turns the scores of a step into exp(score - maximum), moves maxima and sums on, and returns the factors of what was
/// gathered before. A function of its own: unrolled into every kind of store it would take long to compile. What one query
/// waits for (the foldings of its lanes, the exponential of its factor) goes on beside that of the others.
#[inline(never)]
fn probabilities<I: Isa, const N: usize>(
    isa: I,
    scores: &mut StepProbabilities<N>,
    [max, sum]: &mut Softmax<N>,
) -> [f32; N] {
    isa.vectorize(
        #[inline(always)]
        || {
            let mut fallen = [0.0; LANES];
            for n in 0..N {
                let mut largest = isa.splat(MASKED);
                for block in scores.iter() {
                    for lanes in block[n].as_chunks().0 {
                        largest = isa.max(isa.load(lanes), largest);
                    }
                }
                let largest = isa.reduce_max(largest);
                let new_max = if largest > max[n] { largest } else { max[n] };
                fallen[n] = max[n] - new_max;
                max[n] = new_max;
            }
            let mut decay = [0.0; LANES];
            isa.store(&mut decay, exp(isa, isa.load(&fallen)));
            for n in 0..N {
                let mut added = isa.splat(0.0);
                for block in scores.iter_mut() {
                    for lanes in block[n].as_chunks_mut().0 {
                        let p = exp(isa, isa.sub(isa.load(lanes), isa.splat(max[n])));
                        added = isa.add(added, p);
                        isa.store(lanes, p);
                    }
                }
                sum[n] = sum[n].mul_add(decay[n], isa.reduce_add(added));
            }
            std::array::from_fn(
                #[inline(always)]
                |n| decay[n],
            )
        },
    )
}
