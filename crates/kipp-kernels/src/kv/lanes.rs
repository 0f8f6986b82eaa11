//! How lanes meet stored keys and values: one implementation a scheme and arithmetic.
//!
//! - plain: queries and probabilities in f32, keys and values widened to f32 (f32 and bf16 stores);
//! - codes: queries coded as s8, so that scores are exact integers a group; a value's scale goes into its probability
//!   (q8_0 stores).

use super::BLOCK_TOKENS;
use crate::activations::{CodedGroup, GROUP_COLS, GROUP_ROWS, code_s8};
use crate::isa::{Isa, LANES};
use crate::tile::{add_scaled, byte_dots, splat};

/// What attention asks of a stored scheme. `N` queries are written as rows of `N` words.
pub(crate) trait KvLanes: 'static {
    /// Rows of words that a query takes.
    fn query_rows(head_dim: usize) -> usize;

    /// Writes one query, `[head_dim]`, its words `stride` apart.
    fn code_query<I: Isa>(isa: I, query: &[f32], stride: usize, words: &mut [[u8; 4]]);

    /// `q . k` for `H` times 16 positions of a block's keys, from position `16 * half` on.
    fn scores<I: Isa, const H: usize, const N: usize>(
        isa: I,
        keys: &[u8],
        half: usize,
        queries: &[[[u8; 4]; N]],
    ) -> [[I::F32; N]; H];

    /// Adds `p V` to the sums of `P` times 16 dimensions, from dimension `16 * part` (`part` even) on: the positions of a
    /// block ascending by pairs, the odd one first. `p` are the block's probabilities.
    fn add_values<I: Isa, const P: usize, const N: usize>(
        isa: I,
        values: Values<'_>,
        part: usize,
        p: &BlockProbabilities<N>,
        sums: &mut [[I::F32; N]; P],
    );
}

/// Probabilities of a block's positions, for `N` queries.
pub(crate) type BlockProbabilities<const N: usize> = [[f32; BLOCK_TOKENS]; N];

/// A block's values of one head.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    pub(crate) bytes: &'a [u8],
    /// Padded dimensions over 16.
    pub(crate) parts: usize,
    /// Pairs of positions to add.
    pub(crate) pairs: usize,
}

/// Reads two neighbouring numbers of sixteen lanes; what the plain arithmetic needs of a store.
trait Widened: 'static {
    /// Dimensions `2 * pair` and `2 * pair + 1` of the keys at positions `16 * half ..`.
    fn key_pair<I: Isa>(isa: I, keys: &[u8], pair: usize, half: usize) -> (I::F32, I::F32);

    /// Dimensions `16 * part ..` of the values at positions `2 * pair` and `2 * pair + 1`.
    fn value_pair<I: Isa>(isa: I, values: Values<'_>, pair: usize, part: usize) -> (I::F32, I::F32);
}

/// f32 stores, plain.
pub(crate) struct F32Lanes;

/// bf16 stores, plain.
pub(crate) struct Bf16Lanes;

/// q8_0 stores, codes.
pub(crate) struct Q8Lanes;

impl Widened for F32Lanes {
    #[inline(always)]
    fn key_pair<I: Isa>(isa: I, keys: &[u8], pair: usize, half: usize) -> (I::F32, I::F32) {
        let lines = keys.as_chunks::<64>().0;
        (isa.load_le(&lines[4 * pair + half]), isa.load_le(&lines[4 * pair + 2 + half]))
    }

    #[inline(always)]
    fn value_pair<I: Isa>(isa: I, values: Values<'_>, pair: usize, part: usize) -> (I::F32, I::F32) {
        let lines = values.bytes.as_chunks::<64>().0;
        let at = 2 * pair * values.parts + part;
        (isa.load_le(&lines[at]), isa.load_le(&lines[at + values.parts]))
    }
}

impl Widened for Bf16Lanes {
    #[inline(always)]
    fn key_pair<I: Isa>(isa: I, keys: &[u8], pair: usize, half: usize) -> (I::F32, I::F32) {
        isa.bf16_pair(isa.load_words(&keys.as_chunks::<64>().0[2 * pair + half]))
    }

    #[inline(always)]
    fn value_pair<I: Isa>(isa: I, values: Values<'_>, pair: usize, part: usize) -> (I::F32, I::F32) {
        isa.bf16_pair(isa.load_words(&values.bytes.as_chunks::<64>().0[pair * values.parts + part]))
    }
}

impl<W: Widened> KvLanes for W {
    fn query_rows(head_dim: usize) -> usize {
        head_dim.next_multiple_of(2)
    }

    #[inline(always)]
    fn code_query<I: Isa>(_: I, query: &[f32], stride: usize, words: &mut [[u8; 4]]) {
        for (words, q) in words.chunks_mut(stride).zip(query) {
            words[0] = q.to_le_bytes();
        }
        if query.len() % 2 == 1 {
            words[query.len() * stride] = [0; 4];
        }
    }

    #[inline(always)]
    fn scores<I: Isa, const H: usize, const N: usize>(
        isa: I,
        keys: &[u8],
        half: usize,
        queries: &[[[u8; 4]; N]],
    ) -> [[I::F32; N]; H] {
        let mut sums = [[isa.splat(0.0); N]; H];
        for (pair, q) in queries.as_chunks::<2>().0.iter().enumerate() {
            let mut keys_of = [(isa.splat(0.0), isa.splat(0.0)); H];
            for h in 0..H {
                keys_of[h] = W::key_pair(isa, keys, pair, half + h);
            }
            for n in 0..N {
                let q = splat(isa, q[1][n]);
                for h in 0..H {
                    sums[h][n] = isa.fma(keys_of[h].1, q, sums[h][n]);
                }
            }
            for n in 0..N {
                let q = splat(isa, q[0][n]);
                for h in 0..H {
                    sums[h][n] = isa.fma(keys_of[h].0, q, sums[h][n]);
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn add_values<I: Isa, const P: usize, const N: usize>(
        isa: I,
        values: Values<'_>,
        part: usize,
        p: &BlockProbabilities<N>,
        sums: &mut [[I::F32; N]; P],
    ) {
        for pair in 0..values.pairs.min(BLOCK_TOKENS / 2) {
            let mut values_of = [(isa.splat(0.0), isa.splat(0.0)); P];
            for i in 0..P {
                values_of[i] = W::value_pair(isa, values, pair, part + i);
            }
            for n in 0..N {
                let p = isa.splat(p[n][2 * pair + 1]);
                for i in 0..P {
                    sums[i][n] = isa.fma(values_of[i].1, p, sums[i][n]);
                }
            }
            for n in 0..N {
                let p = isa.splat(p[n][2 * pair]);
                for i in 0..P {
                    sums[i][n] = isa.fma(values_of[i].0, p, sums[i][n]);
                }
            }
        }
    }
}

/// Parts of 16 dimensions that share a scale.
const PARTS: usize = 2;

/// Adds one position's codes of a group, times their scaled probabilities.
#[inline(always)]
fn add_position<I: Isa, const N: usize>(
    isa: I,
    codes: &[[u8; LANES]],
    p: &BlockProbabilities<N>,
    position: usize,
    sums: &mut [[I::F32; N]],
) {
    let mut values = [isa.splat(0.0); PARTS];
    for (value, codes) in values.iter_mut().zip(codes) {
        *value = isa.to_f32(isa.load_i8(codes));
    }
    for n in 0..N {
        let p = isa.splat(p[n][position]);
        for (sums, value) in sums.iter_mut().zip(&values) {
            sums[n] = isa.fma(*value, p, sums[n]);
        }
    }
}

impl KvLanes for Q8Lanes {
    fn query_rows(head_dim: usize) -> usize {
        head_dim.div_ceil(GROUP_COLS) * GROUP_ROWS
    }

    #[inline(always)]
    fn code_query<I: Isa>(isa: I, query: &[f32], stride: usize, words: &mut [[u8; 4]]) {
        code_s8(isa, query, stride, words);
    }

    #[inline(always)]
    fn scores<I: Isa, const H: usize, const N: usize>(
        isa: I,
        keys: &[u8],
        half: usize,
        queries: &[[[u8; 4]; N]],
    ) -> [[I::F32; N]; H] {
        let queries: &[CodedGroup<N>] = queries.as_chunks().0;
        let (scales, codes) = keys.as_chunks::<64>().0.split_at(queries.len());
        let mut sums = [[isa.splat(0.0); N]; H];
        for (g, q) in queries.iter().enumerate() {
            for h in 0..H {
                let first = ((half + h) * queries.len() + g) * 8;
                let dots = byte_dots(isa, &codes[first..first + 8], q);
                let scale = isa.load_f16(&scales[g].as_chunks::<32>().0[half + h]);
                add_scaled(isa, scale, dots, q, &mut sums[h]);
            }
        }
        sums
    }

    #[inline(always)]
    fn add_values<I: Isa, const P: usize, const N: usize>(
        isa: I,
        values: Values<'_>,
        part: usize,
        p: &BlockProbabilities<N>,
        sums: &mut [[I::F32; N]; P],
    ) {
        let (scales, codes) = values.bytes.split_at(values.parts / PARTS * 64);
        let codes = codes.as_chunks::<LANES>().0;
        let at_once = P.min(PARTS);
        for (g, sums) in sums.chunks_exact_mut(at_once).enumerate() {
            let part = part + g * PARTS;
            let scales = scales.as_chunks::<64>().0[part / PARTS].as_chunks::<32>().0;
            let mut scaled = [[0.0f32; BLOCK_TOKENS]; N];
            for n in 0..N {
                for (half, scaled) in scaled[n].as_chunks_mut().0.iter_mut().enumerate() {
                    let p = isa.load(&p[n].as_chunks().0[half]);
                    isa.store(scaled, isa.mul(p, isa.load_f16(&scales[half])));
                }
            }
            for pair in 0..values.pairs.min(BLOCK_TOKENS / 2) {
                let even = &codes[2 * pair * values.parts + part..][..at_once];
                let odd = &codes[(2 * pair + 1) * values.parts + part..][..at_once];
                add_position(isa, odd, &scaled, 2 * pair + 1, sums);
                add_position(isa, even, &scaled, 2 * pair, sums);
            }
        }
    }
}
