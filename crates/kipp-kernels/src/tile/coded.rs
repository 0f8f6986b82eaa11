//! Tiles of byte and nibble codes with a scale (and a minimum) for each 32: blocks of 64 columns, two groups.
//!
//! ```text
//! u8       line 0: scales, f16, of group 0 (16 rows) and group 1 | 8 lines of codes XOR 0x80 a group
//! u4       line 0: scales                                       | 4 lines of nibbles a group
//! u4 min   line 0: scales | line 1: minimums                    | 4 lines of nibbles a group
//! ```
//!
//! Nibbles keep the order of the file: word `j` has columns `4j..` in its low nibbles and `16 + 4j..` in its high
//! ones, so both come out by a mask and a shift.

use super::{TileKind, lines, splat, splat_word, word, word_mut};
use crate::activations::CodedGroup;
use crate::isa::Isa;
use crate::schemes::{q4_0, q4_1, q8_0};

/// Byte codes (q8_0), stored unsigned because the byte dot product of x86 wants one unsigned operand.
pub struct U8;

/// Nibble codes around 8 (q4_0).
pub struct U4;

/// Nibble codes with a minimum (q4_1).
pub struct U4Min;

/// Where a lane's f16 of a group lies in a line of scales.
fn scale_at(line: usize, group: usize, lane: usize) -> usize {
    line * 64 + group * 32 + lane * 2
}

/// The f16 of a group in a line of scales, widened.
#[inline(always)]
fn scales<I: Isa>(isa: I, line: &[u8; 64], group: usize) -> I::F32 {
    isa.load_f16(&line.as_chunks::<32>().0[group])
}

/// A byte of each word, as f32.
#[inline(always)]
pub(super) fn byte<I: Isa>(isa: I, words: I::I32, shift: u32) -> I::F32 {
    isa.to_f32(isa.and(isa.shr(words, shift), isa.splat_word(0xff)))
}

/// The four bytes of each word, as f32.
#[inline(always)]
fn bytes<I: Isa>(isa: I, words: I::I32) -> [I::F32; 4] {
    [byte(isa, words, 0), byte(isa, words, 8), byte(isa, words, 16), byte(isa, words, 24)]
}

/// The low and the high nibbles of each byte.
#[inline(always)]
fn nibbles<I: Isa>(isa: I, words: I::I32) -> [I::I32; 2] {
    let mask = isa.splat_word(0x0f0f_0f0f);
    [isa.and(words, mask), isa.and(isa.shr(words, 4), mask)]
}

/// Rows of a [`CodedGroup`]: the scale, where sums of codes around 8 and around 128 start, scale times sum, the codes,
/// the sums of the first and the last 16 codes.
pub(super) const SCALE: usize = 0;
const START_8: usize = 1;
const START_128: usize = 2;
const SCALED_SUM: usize = 3;
pub(super) const CODES: usize = 4;
pub(super) const HALF_SUMS: usize = 12;

/// The exact dot products of one group of byte codes around 128 with `N` tokens.
#[inline(always)]
pub(crate) fn byte_dots<I: Isa, const N: usize>(
    isa: I,
    group: &[[u8; 64]],
    x: &CodedGroup<N>,
) -> [I::I32; N] {
    let mut dots = [isa.u8_start(isa.splat_word(0)); N];
    for t in 0..N {
        dots[t] = isa.u8_start(splat_word(isa, x[START_128][t]));
    }
    for j in 0..8 {
        let codes = isa.load_words(&group[j]);
        for t in 0..N {
            dots[t] = isa.u8_dot(dots[t], codes, splat_word(isa, x[CODES + j][t]));
        }
    }
    let mut finished = [isa.splat_word(0); N];
    for t in 0..N {
        finished[t] = isa.u8_finish(dots[t], splat_word(isa, x[START_128][t]));
    }
    finished
}

/// Where a token's sum starts: at zero if nothing is said.
#[inline(always)]
fn start_of<I: Isa, const N: usize>(isa: I, starts: Option<&[[u8; 4]; N]>, t: usize) -> I::I32 {
    match starts {
        Some(starts) => splat_word(isa, starts[t]),
        None => isa.splat_word(0),
    }
}

/// The exact dot products of one group of nibbles with `N` tokens, from each token's start if there are any.
#[inline(always)]
fn nibble_dots<I: Isa, const N: usize>(
    isa: I,
    group: &[[u8; 64]],
    x: &CodedGroup<N>,
    starts: Option<&[[u8; 4]; N]>,
) -> [I::I32; N] {
    let mut dots = [isa.u4_start(isa.splat_word(0)); N];
    for t in 0..N {
        dots[t] = isa.u4_start(start_of(isa, starts, t));
    }
    for j in 0..4 {
        let halves = nibbles(isa, isa.load_words(&group[j]));
        for half in 0..2 {
            for t in 0..N {
                dots[t] = isa.u4_dot(dots[t], halves[half], splat_word(isa, x[CODES + j + 4 * half][t]));
            }
        }
    }
    let mut finished = [isa.splat_word(0); N];
    for t in 0..N {
        finished[t] = isa.u4_finish(dots[t], start_of(isa, starts, t));
    }
    finished
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

/// `sums[t] += minimum * scaled sum of x[t]`.
#[inline(always)]
fn add_minimum<I: Isa, const N: usize>(isa: I, minimum: I::F32, x: &CodedGroup<N>, sums: &mut [I::F32; N]) {
    for t in 0..N {
        sums[t] = isa.fma(minimum, splat(isa, x[SCALED_SUM][t]), sums[t]);
    }
}

impl TileKind for U8 {
    type Group = q8_0::Group;
    const BLOCK_COLS: usize = 64;
    const BLOCK_GROUPS: usize = 2;
    const BLOCK_BYTES: usize = 17 * 64;
    const CODED: bool = true;

    fn store_lane(block: &mut [u8], lane: usize, groups: &[q8_0::Group]) {
        for (g, group) in groups.iter().enumerate() {
            block[scale_at(0, g, lane)..][..2].copy_from_slice(&group.d);
            for (j, codes) in group.codes.as_chunks::<4>().0.iter().enumerate() {
                word_mut(block, 1 + 8 * g + j, lane).copy_from_slice(&codes.map(|c| c ^ 0x80));
            }
        }
    }

    fn load_lane(block: &[u8], lane: usize, groups: &mut [q8_0::Group]) {
        for (g, group) in groups.iter_mut().enumerate() {
            group.d.copy_from_slice(&block[scale_at(0, g, lane)..][..2]);
            for (j, codes) in group.codes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                codes.copy_from_slice(word(block, 1 + 8 * g + j, lane));
                *codes = codes.map(|c| c ^ 0x80);
            }
        }
    }

    #[inline(always)]
    fn pairs<I: Isa>(isa: I, block: &[u8], mut each: impl FnMut(usize, I::F32, I::F32)) {
        let lines = lines(block);
        for g in 0..2 {
            let d = scales(isa, &lines[0], g);
            for j in 0..8 {
                let codes = isa.load_words(&lines[1 + 8 * g + j]);
                let first = 16 * g + 2 * j;
                let mut w = bytes(isa, codes);
                for w in &mut w {
                    *w = isa.mul(d, isa.sub(*w, isa.splat(128.0)));
                }
                each(first, w[0], w[1]);
                each(first + 1, w[2], w[3]);
            }
        }
    }

    #[inline(always)]
    fn dot<I: Isa, const N: usize>(isa: I, block: &[u8], x: &[CodedGroup<N>], sums: &mut [I::F32; N]) {
        let lines = lines(block);
        for g in 0..2 {
            let dots = byte_dots(isa, &lines[1 + 8 * g..][..8], &x[g]);
            add_scaled(isa, scales(isa, &lines[0], g), dots, &x[g], sums);
        }
    }
}

impl TileKind for U4 {
    type Group = q4_0::Group;
    const BLOCK_COLS: usize = 64;
    const BLOCK_GROUPS: usize = 2;
    const BLOCK_BYTES: usize = 9 * 64;
    const CODED: bool = true;

    fn store_lane(block: &mut [u8], lane: usize, groups: &[q4_0::Group]) {
        for (g, group) in groups.iter().enumerate() {
            block[scale_at(0, g, lane)..][..2].copy_from_slice(&group.d);
            for (j, nibbles) in group.nibbles.as_chunks::<4>().0.iter().enumerate() {
                word_mut(block, 1 + 4 * g + j, lane).copy_from_slice(nibbles);
            }
        }
    }

    fn load_lane(block: &[u8], lane: usize, groups: &mut [q4_0::Group]) {
        for (g, group) in groups.iter_mut().enumerate() {
            group.d.copy_from_slice(&block[scale_at(0, g, lane)..][..2]);
            for (j, nibbles) in group.nibbles.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                nibbles.copy_from_slice(word(block, 1 + 4 * g + j, lane));
            }
        }
    }

    #[inline(always)]
    fn pairs<I: Isa>(isa: I, block: &[u8], mut each: impl FnMut(usize, I::F32, I::F32)) {
        let lines = lines(block);
        for g in 0..2 {
            let d = scales(isa, &lines[0], g);
            for half in 0..2 {
                for j in 0..4 {
                    let codes = nibbles(isa, isa.load_words(&lines[1 + 4 * g + j]))[half];
                    let first = 16 * g + 8 * half + 2 * j;
                    let mut w = bytes(isa, codes);
                    for w in &mut w {
                        *w = isa.mul(d, isa.sub(*w, isa.splat(8.0)));
                    }
                    each(first, w[0], w[1]);
                    each(first + 1, w[2], w[3]);
                }
            }
        }
    }

    #[inline(always)]
    fn dot<I: Isa, const N: usize>(isa: I, block: &[u8], x: &[CodedGroup<N>], sums: &mut [I::F32; N]) {
        let lines = lines(block);
        for g in 0..2 {
            let dots = nibble_dots(isa, &lines[1 + 4 * g..][..4], &x[g], Some(&x[g][START_8]));
            add_scaled(isa, scales(isa, &lines[0], g), dots, &x[g], sums);
        }
    }
}

impl TileKind for U4Min {
    type Group = q4_1::Group;
    const BLOCK_COLS: usize = 64;
    const BLOCK_GROUPS: usize = 2;
    const BLOCK_BYTES: usize = 10 * 64;
    const CODED: bool = true;

    fn store_lane(block: &mut [u8], lane: usize, groups: &[q4_1::Group]) {
        for (g, group) in groups.iter().enumerate() {
            block[scale_at(0, g, lane)..][..2].copy_from_slice(&group.d);
            block[scale_at(1, g, lane)..][..2].copy_from_slice(&group.m);
            for (j, nibbles) in group.nibbles.as_chunks::<4>().0.iter().enumerate() {
                word_mut(block, 2 + 4 * g + j, lane).copy_from_slice(nibbles);
            }
        }
    }

    fn load_lane(block: &[u8], lane: usize, groups: &mut [q4_1::Group]) {
        for (g, group) in groups.iter_mut().enumerate() {
            group.d.copy_from_slice(&block[scale_at(0, g, lane)..][..2]);
            group.m.copy_from_slice(&block[scale_at(1, g, lane)..][..2]);
            for (j, nibbles) in group.nibbles.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                nibbles.copy_from_slice(word(block, 2 + 4 * g + j, lane));
            }
        }
    }

    #[inline(always)]
    fn pairs<I: Isa>(isa: I, block: &[u8], mut each: impl FnMut(usize, I::F32, I::F32)) {
        let lines = lines(block);
        for g in 0..2 {
            let (d, m) = (scales(isa, &lines[0], g), scales(isa, &lines[1], g));
            for half in 0..2 {
                for j in 0..4 {
                    let codes = nibbles(isa, isa.load_words(&lines[2 + 4 * g + j]))[half];
                    let first = 16 * g + 8 * half + 2 * j;
                    let mut w = bytes(isa, codes);
                    for w in &mut w {
                        *w = isa.add(isa.mul(d, *w), m);
                    }
                    each(first, w[0], w[1]);
                    each(first + 1, w[2], w[3]);
                }
            }
        }
    }

    #[inline(always)]
    fn dot<I: Isa, const N: usize>(isa: I, block: &[u8], x: &[CodedGroup<N>], sums: &mut [I::F32; N]) {
        let lines = lines(block);
        for g in 0..2 {
            let dots = nibble_dots(isa, &lines[2 + 4 * g..][..4], &x[g], None);
            add_scaled(isa, scales(isa, &lines[0], g), dots, &x[g], sums);
            add_minimum(isa, scales(isa, &lines[1], g), &x[g], sums);
        }
    }
}
