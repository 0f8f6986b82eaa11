//! Tiles of coded weights: blocks of 64 columns, or of 256 where that is a group of the file.
//!
//! ```text
//! block = head (scales of its 16 rows: `scales`) | for each 32 columns, ascending: lines of codes (`codes`)
//! ```
//!
//! One algorithm for all of them: a scheme says how its codes lie and how they are scaled.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::{Pod, bytes_of, bytes_of_mut};

use super::codes::{CodeLines, CodeProducts};
use super::scales::{Head, Scaling};
use super::{TileKind, lines, splat, splat_word, word, word_mut};
use crate::activations::CodedGroup;
use crate::isa::Isa;
use crate::schemes::q8_0;

/// What a scheme's group says to its tile.
pub trait CodedWeights: Pod {
    /// How its codes lie in a block.
    type Codes: CodeLines;
    /// Where its scales are and how they unpack.
    type Scales: Scaling;

    /// Where its f16 scales and minimums begin.
    const F16_AT: &'static [usize];
    /// Its other bytes of scales.
    const BYTES: Range<usize> = 0..0;

    /// The stored codes of weights `32 * part ..`, unsigned.
    fn unsigned_codes(&self, part: usize) -> [u8; 32];

    /// Puts the stored codes of weights `32 * part ..` into a group where they are zero.
    fn insert_codes(&mut self, part: usize, codes: &[u8; 32]);
}

/// How products of the codes are summed, and their running sums.
type Products<G> = <<G as CodedWeights>::Codes as CodeLines>::Products;
type Sum<I, G> = <Products<G> as CodeProducts>::Sum<I>;

/// The tile of groups `G`.
pub struct Coded<G>(PhantomData<G>);

/// Rows of a [`CodedGroup`]: the scale, where sums of codes around 8 and around 128 start, scale times sum, the codes,
/// where sums of the first and the last 16 codes around 32 start.
const SCALE: usize = 0;
const START_8: usize = 1;
const START_128: usize = 2;
const SCALED_SUM: usize = 3;
const CODES: usize = 4;
const START_32: [usize; 2] = [12, 13];

/// Columns of a group of 32 that share a scale.
#[derive(Clone, Copy, PartialEq)]
enum Span {
    All,
    First16,
    Last16,
}

impl<G: CodedWeights> Coded<G> {
    const PARTS: usize = G::Scales::PARTS * G::Scales::GROUPS;
    const HEAD_LINES: usize = G::Scales::LINES;
    const PART_LINES: usize = G::Codes::LINES;

    /// Bits of the code that stands for zero, a power of two: the middle of the codes, or nothing with an offset.
    const CENTRE_BITS: Option<u32> = if G::Scales::HAS_OFFSET { None } else { Some(G::Codes::BITS - 1) };

    /// The lines of codes of a part.
    #[inline(always)]
    fn part(lines: &[[u8; 64]], part: usize) -> &[[u8; 64]] {
        &lines[Self::HEAD_LINES + Self::PART_LINES * part..][..Self::PART_LINES]
    }

    /// Where a token's sum of products starts, so that codes count from their centre.
    #[inline(always)]
    fn start<I: Isa, const N: usize>(isa: I, x: &CodedGroup<N>, span: Span, t: usize) -> I::I32 {
        let (row, row_bits) = match (Self::CENTRE_BITS, span) {
            (None, _) => return isa.splat_word(0),
            (Some(7), Span::All) => (START_128, 7),
            (Some(_), Span::All) => (START_8, 3),
            (Some(_), Span::First16) => (START_32[0], 5),
            (Some(_), Span::Last16) => (START_32[1], 5),
        };
        let (start, bits) = (splat_word(isa, x[row][t]), Self::CENTRE_BITS.unwrap_or(row_bits));
        if bits < row_bits { isa.sar(start, row_bits - bits) } else { isa.shl(start, bits - row_bits) }
    }

    /// Adds the products of some quads with `N` tokens. Four at a time are unrolled by the compiler, which makes their
    /// shifts constants; eight of a wide tile are not.
    #[inline(always)]
    fn add_quads<I: Isa, const N: usize>(
        isa: I,
        part: &[[u8; 64]],
        x: &CodedGroup<N>,
        quads: Range<usize>,
        sums: &mut [Sum<I, G>; N],
    ) {
        for quad in quads {
            let codes = G::Codes::quad(isa, part, quad);
            for t in 0..N {
                sums[t] = Products::<G>::add(isa, sums[t], codes, splat_word(isa, x[CODES + quad][t]));
            }
        }
    }

    /// The exact dot products of a span with `N` tokens.
    #[inline(always)]
    fn dots<I: Isa, const N: usize>(isa: I, part: &[[u8; 64]], x: &CodedGroup<N>, span: Span) -> [I::I32; N] {
        let mut sums = [Products::<G>::start(isa, isa.splat_word(0)); N];
        for t in 0..N {
            sums[t] = Products::<G>::start(isa, Self::start(isa, x, span, t));
        }
        if span != Span::Last16 {
            Self::add_quads(isa, part, x, 0..4, &mut sums);
        }
        if span != Span::First16 {
            Self::add_quads(isa, part, x, 4..8, &mut sums);
        }
        let mut finished = [isa.splat_word(0); N];
        for t in 0..N {
            finished[t] = Products::<G>::finish(isa, sums[t], Self::start(isa, x, span, t));
        }
        finished
    }

    /// The `S` scales and offsets of a block.
    #[inline(always)]
    fn scales<I: Isa, const S: usize>(isa: I, head: &Head<'_>) -> [[I::F32; 2]; S] {
        let mut scales = [[isa.splat(0.0); 2]; S];
        for index in 0..S {
            scales[index] = [G::Scales::scale(isa, head, index), G::Scales::offset(isa, head, index)];
        }
        scales
    }

    /// A block, of which every `32 / SPANS` columns share one of `S` scales, with `N` tokens.
    #[inline(always)]
    fn add_block<I: Isa, const N: usize, const S: usize>(
        isa: I,
        lines: &[[u8; 64]],
        x: &[CodedGroup<N>],
        sums: &mut [I::F32; N],
    ) {
        // All at once and first: the loop below is then free of branches, which would keep its inputs in memory.
        let scales = Self::scales::<I, S>(isa, &Head(&lines[..Self::HEAD_LINES]));
        for p in 0..Self::PARTS {
            let (part, x) = (Self::part(lines, p), &x[p]);
            if G::Scales::COLS == 32 {
                Self::add_span(isa, part, Span::All, scales[p], x, sums);
            } else {
                Self::add_span(isa, part, Span::First16, scales[2 * p], x, sums);
                Self::add_span(isa, part, Span::Last16, scales[2 * p + 1], x, sums);
            }
        }
    }

    /// `sums[t] += scale * scale of x[t] * dots[t]`, then `+= offset * scaled sum of x[t]`, for one span.
    #[inline(always)]
    fn add_span<I: Isa, const N: usize>(
        isa: I,
        part: &[[u8; 64]],
        span: Span,
        [scale, offset]: [I::F32; 2],
        x: &CodedGroup<N>,
        sums: &mut [I::F32; N],
    ) {
        add_scaled(isa, scale, Self::dots(isa, part, x, span), x, sums);
        if G::Scales::HAS_OFFSET {
            for t in 0..N {
                sums[t] = isa.fma(offset, scaled_sum(isa, x, span, t), sums[t]);
            }
        }
    }
}

/// The exact dot products of one group of q8_0 codes, eight lines, with `N` tokens.
#[inline(always)]
pub(crate) fn byte_dots<I: Isa, const N: usize>(
    isa: I,
    group: &[[u8; 64]],
    x: &CodedGroup<N>,
) -> [I::I32; N] {
    Coded::<q8_0::Group>::dots(isa, group, x, Span::All)
}

/// `sums[t] += scale * scale of x[t] * dots[t]`.
#[inline(always)]
pub(crate) fn add_scaled<I: Isa, const N: usize>(
    isa: I,
    scale: I::F32,
    dots: [I::I32; N],
    x: &CodedGroup<N>,
    sums: &mut [I::F32; N],
) {
    for t in 0..N {
        let scale = isa.mul(scale, splat(isa, x[SCALE][t]));
        sums[t] = isa.fma(scale, isa.to_f32(dots[t]), sums[t]);
    }
}

/// The sum of a token's codes in a span, times its scale.
#[inline(always)]
fn scaled_sum<I: Isa, const N: usize>(isa: I, x: &CodedGroup<N>, span: Span, t: usize) -> I::F32 {
    let row = match span {
        Span::All => return splat(isa, x[SCALED_SUM][t]),
        Span::First16 => START_32[0],
        Span::Last16 => START_32[1],
    };
    let sum = isa.mul(isa.to_f32(splat_word(isa, x[row][t])), isa.splat(-1.0 / 32.0));
    isa.mul(sum, splat(isa, x[SCALE][t]))
}

impl<G: CodedWeights> TileKind for Coded<G> {
    type Group = G;
    const F16_AT: &'static [usize] = {
        assert!(G::F16_AT.len() == G::Scales::F16 && G::BYTES.end - G::BYTES.start == G::Scales::BYTES);
        G::F16_AT
    };
    const BLOCK_COLS: usize = 32 * Self::PARTS;
    const BLOCK_GROUPS: usize = G::Scales::GROUPS;
    const BLOCK_BYTES: usize = (Self::HEAD_LINES + Self::PARTS * Self::PART_LINES) * 64;
    const CODED: bool = true;

    fn store_lane(block: &mut [u8], lane: usize, groups: &[G]) {
        let f16_runs = G::F16_AT.len() * G::Scales::GROUPS;
        for (g, group) in groups.iter().enumerate() {
            let bytes = bytes_of(group);
            for (i, &at) in G::F16_AT.iter().enumerate() {
                let run = i * G::Scales::GROUPS + g;
                block[32 * run + 2 * lane..][..2].copy_from_slice(&bytes[at..at + 2]);
            }
            for (i, &byte) in bytes[G::BYTES].iter().enumerate() {
                block[32 * f16_runs + 16 * i + lane] = byte;
            }
            for part in 0..G::Scales::PARTS {
                let mut words = [[0; 4]; 8];
                G::Codes::pack(&group.unsigned_codes(part), &mut words[..Self::PART_LINES]);
                let first = Self::HEAD_LINES + (g * G::Scales::PARTS + part) * Self::PART_LINES;
                for (line, codes) in words[..Self::PART_LINES].iter().enumerate() {
                    word_mut(block, first + line, lane).copy_from_slice(codes);
                }
            }
        }
    }

    fn load_lane(block: &[u8], lane: usize, groups: &mut [G]) {
        let f16_runs = G::F16_AT.len() * G::Scales::GROUPS;
        for (g, group) in groups.iter_mut().enumerate() {
            *group = G::zeroed();
            let bytes = bytes_of_mut(group);
            for (i, &at) in G::F16_AT.iter().enumerate() {
                let run = i * G::Scales::GROUPS + g;
                bytes[at..at + 2].copy_from_slice(&block[32 * run + 2 * lane..][..2]);
            }
            for (i, byte) in bytes[G::BYTES].iter_mut().enumerate() {
                *byte = block[32 * f16_runs + 16 * i + lane];
            }
            for part in 0..G::Scales::PARTS {
                let mut words = [[0; 4]; 8];
                let first = Self::HEAD_LINES + (g * G::Scales::PARTS + part) * Self::PART_LINES;
                for (line, codes) in words[..Self::PART_LINES].iter_mut().enumerate() {
                    codes.copy_from_slice(word(block, first + line, lane));
                }
                group.insert_codes(part, &G::Codes::unpack(&words[..Self::PART_LINES]));
            }
        }
    }

    #[inline(always)]
    fn pairs<I: Isa>(isa: I, block: &[u8], mut each: impl FnMut(usize, I::F32, I::F32)) {
        let lines = lines(block);
        let head = Head(&lines[..Self::HEAD_LINES]);
        let byte = isa.splat_word(0xff);
        for part in 0..Self::PARTS {
            for quad in 0..8 {
                let index = part * (32 / G::Scales::COLS) + quad / (G::Scales::COLS / 4);
                let (scale, offset) =
                    (G::Scales::scale(isa, &head, index), G::Scales::offset(isa, &head, index));
                let codes = G::Codes::quad(isa, Self::part(lines, part), quad);
                let first = 16 * part + 2 * quad;
                let mut w = [scale; 4];
                for (shift, w) in [0, 8, 16, 24].into_iter().zip(&mut w) {
                    let code = isa.to_f32(isa.and(isa.shr(codes, shift), byte));
                    *w = match Self::CENTRE_BITS {
                        None => isa.add(isa.mul(scale, code), offset),
                        Some(bits) => isa.mul(scale, isa.sub(code, isa.splat((1u32 << bits) as f32))),
                    };
                }
                each(first, w[0], w[1]);
                each(first + 1, w[2], w[3]);
            }
        }
    }

    #[inline(always)]
    fn dot<I: Isa, const N: usize>(isa: I, block: &[u8], x: &[CodedGroup<N>], sums: &mut [I::F32; N]) {
        let lines = lines(block);
        match Self::PARTS * 32 / G::Scales::COLS {
            2 => Self::add_block::<I, N, 2>(isa, lines, x, sums),
            8 => Self::add_block::<I, N, 8>(isa, lines, x, sums),
            16 => Self::add_block::<I, N, 16>(isa, lines, x, sums),
            scales => unreachable!("a block of {scales} scales"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schemes::{Scheme, SchemeVisitor, WeightScheme};
    use crate::tile::{PANEL_ROWS, TileKind};

    /// Stores arbitrary groups in all lanes of a block and takes them out again.
    struct ComeBack;

    impl SchemeVisitor for ComeBack {
        type Output = ();

        fn visit<S: WeightScheme>(self) {
            let row_bytes = S::Tile::BLOCK_GROUPS * size_of::<S::Group>();
            let bytes: Vec<u8> = (0..(PANEL_ROWS * row_bytes) as u32)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
                .collect();
            let mut block = vec![0xaa; S::Tile::BLOCK_BYTES];
            for (lane, row) in bytes.chunks(row_bytes).enumerate() {
                S::Tile::store_lane(&mut block, lane, bytemuck::cast_slice(row));
            }
            for (lane, row) in bytes.chunks(row_bytes).enumerate() {
                let mut found = vec![0x55; row_bytes];
                S::Tile::load_lane(&block, lane, bytemuck::cast_slice_mut(&mut found));
                assert_eq!(found, row, "{}, lane {lane}", S::NAME);
            }
        }
    }

    #[test]
    fn groups_come_back_bit_for_bit() {
        Scheme::ALL.iter().for_each(|scheme| scheme.visit(ComeBack));
    }
}
