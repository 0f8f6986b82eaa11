//! Activations, coded once a matrix input for any number of matrices.
//!
//! Tokens are coded in blocks of [`TOKENS_PER_BLOCK`], the tokens of the largest register tile, so that a kernel reads
//! one ascending stream. A block of `n` tokens (the last may have fewer) is, with columns padded to 64 by zeros:
//!
//! ```text
//! f32, bf16   for each column: n x f32 (bf16: rounded to bf16 first)
//! s8          for each group of 32 columns: 12 rows of n words
//!             scale f32 | sum i32 | sum of the first 16 i32 | scale * sum f32 | 8 words of 4 codes i8
//! ```
//!
//! s8: scale = max |x| / 127, code = x * (127 / max |x|) to nearest even. A group with a NaN or an infinity gets a NaN
//! scale, so that it shows in every output it reaches.

use std::ops::Range;

use crate::half::{bf16_to_f32, f32_to_bf16};
use crate::isa::Isa;
use crate::schemes::Scheme;

/// Tokens of a full block. Twelve sums of 16 rows fill the registers of AVX-512 beside the operands; it is also a
/// multiple of the six of AVX2.
pub const TOKENS_PER_BLOCK: usize = 12;

/// Columns are padded to this with zeros: the block of the coded tiles.
pub(crate) const PADDED_COLS: usize = 64;

/// Columns that share one s8 scale.
pub(crate) const GROUP_COLS: usize = 32;

/// Words of a group of s8 codes of one token: scale, two sums, their product, eight words of codes.
pub(crate) const GROUP_WORDS: usize = 12;

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

/// Where coded activations lie. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodedLayout {
    activations: Activations,
    tokens: usize,
    cols: usize,
}

impl CodedLayout {
    /// The layout of `[tokens, cols]` activations.
    pub fn new(activations: Activations, tokens: usize, cols: usize) -> CodedLayout {
        CodedLayout { activations, tokens, cols }
    }

    /// How they are coded.
    pub fn activations(&self) -> Activations {
        self.activations
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

    /// Words of one token.
    fn token_words(&self) -> usize {
        match self.activations {
            Activations::F32 | Activations::Bf16 => self.padded_cols(),
            Activations::S8 => self.padded_cols() / GROUP_COLS * GROUP_WORDS,
        }
    }

    /// Token blocks, the last of which may be smaller.
    pub fn blocks(&self) -> usize {
        self.tokens.div_ceil(TOKENS_PER_BLOCK)
    }

    /// Bytes of a full block; block `b` begins at `b * block_bytes()`.
    pub fn block_bytes(&self) -> usize {
        self.token_words() * 4 * TOKENS_PER_BLOCK
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> usize {
        self.token_words() * 4 * self.tokens
    }

    /// The bytes that blocks `blocks` take.
    pub fn byte_range(&self, blocks: Range<usize>) -> Range<usize> {
        let end = (blocks.end * self.block_bytes()).min(self.bytes());
        (blocks.start * self.block_bytes()).min(end)..end
    }

    /// The tokens of a block.
    pub(crate) fn block_range(&self, block: usize) -> Range<usize> {
        block * TOKENS_PER_BLOCK..((block + 1) * TOKENS_PER_BLOCK).min(self.tokens)
    }

    /// The words of a block.
    pub(crate) fn block<'a>(&self, coded: &'a [u8], block: usize) -> &'a [[u8; 4]] {
        coded[self.byte_range(block..block + 1)].as_chunks().0
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
            for (block, dst) in blocks.zip(dst.chunks_mut(layout.block_bytes().max(1))) {
                let tokens = layout.block_range(block);
                let x = &x[tokens.start * layout.cols..tokens.end * layout.cols];
                let dst = dst.as_chunks_mut().0;
                match layout.activations {
                    Activations::F32 => code_dense(x, layout, tokens.len(), dst, |v| v),
                    Activations::Bf16 => {
                        code_dense(x, layout, tokens.len(), dst, |v| bf16_to_f32(f32_to_bf16(v)));
                    }
                    Activations::S8 => code_s8(x, layout, tokens.len(), dst),
                }
            }
        },
    );
}

/// One block of floats: a transpose.
#[inline(always)]
fn code_dense(
    x: &[f32],
    layout: &CodedLayout,
    tokens: usize,
    dst: &mut [[u8; 4]],
    round: impl Fn(f32) -> f32,
) {
    for (token, x) in x.chunks_exact(layout.cols).enumerate() {
        let mut column = dst.iter_mut().skip(token).step_by(tokens);
        // Values first, so that the column iterator goes on with the padding.
        for (&v, dst) in x.iter().zip(column.by_ref()) {
            *dst = round(v).to_le_bytes();
        }
    }
    dst[layout.cols * tokens..].fill([0; 4]);
}

/// One block of s8 groups.
#[inline(always)]
fn code_s8(x: &[f32], layout: &CodedLayout, tokens: usize, dst: &mut [[u8; 4]]) {
    for (g, dst) in dst.chunks_exact_mut(GROUP_WORDS * tokens).enumerate() {
        for token in 0..tokens {
            let row = &x[token * layout.cols..][..layout.cols];
            let from = (g * GROUP_COLS).min(layout.cols);
            let present = &row[from..(from + GROUP_COLS).min(layout.cols)];
            let words = match present.first_chunk::<GROUP_COLS>() {
                Some(group) => code_group(group),
                None => {
                    let mut group = [0.0; GROUP_COLS];
                    group[..present.len()].copy_from_slice(present);
                    code_group(&group)
                }
            };
            for (word, dst) in words.iter().zip(dst.iter_mut().skip(token).step_by(tokens)) {
                *dst = *word;
            }
        }
    }
}

/// A largest value under this is coded as zero: 127 divided by it could overflow.
const TINY: f32 = 1e-30;

/// Adding 1.5 * 2^23 rounds to an integer, to nearest even, and leaves it in the low bits of the mantissa.
const ROUND: f32 = 12_582_912.0;

/// One group: scale, sums, codes.
#[inline(always)]
fn code_group(x: &[f32; GROUP_COLS]) -> [[u8; 4]; GROUP_WORDS] {
    // As integers, magnitudes of floats are ordered, with infinity and then the NaNs at the top.
    let largest = f32::from_bits(x.iter().fold(0, |m, v| m.max(v.to_bits() & 0x7fff_ffff)));
    let (scale, inverse) = match largest {
        l if !l.is_finite() => (f32::NAN, 0.0),
        l if l < TINY => (0.0, 0.0),
        l => (l / 127.0, 127.0 / l),
    };
    let mut codes = [0i8; GROUP_COLS];
    for (code, v) in codes.iter_mut().zip(x) {
        *code = (v * inverse + ROUND).to_bits() as i8;
    }
    let sum_of = |codes: &[i8]| codes.iter().map(|&c| i32::from(c)).sum::<i32>();
    let (first, sum) = (sum_of(&codes[..16]), sum_of(&codes));
    let mut words = [[0; 4]; GROUP_WORDS];
    words[0] = scale.to_le_bytes();
    words[1] = sum.to_le_bytes();
    words[2] = first.to_le_bytes();
    words[3] = (scale * sum as f32).to_le_bytes();
    for (word, codes) in words[4..].iter_mut().zip(codes.as_chunks::<4>().0) {
        *word = codes.map(i8::cast_unsigned);
    }
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
        let words = code_group(&x);
        let scale = f32::from_le_bytes(words[0]);
        assert_eq!(scale, 6.35 / 127.0);
        let codes: Vec<i8> = words[4..].iter().flatten().map(|b| b.cast_signed()).collect();
        assert_eq!(codes[9], -127);
        for (code, x) in codes.iter().zip(x) {
            assert!((f32::from(*code) * scale - x).abs() <= scale * 0.5001);
        }
        assert_eq!(i32::from_le_bytes(words[1]), codes.iter().map(|&c| i32::from(c)).sum::<i32>());
        assert_eq!(i32::from_le_bytes(words[2]), codes[..16].iter().map(|&c| i32::from(c)).sum::<i32>());
    }

    #[test]
    fn odd_groups_have_stated_results() {
        assert_eq!(code_group(&[0.0; 32]), [[0; 4]; 12]);
        assert_eq!(code_group(&[-1e-31; 32]), [[0; 4]; 12]);
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 32];
            x[17] = odd;
            assert!(f32::from_le_bytes(code_group(&x)[0]).is_nan());
        }
        let codes = code_group(&[f32::MAX; 32]);
        assert_eq!(codes[4], [127; 4]);
    }

    #[test]
    fn blocks_coded_apart_equal_blocks_coded_together() {
        for &kind in Activations::ALL {
            let layout = CodedLayout::new(kind, 29, 133);
            assert_eq!(layout.blocks(), 3);
            let x: Vec<f32> = (0..29 * 133).map(|i| (i as f32).sin()).collect();
            let mut whole = vec![1; layout.bytes()];
            code(Scalar, &layout, &x, 0..3, &mut whole);
            let mut parts = vec![2; layout.bytes()];
            for block in (0..3).rev() {
                code(Scalar, &layout, &x, block..block + 1, &mut parts[layout.byte_range(block..block + 1)]);
            }
            assert!(whole == parts, "{kind:?}");
        }
    }
}
