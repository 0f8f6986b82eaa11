//! Activations, coded once a matrix input for any number of matrices.
//!
//! Tokens are cut into tiles, the tokens of one register tile of the kernels: as many of the largest tile as there are,
//! then smaller ones (24, 12, 8, 4, 2, 1). A tile of `n` tokens is one ascending stream of rows of `n` words, with
//! columns padded to 64 by zeros:
//!
//! ```text
//! f32, bf16    for each column: f32 (bf16: rounded to bf16 first)
//! bf16 pairs   for each two columns: two bf16, the even column in the low half
//! s8           for each group of 32 columns, 14 rows:
//!              scale f32 | -8 * sum i32 | -128 * sum i32 | scale * sum f32 | 8 words of 4 codes i8
//!              | -32 * sum of the first 16 codes i32 | -32 * sum of the last 16 i32
//! ```
//!
//! s8: scale = max |x| / 127, code = x * (127 / max |x|) to nearest even. A group with a NaN or an infinity gets a NaN
//! scale, so that it shows in every output it reaches. The multiples of the sums are where the integer sums of codes
//! centred on 8, 128 and (for 16 at a time) 32 start, so that centring costs a kernel nothing.

use std::ops::Range;

use crate::half::{bf16_to_f32, f32_to_bf16};
use crate::isa::Isa;
use crate::schemes::Scheme;

/// Tokens of the register tiles that kernels have, largest first.
pub(crate) const TILES: [usize; 6] = [24, 12, 8, 4, 2, 1];

/// Columns are padded to this with zeros: the block of the coded tiles.
pub(crate) const PADDED_COLS: usize = 64;

/// Columns that share one s8 scale.
pub(crate) const GROUP_COLS: usize = 32;

/// Rows of a group of s8 codes.
pub(crate) const GROUP_ROWS: usize = 14;

/// A group of s8 codes of `N` tokens; rows as in the picture above.
pub type CodedGroup<const N: usize> = [[[u8; 4]; N]; GROUP_ROWS];

/// How a matrix product sees its input, from the finest to the coarsest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activations {
    /// As computed.
    F32,
    /// Rounded to bf16.
    Bf16,
    /// Signed bytes with an f32 scale for each 32.
    S8,
}

impl Activations {
    /// Every kind, finest first.
    pub const ALL: &'static [Activations] = &[Activations::F32, Activations::Bf16, Activations::S8];

    /// The name, as flags and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            Activations::F32 => "f32",
            Activations::Bf16 => "bf16",
            Activations::S8 => "s8",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Activations> {
        Activations::ALL.iter().copied().find(|a| a.name() == name)
    }

    /// This request, or the scheme's default where that is finer.
    pub fn for_scheme(self, scheme: Scheme) -> Activations {
        self.min(scheme.activations())
    }
}

/// How activations are written down for a class's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Words {
    /// A column a row of words.
    F32,
    /// The same, rounded to bf16.
    Bf16,
    /// Two columns a row of words.
    Bf16Pairs,
    /// A group of 32 columns in 14 rows of words.
    S8,
}

/// What a product's input is made into: [`crate::Kernels::coding`] tells it for a scheme, and products of the same
/// coding can share one coded input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coding {
    pub(crate) words: Words,
    /// Tokens of the largest tile.
    pub(crate) tile_tokens: usize,
}

impl Coding {
    /// The coding that `I` wants for weights of `scheme`, `activations` being the finest that is asked for.
    pub(crate) fn of<I: Isa>(scheme: Scheme, activations: Activations) -> Coding {
        let dense = if scheme.is_dense() { I::DENSE_TOKENS } else { DECODED_TOKENS };
        let (words, tile_tokens) = match activations.for_scheme(scheme) {
            Activations::F32 => (Words::F32, dense),
            Activations::Bf16 if I::HAS_BF16_DOT && scheme == Scheme::Bf16 => {
                (Words::Bf16Pairs, I::DENSE_TOKENS)
            }
            Activations::Bf16 => (Words::Bf16, dense),
            Activations::S8 => (Words::S8, I::CODED_TOKENS),
        };
        Coding { words, tile_tokens }
    }

    /// How exact the input is.
    pub fn activations(self) -> Activations {
        match self.words {
            Words::F32 => Activations::F32,
            Words::Bf16 | Words::Bf16Pairs => Activations::Bf16,
            Words::S8 => Activations::S8,
        }
    }
}

/// Tokens of a tile where coded weights are decoded to floats: a path for gates, whose speed matters less than the time
/// to compile more of it.
pub(crate) const DECODED_TOKENS: usize = 4;

/// Where coded activations lie. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodedLayout {
    coding: Coding,
    tokens: usize,
    cols: usize,
}

impl CodedLayout {
    /// The layout of `[tokens, cols]` activations.
    pub fn new(coding: Coding, tokens: usize, cols: usize) -> CodedLayout {
        CodedLayout { coding, tokens, cols }
    }

    /// How they are coded.
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// Rows of the input.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Columns of the input.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Columns with the padding.
    pub(crate) fn padded_cols(&self) -> usize {
        self.cols.next_multiple_of(PADDED_COLS)
    }

    /// Bytes of one token.
    pub(crate) fn token_bytes(&self) -> usize {
        let words = match self.coding.words {
            Words::F32 | Words::Bf16 => self.padded_cols(),
            Words::Bf16Pairs => self.padded_cols() / 2,
            Words::S8 => self.padded_cols() / GROUP_COLS * GROUP_ROWS,
        };
        words * 4
    }

    /// Blocks that can be coded apart: the tokens of a largest tile, the last block perhaps fewer in smaller tiles.
    pub fn blocks(&self) -> usize {
        self.tokens.div_ceil(self.coding.tile_tokens)
    }

    /// Bytes of a full block; block `b` begins at `b * block_bytes()`.
    pub fn block_bytes(&self) -> usize {
        self.token_bytes() * self.coding.tile_tokens
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> usize {
        self.token_bytes() * self.tokens
    }

    /// The bytes that blocks `blocks` take.
    pub fn byte_range(&self, blocks: Range<usize>) -> Range<usize> {
        let end = (blocks.end * self.block_bytes()).min(self.bytes());
        (blocks.start * self.block_bytes()).min(end)..end
    }

    /// The tiles of `blocks`, as ranges of tokens.
    pub(crate) fn tiles(&self, blocks: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let largest = self.coding.tile_tokens;
        let end = (blocks.end * largest).min(self.tokens);
        let mut next = blocks.start * largest;
        std::iter::from_fn(move || {
            let fits = |tile: &usize| *tile <= largest && *tile <= end - next;
            let tile = TILES.into_iter().find(fits).filter(|_| next < end)?;
            next += tile;
            Some(next - tile..next)
        })
    }
}

/// Codes the tokens of `blocks` of `x`, `[tokens, cols]`, into `dst`, which is those blocks' bytes.
#[inline(always)]
pub(crate) fn code<I: Isa>(isa: I, layout: &CodedLayout, x: &[f32], blocks: Range<usize>, dst: &mut [u8]) {
    assert_eq!(x.len(), layout.tokens * layout.cols, "activations of another shape");
    assert_eq!(dst.len(), layout.byte_range(blocks.clone()).len(), "room of another size");
    isa.vectorize(
        #[inline(always)]
        || {
            let mut rest = dst.as_chunks_mut().0;
            for tile in layout.tiles(blocks) {
                let (dst, after) = rest.split_at_mut(tile.len() * layout.token_bytes() / 4);
                rest = after;
                let x = &x[tile.start * layout.cols..tile.end * layout.cols];
                match layout.coding.words {
                    Words::F32 => code_tile(x, layout.cols, dst, floats),
                    Words::Bf16 => code_tile(x, layout.cols, dst, rounded_floats),
                    Words::Bf16Pairs => code_tile(x, layout.cols, dst, bf16_pairs),
                    Words::S8 => code_tile(
                        x,
                        layout.cols,
                        dst,
                        #[inline(always)]
                        |group| code_group(isa, group),
                    ),
                }
            }
        },
    );
}

/// One tile of tokens, `x` being `[tokens, cols]`: each 32 columns of a token become `R` words, by groups of columns, so
/// that all tokens' words of a group are written while their lines are in the cache.
#[inline(always)]
fn code_tile<const R: usize>(
    x: &[f32],
    cols: usize,
    dst: &mut [[u8; 4]],
    words: impl Fn(&[f32; GROUP_COLS]) -> [[u8; 4]; R],
) {
    let tokens = x.len().checked_div(cols).unwrap_or(1);
    for (g, dst) in dst.chunks_exact_mut(R * tokens).enumerate() {
        for token in 0..tokens {
            let x = &x[token * cols..][..cols];
            let from = (g * GROUP_COLS).min(cols);
            let words = match x[from..].first_chunk() {
                Some(group) => words(group),
                None => {
                    let mut group = [0.0; GROUP_COLS];
                    group[..cols - from].copy_from_slice(&x[from..]);
                    words(&group)
                }
            };
            for row in 0..R {
                dst[row * tokens + token] = words[row];
            }
        }
    }
}

/// A column a word.
#[inline(always)]
fn floats(group: &[f32; GROUP_COLS]) -> [[u8; 4]; GROUP_COLS] {
    let mut words = [[0; 4]; GROUP_COLS];
    for (word, v) in words.iter_mut().zip(group) {
        *word = v.to_le_bytes();
    }
    words
}

/// A column a word, rounded to bf16.
#[inline(always)]
fn rounded_floats(group: &[f32; GROUP_COLS]) -> [[u8; 4]; GROUP_COLS] {
    let mut words = [[0; 4]; GROUP_COLS];
    for (word, v) in words.iter_mut().zip(group) {
        *word = bf16_to_f32(f32_to_bf16(*v)).to_le_bytes();
    }
    words
}

/// Two columns a word, the even one in the low half.
#[inline(always)]
fn bf16_pairs(group: &[f32; GROUP_COLS]) -> [[u8; 4]; GROUP_COLS / 2] {
    let mut words = [[0; 4]; GROUP_COLS / 2];
    for (word, pair) in words.iter_mut().zip(group.as_chunks::<2>().0) {
        *word = (u32::from(f32_to_bf16(pair[0])) | (u32::from(f32_to_bf16(pair[1])) << 16)).to_le_bytes();
    }
    words
}

/// One query's s8 groups, their words `stride` apart.
#[inline(always)]
pub(crate) fn code_s8<I: Isa>(isa: I, x: &[f32], stride: usize, dst: &mut [[u8; 4]]) {
    for (g, x) in x.chunks(GROUP_COLS).enumerate() {
        let mut group = [0.0; GROUP_COLS];
        group[..x.len()].copy_from_slice(x);
        for (row, word) in code_group(isa, &group).iter().enumerate() {
            dst[(g * GROUP_ROWS + row) * stride] = *word;
        }
    }
}

/// A largest value under this is coded as zero: 127 divided by it could overflow.
const TINY: f32 = 1e-30;

/// Adding 1.5 * 2^23 rounds to an integer, to nearest even, and leaves it in the low bits of the mantissa.
const ROUND: f32 = 12_582_912.0;

/// One group: scale, sums, codes.
#[inline(always)]
fn code_group<I: Isa>(isa: I, x: &[f32; GROUP_COLS]) -> [[u8; 4]; GROUP_ROWS] {
    let [low, high] = [isa.load(&x.as_chunks().0[0]), isa.load(&x.as_chunks().0[1])];
    // As integers, magnitudes of floats are ordered, with infinity and then the NaNs at the top.
    let magnitude = isa.splat_word(i32::MAX);
    let largest =
        isa.max_words(isa.and(isa.as_words(low), magnitude), isa.and(isa.as_words(high), magnitude));
    let largest = f32::from_bits(isa.reduce_max_words(largest).cast_unsigned());
    let (scale, inverse) = match largest {
        l if !l.is_finite() => (f32::NAN, 0.0),
        l if l < TINY => (0.0, 0.0),
        l => (l / 127.0, 127.0 / l),
    };
    let (inverse, round) = (isa.splat(inverse), isa.splat(ROUND));
    let rounded = [isa.add(isa.mul(low, inverse), round), isa.add(isa.mul(high, inverse), round)];
    // Whole numbers so small are summed exactly in f32.
    let first = isa.reduce_add(isa.sub(rounded[0], round)) as i32;
    let last = isa.reduce_add(isa.sub(rounded[1], round)) as i32;
    let sum = first + last;
    let mut words = [[0; 4]; GROUP_ROWS];
    words[0] = scale.to_le_bytes();
    words[1] = (-8 * sum).to_le_bytes();
    words[2] = (-128 * sum).to_le_bytes();
    words[3] = (scale * sum as f32).to_le_bytes();
    for half in 0..2 {
        let codes = isa.low_bytes(isa.as_words(rounded[half]));
        words[4 + 4 * half..8 + 4 * half].copy_from_slice(codes.as_chunks().0);
    }
    words[12] = (-32 * first).to_le_bytes();
    words[13] = (-32 * last).to_le_bytes();
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::scalar::Scalar;

    #[test]
    fn requests_are_lowered_to_the_schemes_default() {
        use Activations::*;
        assert_eq!(S8.for_scheme(Scheme::Q4_0), S8);
        assert_eq!(S8.for_scheme(Scheme::Bf16), Bf16);
        assert_eq!(S8.for_scheme(Scheme::F16), F32);
        assert_eq!(Bf16.for_scheme(Scheme::Q6K), Bf16);
        assert_eq!(Bf16.for_scheme(Scheme::F32), F32);
        assert_eq!(F32.for_scheme(Scheme::Q8_0), F32);
        for &kind in Activations::ALL {
            assert_eq!(Activations::from_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn a_group_is_coded_to_its_largest_value() {
        let x: [f32; 32] = std::array::from_fn(|i| if i == 9 { -6.35 } else { i as f32 * 0.1 });
        let words = code_group(Scalar, &x);
        let scale = f32::from_le_bytes(words[0]);
        assert_eq!(scale, 6.35 / 127.0);
        let codes: Vec<i8> = words[4..12].iter().flatten().map(|b| b.cast_signed()).collect();
        assert_eq!(codes[9], -127);
        for (code, x) in codes.iter().zip(x) {
            assert!((f32::from(*code) * scale - x).abs() <= scale * 0.5001);
        }
        let sum = |codes: &[i8]| codes.iter().map(|&c| i32::from(c)).sum::<i32>();
        assert_eq!(i32::from_le_bytes(words[1]), -8 * sum(&codes));
        assert_eq!(i32::from_le_bytes(words[2]), -128 * sum(&codes));
        assert_eq!(i32::from_le_bytes(words[12]), -32 * sum(&codes[..16]));
        assert_eq!(i32::from_le_bytes(words[13]), -32 * sum(&codes[16..]));
    }

    #[test]
    fn odd_groups_have_stated_results() {
        assert_eq!(code_group(Scalar, &[0.0; 32]), [[0; 4]; 14]);
        assert_eq!(code_group(Scalar, &[-1e-31; 32]), [[0; 4]; 14]);
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 32];
            x[17] = odd;
            assert!(f32::from_le_bytes(code_group(Scalar, &x)[0]).is_nan());
        }
        let codes = code_group(Scalar, &[f32::MAX; 32]);
        assert_eq!(codes[4], [127; 4]);
    }

    #[test]
    fn tiles_are_as_large_as_they_can_be() {
        let tiles = |tile_tokens, tokens| {
            let layout = CodedLayout::new(Coding { words: Words::F32, tile_tokens }, tokens, 1);
            layout.tiles(0..layout.blocks()).map(|tile| tile.len()).collect::<Vec<_>>()
        };
        assert_eq!(tiles(12, 35), [12, 12, 8, 2, 1]);
        assert_eq!(tiles(4, 7), [4, 2, 1]);
        assert_eq!(tiles(24, 24), [24]);
        assert!(tiles(24, 0).is_empty());
    }

    #[test]
    fn blocks_coded_apart_equal_blocks_coded_together() {
        for words in [Words::F32, Words::Bf16, Words::Bf16Pairs, Words::S8] {
            let layout = CodedLayout::new(Coding { words, tile_tokens: 12 }, 29, 133);
            assert_eq!(layout.blocks(), 3);
            let x: Vec<f32> = (0..29 * 133).map(|i| (i as f32).sin()).collect();
            let mut whole = vec![1; layout.bytes()];
            code(Scalar, &layout, &x, 0..3, &mut whole);
            let mut parts = vec![2; layout.bytes()];
            for block in (0..3).rev() {
                code(Scalar, &layout, &x, block..block + 1, &mut parts[layout.byte_range(block..block + 1)]);
            }
            assert!(whole == parts, "{words:?}");
        }
    }
}
