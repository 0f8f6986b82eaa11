//! Tiles of weights that are plain floats: blocks of two columns.

use super::{TileKind, lines, word, word_mut};
use crate::activations::CodedGroup;
use crate::isa::Isa;

/// bf16: one line, a word holding the even column (low half) and the odd one.
pub struct DenseBf16;

/// f16: the same picture as bf16. It is never turned into bf16, which would lose bits.
pub struct DenseF16;

/// f32: a line of the even column, a line of the odd one.
pub struct DenseF32;

/// Puts two 16-bit weights into a lane's word.
fn store_halves(block: &mut [u8], lane: usize, groups: &[[u8; 2]]) {
    word_mut(block, 0, lane).copy_from_slice(groups.as_flattened());
}

/// Takes two 16-bit weights out of a lane's word.
fn load_halves(block: &[u8], lane: usize, groups: &mut [[u8; 2]]) {
    groups.as_flattened_mut().copy_from_slice(word(block, 0, lane));
}

impl TileKind for DenseBf16 {
    type Group = [u8; 2];
    const BLOCK_COLS: usize = 2;
    const BLOCK_GROUPS: usize = 2;
    const BLOCK_BYTES: usize = 64;
    const CODED: bool = false;

    fn store_lane(block: &mut [u8], lane: usize, groups: &[[u8; 2]]) {
        store_halves(block, lane, groups);
    }

    fn load_lane(block: &[u8], lane: usize, groups: &mut [[u8; 2]]) {
        load_halves(block, lane, groups);
    }

    #[inline(always)]
    fn pairs<I: Isa>(isa: I, block: &[u8], mut each: impl FnMut(usize, I::F32, I::F32)) {
        let (even, odd) = isa.bf16_pair(isa.load_words(&lines(block)[0]));
        each(0, even, odd);
    }

    #[inline(always)]
    fn dot<I: Isa, const N: usize>(_: I, _: &[u8], _: &[CodedGroup<N>], _: &mut [I::F32; N]) {}
}

impl TileKind for DenseF16 {
    type Group = [u8; 2];
    const BLOCK_COLS: usize = 2;
    const BLOCK_GROUPS: usize = 2;
    const BLOCK_BYTES: usize = 64;
    const CODED: bool = false;

    fn store_lane(block: &mut [u8], lane: usize, groups: &[[u8; 2]]) {
        store_halves(block, lane, groups);
    }

    fn load_lane(block: &[u8], lane: usize, groups: &mut [[u8; 2]]) {
        load_halves(block, lane, groups);
    }

    #[inline(always)]
    fn pairs<I: Isa>(isa: I, block: &[u8], mut each: impl FnMut(usize, I::F32, I::F32)) {
        let (even, odd) = isa.f16_pair(isa.load_words(&lines(block)[0]));
        each(0, even, odd);
    }

    #[inline(always)]
    fn dot<I: Isa, const N: usize>(_: I, _: &[u8], _: &[CodedGroup<N>], _: &mut [I::F32; N]) {}
}

impl TileKind for DenseF32 {
    type Group = [u8; 4];
    const BLOCK_COLS: usize = 2;
    const BLOCK_GROUPS: usize = 2;
    const BLOCK_BYTES: usize = 128;
    const CODED: bool = false;

    fn store_lane(block: &mut [u8], lane: usize, groups: &[[u8; 4]]) {
        for (line, group) in groups.iter().enumerate() {
            word_mut(block, line, lane).copy_from_slice(group);
        }
    }

    fn load_lane(block: &[u8], lane: usize, groups: &mut [[u8; 4]]) {
        for (line, group) in groups.iter_mut().enumerate() {
            group.copy_from_slice(word(block, line, lane));
        }
    }

    #[inline(always)]
    fn pairs<I: Isa>(isa: I, block: &[u8], mut each: impl FnMut(usize, I::F32, I::F32)) {
        let lines = lines(block);
        each(0, isa.load_le(&lines[0]), isa.load_le(&lines[1]));
    }

    #[inline(always)]
    fn dot<I: Isa, const N: usize>(_: I, _: &[u8], _: &[CodedGroup<N>], _: &mut [I::F32; N]) {}
}
