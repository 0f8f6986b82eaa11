//! How lanes meet stored keys and values: one implementation a scheme and arithmetic.
//!
//! - plain: queries and probabilities in f32, keys and values widened to f32 (f32 and bf16 stores);
//! - pairs: queries and probabilities rounded to bf16, products by [`Isa::bf16_dot`] (bf16 stores);
//! - codes: queries coded as s8, so that scores are exact integers a group; a value's scale goes into its probability
//!   (q8_0 stores).

use super::BLOCK_TOKENS;
use crate::activations::{CodedGroup, GROUP_COLS, GROUP_ROWS, code_s8};
use crate::half::f32_to_bf16;
use crate::isa::{Isa, LANES};
use crate::tile::{add_scaled, byte_dots, splat, splat_word};

/// What attention asks of a stored scheme. `N` queries are written as rows of `N` words.
pub(crate) trait KvLanes: 'static {
    /// Rows of words that a query takes.
    fn query_rows(head_dim: usize) -> usize;

    /// Writes one query, `[head_dim]`, its words `stride` apart.
    fn code_query(query: &[f32], stride: usize, words: &mut [[u8; 4]]);

    /// `q . k` for `H` times 16 positions of a block's keys, from position `16 * half` on.
    fn scores<I: Isa, const H: usize, const N: usize>(
        isa: I,
        keys: &[u8],
        half: usize,
        queries: &[[[u8; 4]; N]],
    ) -> [[I::F32; N]; H];

    /// f32 that hold a block's rounded probabilities.
    const BLOCK_P: usize = BLOCK_TOKENS;

    /// Makes of probabilities what [`KvLanes::add_values`] wants of them, in place.
    #[inline(always)]
    fn round(_: &mut [f32]) {}

    /// Adds `p V` to the sums of `P` times 16 dimensions, from dimension `16 * part` (`part` even) on: the positions of a
    /// block ascending by pairs, the odd one first. `p` are the block's rounded probabilities.
    fn add_values<I: Isa, const P: usize, const N: usize>(
        isa: I,
        values: Values<'_>,
        part: usize,
        p: [&[f32]; N],
        sums: &mut [[I::F32; N]; P],
    );
}

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

/// bf16 stores, pairs.
pub(crate) struct Bf16PairLanes;

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
    fn code_query(query: &[f32], stride: usize, words: &mut [[u8; 4]]) {
        for (word, q) in words.iter_mut().step_by(stride).zip(query.iter().chain(&[0.0])) {
            *word = q.to_le_bytes();
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
            for h in 0..H {
                let (even, odd) = W::key_pair(isa, keys, pair, half + h);
                for n in 0..N {
                    sums[h][n] = isa.fma(odd, splat(isa, q[1][n]), sums[h][n]);
                }
                for n in 0..N {
                    sums[h][n] = isa.fma(even, splat(isa, q[0][n]), sums[h][n]);
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
        p: [&[f32]; N],
        sums: &mut [[I::F32; N]; P],
    ) {
        let p = p.map(|p| p.as_chunks::<2>().0);
        for pair in 0..values.pairs {
            for i in 0..P {
                let (even, odd) = W::value_pair(isa, values, pair, part + i);
                for n in 0..N {
                    sums[i][n] = isa.fma(odd, isa.splat(p[n][pair][1]), sums[i][n]);
                }
                for n in 0..N {
                    sums[i][n] = isa.fma(even, isa.splat(p[n][pair][0]), sums[i][n]);
                }
            }
        }
    }
}

impl KvLanes for Bf16PairLanes {
    const BLOCK_P: usize = BLOCK_TOKENS / 2;

    fn query_rows(head_dim: usize) -> usize {
        head_dim.div_ceil(2)
    }

    #[inline(always)]
    fn code_query(query: &[f32], stride: usize, words: &mut [[u8; 4]]) {
        for (word, pair) in words.iter_mut().step_by(stride).zip(query.chunks(2)) {
            *word = bf16_word(pair[0], pair.get(1).copied().unwrap_or(0.0)).to_le_bytes();
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
        for (lines, q) in keys.as_chunks::<64>().0.as_chunks::<2>().0.iter().zip(queries) {
            for h in 0..H {
                let keys = isa.load_words(&lines[half + h]);
                for n in 0..N {
                    sums[h][n] = isa.bf16_dot(sums[h][n], keys, splat_word(isa, q[n]));
                }
            }
        }
        sums
    }

    /// Two probabilities become one word: the first half of `p` holds all of them.
    #[inline(always)]
    fn round(p: &mut [f32]) {
        for pair in 0..p.len() / 2 {
            p[pair] = f32::from_bits(bf16_word(p[2 * pair], p[2 * pair + 1]));
        }
    }

    #[inline(always)]
    fn add_values<I: Isa, const P: usize, const N: usize>(
        isa: I,
        values: Values<'_>,
        part: usize,
        p: [&[f32]; N],
        sums: &mut [[I::F32; N]; P],
    ) {
        let lines = values.bytes.as_chunks::<64>().0;
        for pair in 0..values.pairs {
            for i in 0..P {
                let words = isa.load_words(&lines[pair * values.parts + part + i]);
                for n in 0..N {
                    let p = isa.splat_word(p[n][pair].to_bits().cast_signed());
                    sums[i][n] = isa.bf16_dot(sums[i][n], words, p);
                }
            }
        }
    }
}

/// Two numbers rounded to bf16, the first in the low half.
#[inline(always)]
fn bf16_word(low: f32, high: f32) -> u32 {
    u32::from(f32_to_bf16(low)) | (u32::from(f32_to_bf16(high)) << 16)
}

impl KvLanes for Q8Lanes {
    fn query_rows(head_dim: usize) -> usize {
        head_dim.div_ceil(GROUP_COLS) * GROUP_ROWS
    }

    #[inline(always)]
    fn code_query(query: &[f32], stride: usize, words: &mut [[u8; 4]]) {
        code_s8(query, stride, words);
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
        p: [&[f32]; N],
        sums: &mut [[I::F32; N]; P],
    ) {
        let (scales, codes) = values.bytes.split_at(values.parts / 2 * 64);
        let scales = scales.as_chunks::<64>().0[part / 2].as_chunks::<32>().0;
        let mut scaled = [[[0.0f32; LANES]; BLOCK_TOKENS / LANES]; N];
        for n in 0..N {
            for (half, scaled) in scaled[n].iter_mut().enumerate() {
                let p = isa.load(&p[n].as_chunks().0[half]);
                isa.store(scaled, isa.mul(p, isa.load_f16(&scales[half])));
            }
        }
        let codes = codes.as_chunks::<LANES>().0;
        for pair in 0..values.pairs {
            for i in 0..P {
                let at = 2 * pair * values.parts + part + i;
                let even = isa.to_f32(isa.load_i8(&codes[at]));
                let odd = isa.to_f32(isa.load_i8(&codes[at + values.parts]));
                for n in 0..N {
                    let p = scaled[n].as_flattened()[2 * pair + 1];
                    sums[i][n] = isa.fma(odd, isa.splat(p), sums[i][n]);
                }
                for n in 0..N {
                    let p = scaled[n].as_flattened()[2 * pair];
                    sums[i][n] = isa.fma(even, isa.splat(p), sums[i][n]);
                }
            }
        }
    }
}
