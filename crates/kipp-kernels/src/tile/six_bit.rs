//! Tiles of six-bit codes with two levels of scales (q6_k), both kept packed: blocks of 256 columns.
//!
//! ```text
//! bytes    0..32    d, f16, 16 rows
//! bytes   64..320   scales, i8: 16 sub-groups (16 columns each) x 16 rows        (32..64 unused: lines stay whole)
//! bytes  320..      for each of 8 groups of 32 columns: 4 lines of low nibbles, 2 lines of high two bits
//! ```
//!
//! Low nibbles lie as in the nibble tiles. Word `m` of the two lines of high bits has, in bits 2i of byte b, those of
//! column 16 m + 4 i + b, so that a shift by 2i and a mask give the quad 4 m + i.

use super::coded::{CODES, HALF_SUMS, SCALE, byte};
use super::{TileKind, lines, splat, splat_word, word, word_mut};
use crate::activations::CodedGroup;
use crate::isa::Isa;
use crate::schemes::q6_k::Group;

/// Six-bit codes around 32 (q6_k).
pub struct U6;

/// The first line of scales, and of codes; lines of codes of one group of 32.
const SCALES_LINE: usize = 1;
const CODES_LINE: usize = 5;
const GROUP_LINES: usize = 6;

/// The codes (0 to 63) of the eight quads of one group of 32.
#[inline(always)]
fn quads<I: Isa>(isa: I, group: &[[u8; 64]]) -> [I::I32; 8] {
    let nibble = isa.splat_word(0x0f0f_0f0f);
    let two_bits = isa.splat_word(0x0303_0303);
    let mut quads = [isa.splat_word(0); 8];
    for q in 0..8 {
        let low = isa.load_words(&group[q % 4]);
        let low = isa.and(if q < 4 { low } else { isa.shr(low, 4) }, nibble);
        let high = isa.load_words(&group[4 + q / 4]);
        let high = isa.and(isa.shr(high, 2 * (q % 4) as u32), two_bits);
        quads[q] = isa.or(low, isa.shl(high, 4));
    }
    quads
}

/// `scale * (code - 32)` of a byte of each word.
#[inline(always)]
fn weight<I: Isa>(isa: I, codes: I::I32, scale: I::F32, shift: u32) -> I::F32 {
    isa.mul(scale, isa.sub(byte(isa, codes, shift), isa.splat(32.0)))
}

/// The i8 scales of a sub-group.
#[inline(always)]
fn sub_scale<I: Isa>(isa: I, lines: &[[u8; 64]], sub_group: usize) -> I::I32 {
    isa.load_i8(&lines[SCALES_LINE + sub_group / 4].as_chunks::<16>().0[sub_group % 4])
}

#[inline(always)]
fn d<I: Isa>(isa: I, lines: &[[u8; 64]]) -> I::F32 {
    isa.load_f16(&lines[0].as_chunks::<32>().0[0])
}

impl TileKind for U6 {
    type Group = Group;
    const BLOCK_COLS: usize = 256;
    const BLOCK_GROUPS: usize = 1;
    const BLOCK_BYTES: usize = (CODES_LINE + 8 * GROUP_LINES) * 64;
    const CODED: bool = true;

    fn store_lane(block: &mut [u8], lane: usize, groups: &[Group]) {
        for group in groups {
            block[2 * lane..][..2].copy_from_slice(&group.d);
            for (s, scale) in group.scales.iter().enumerate() {
                block[SCALES_LINE * 64 + s * 16 + lane] = *scale;
            }
            for part in 0..8 {
                let codes = group.unsigned_codes(part);
                let first_line = CODES_LINE + GROUP_LINES * part;
                for line in 0..4 {
                    let bytes = std::array::from_fn::<u8, 4, _>(|b| {
                        (codes[4 * line + b] & 15) | ((codes[16 + 4 * line + b] & 15) << 4)
                    });
                    word_mut(block, first_line + line, lane).copy_from_slice(&bytes);
                }
                for m in 0..2 {
                    let high = |b: usize, i: usize| (codes[16 * m + 4 * i + b] >> 4) << (2 * i);
                    let bytes = std::array::from_fn::<u8, 4, _>(|b| {
                        high(b, 0) | high(b, 1) | high(b, 2) | high(b, 3)
                    });
                    word_mut(block, first_line + 4 + m, lane).copy_from_slice(&bytes);
                }
            }
        }
    }

    fn load_lane(block: &[u8], lane: usize, groups: &mut [Group]) {
        for group in groups {
            let mut codes = [[0; 32]; 8];
            for (part, codes) in codes.iter_mut().enumerate() {
                let first_line = CODES_LINE + GROUP_LINES * part;
                for (k, code) in codes.iter_mut().enumerate() {
                    let low = word(block, first_line + k % 16 / 4, lane)[k % 4] >> (4 * (k / 16));
                    let high = word(block, first_line + 4 + k / 16, lane)[k % 4] >> (2 * (k % 16 / 4));
                    *code = (low & 15) | ((high & 3) << 4);
                }
            }
            let scales = std::array::from_fn(|s| block[SCALES_LINE * 64 + s * 16 + lane]);
            *group = Group::from_parts(&codes, scales, [block[2 * lane], block[2 * lane + 1]]);
        }
    }

    #[inline(always)]
    fn pairs<I: Isa>(isa: I, block: &[u8], mut each: impl FnMut(usize, I::F32, I::F32)) {
        let lines = lines(block);
        let d = d(isa, lines);
        for part in 0..8 {
            let group = &lines[CODES_LINE + GROUP_LINES * part..][..GROUP_LINES];
            let quads = quads(isa, group);
            for q in 0..8 {
                let codes = quads[q];
                let scale = isa.mul(d, isa.to_f32(sub_scale(isa, lines, 2 * part + q / 4)));
                let first = 16 * part + 2 * q;
                each(first, weight(isa, codes, scale, 0), weight(isa, codes, scale, 8));
                each(first + 1, weight(isa, codes, scale, 16), weight(isa, codes, scale, 24));
            }
        }
    }

    /// The sum over a group of 32 is at most 2 x 128 x 16 x 32 x 127, under 2^24: exact as an f32, so that the two
    /// sub-groups can be weighed in floats.
    #[inline(always)]
    fn dot<I: Isa, const N: usize>(isa: I, block: &[u8], x: &[CodedGroup<N>], sums: &mut [I::F32; N]) {
        let lines = lines(block);
        let d = d(isa, lines);
        for part in 0..8 {
            let x = &x[part];
            let quads = quads(isa, &lines[CODES_LINE + GROUP_LINES * part..][..GROUP_LINES]);
            let mut weighed = [isa.splat(0.0); N];
            for half in 0..2 {
                let mut dots = [isa.u8_start(isa.splat_word(0)); N];
                for q in 4 * half..4 * half + 4 {
                    for t in 0..N {
                        dots[t] = isa.u8_dot(dots[t], quads[q], splat_word(isa, x[CODES + q][t]));
                    }
                }
                let scale = isa.to_f32(sub_scale(isa, lines, 2 * part + half));
                for t in 0..N {
                    let dot = isa.u8_finish(dots[t], isa.splat_word(0));
                    let centre = isa.shl(splat_word(isa, x[HALF_SUMS + half][t]), 5);
                    let centred = isa.to_f32(isa.sub_words(dot, centre));
                    weighed[t] = isa.fma(scale, centred, weighed[t]);
                }
            }
            for t in 0..N {
                let scale = isa.mul(d, splat(isa, x[SCALE][t]));
                sums[t] = isa.fma(scale, weighed[t], sums[t]);
            }
        }
    }
}
