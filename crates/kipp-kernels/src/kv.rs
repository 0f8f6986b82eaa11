//! The layout of the key-value cache: what a block of 32 positions of one layer looks like in memory.
//!
//! ```text
//! block = for each kv head: keys, then values
//! f32    keys  [head_dim][32 positions]               values [32 positions][value_dim]
//! bf16   keys  [head_dim / 2][32 positions] words     values [16 pairs of positions][value_dim] words
//!        (a word holds two bf16: dimensions 2i (low half) and 2i + 1, or positions 2i and 2i + 1)
//! ```
//!
//! Lanes are positions for the scores and dimensions for the weighted sum of values, so neither adds across lanes.
//! `value_dim` is `head_dim` padded to 16 lanes. Which block belongs to which sequence is not known here.

use crate::half::{bf16_to_f32, f32_to_bf16};
use crate::isa::{Isa, LANES};

/// Positions of a block.
pub const BLOCK_TOKENS: usize = 32;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvScheme {
    /// As computed; for the tight gates.
    F32,
    /// Rounded to bf16.
    Bf16,
}

impl KvScheme {
    /// Every scheme.
    pub const ALL: &'static [KvScheme] = &[KvScheme::F32, KvScheme::Bf16];

    /// The name, as flags and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            KvScheme::F32 => "f32",
            KvScheme::Bf16 => "bf16",
        }
    }

    /// The scheme of that name.
    pub fn from_name(name: &str) -> Option<KvScheme> {
        KvScheme::ALL.iter().copied().find(|s| s.name() == name)
    }

    /// Bytes of one stored number.
    fn number_bytes(self) -> usize {
        match self {
            KvScheme::F32 => 4,
            KvScheme::Bf16 => 2,
        }
    }
}

/// The shape of one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// How numbers are stored.
    pub scheme: KvScheme,
    /// Key-value heads.
    pub n_kv_heads: usize,
    /// Width of a head, even.
    pub head_dim: usize,
}

impl KvLayout {
    /// Bytes of a block: 32 positions of one layer, all heads.
    pub fn block_bytes(&self) -> usize {
        self.n_kv_heads * self.head_bytes()
    }

    /// Dimensions of a value with the padding.
    pub(crate) fn value_dim(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Bytes of a block's keys and of its values, one head.
    fn parts(&self) -> (usize, usize) {
        let number = self.scheme.number_bytes();
        (BLOCK_TOKENS * self.head_dim * number, BLOCK_TOKENS * self.value_dim() * number)
    }

    fn head_bytes(&self) -> usize {
        let (keys, values) = self.parts();
        keys + values
    }

    /// The keys and the values of one head of a block.
    #[inline(always)]
    pub(crate) fn head<'a>(&self, block: &'a [u8], head: usize) -> (&'a [u8], &'a [u8]) {
        block[head * self.head_bytes()..][..self.head_bytes()].split_at(self.parts().0)
    }

    /// Where number `d` of the key at `slot` begins, and that of the value, in their parts.
    #[inline(always)]
    fn offsets(&self, slot: usize, d: usize) -> (usize, usize) {
        match self.scheme {
            KvScheme::F32 => ((d * BLOCK_TOKENS + slot) * 4, (slot * self.value_dim() + d) * 4),
            KvScheme::Bf16 => (
                (d / 2 * BLOCK_TOKENS + slot) * 4 + d % 2 * 2,
                (slot / 2 * self.value_dim() + d) * 4 + slot % 2 * 2,
            ),
        }
    }

    /// Stores the keys and values of one position, each `[n_kv_heads * head_dim]`, at `slot` (0 to 31) of a block.
    ///
    /// # Panics
    /// If a length is not the layout's or the slot is outside the block.
    #[inline(always)]
    pub fn write_slot(&self, block: &mut [u8], slot: usize, k: &[f32], v: &[f32]) {
        self.check(block.len(), slot, k.len(), v.len());
        let heads = block.chunks_exact_mut(self.head_bytes());
        for ((block, k), v) in heads.zip(k.chunks_exact(self.head_dim)).zip(v.chunks_exact(self.head_dim)) {
            let (keys, values) = block.split_at_mut(self.parts().0);
            for (d, (&k, &v)) in k.iter().zip(v).enumerate() {
                let (at_k, at_v) = self.offsets(slot, d);
                match self.scheme {
                    KvScheme::F32 => {
                        keys[at_k..at_k + 4].copy_from_slice(&k.to_le_bytes());
                        values[at_v..at_v + 4].copy_from_slice(&v.to_le_bytes());
                    }
                    KvScheme::Bf16 => {
                        keys[at_k..at_k + 2].copy_from_slice(&f32_to_bf16(k).to_le_bytes());
                        values[at_v..at_v + 2].copy_from_slice(&f32_to_bf16(v).to_le_bytes());
                    }
                }
            }
        }
    }

    /// Reads the keys and values of one position back, widened: the canonical layout, `[n_kv_heads * head_dim]` each.
    ///
    /// # Panics
    /// As [`KvLayout::write_slot`].
    pub fn read_slot(&self, block: &[u8], slot: usize, k: &mut [f32], v: &mut [f32]) {
        self.check(block.len(), slot, k.len(), v.len());
        let heads = k.chunks_exact_mut(self.head_dim).zip(v.chunks_exact_mut(self.head_dim));
        for (head, (k, v)) in heads.enumerate() {
            let (keys, values) = self.head(block, head);
            for (d, (k, v)) in k.iter_mut().zip(v).enumerate() {
                let (at_k, at_v) = self.offsets(slot, d);
                *k = self.read_number(&keys[at_k..]);
                *v = self.read_number(&values[at_v..]);
            }
        }
    }

    fn read_number(&self, bytes: &[u8]) -> f32 {
        match self.scheme {
            KvScheme::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            KvScheme::Bf16 => bf16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]])),
        }
    }

    fn check(&self, block_bytes: usize, slot: usize, k: usize, v: usize) {
        assert!(slot < BLOCK_TOKENS, "slot {slot} of {BLOCK_TOKENS}");
        assert_eq!(block_bytes, self.block_bytes(), "a block of another size");
        assert_eq!(
            (k, v),
            (self.n_kv_heads * self.head_dim, self.n_kv_heads * self.head_dim),
            "another width"
        );
    }
}

/// How lanes read a stored scheme; one implementation a [`KvScheme`].
pub(crate) trait KvLanes: 'static {
    /// Dimensions `2 * pair` and `2 * pair + 1` of the keys at positions `16 * half ..`.
    fn key_pair<I: Isa>(isa: I, keys: &[u8], pair: usize, half: usize) -> (I::F32, I::F32);

    /// Dimensions `16 * part ..` of the values at positions `2 * pair` and `2 * pair + 1`.
    fn value_pair<I: Isa>(isa: I, values: &[u8], parts: usize, pair: usize, part: usize) -> (I::F32, I::F32);
}

/// [`KvScheme::F32`].
pub(crate) struct F32Lanes;

/// [`KvScheme::Bf16`].
pub(crate) struct Bf16Lanes;

impl KvLanes for F32Lanes {
    #[inline(always)]
    fn key_pair<I: Isa>(isa: I, keys: &[u8], pair: usize, half: usize) -> (I::F32, I::F32) {
        let lines = keys.as_chunks::<64>().0;
        (isa.load_le(&lines[4 * pair + half]), isa.load_le(&lines[4 * pair + 2 + half]))
    }

    #[inline(always)]
    fn value_pair<I: Isa>(isa: I, values: &[u8], parts: usize, pair: usize, part: usize) -> (I::F32, I::F32) {
        let lines = values.as_chunks::<64>().0;
        (isa.load_le(&lines[2 * pair * parts + part]), isa.load_le(&lines[(2 * pair + 1) * parts + part]))
    }
}

impl KvLanes for Bf16Lanes {
    #[inline(always)]
    fn key_pair<I: Isa>(isa: I, keys: &[u8], pair: usize, half: usize) -> (I::F32, I::F32) {
        isa.bf16_pair(isa.load_words(&keys.as_chunks::<64>().0[2 * pair + half]))
    }

    #[inline(always)]
    fn value_pair<I: Isa>(isa: I, values: &[u8], parts: usize, pair: usize, part: usize) -> (I::F32, I::F32) {
        isa.bf16_pair(isa.load_words(&values.as_chunks::<64>().0[pair * parts + part]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_comes_back_and_touches_no_other() {
        for scheme in KvScheme::ALL.iter().copied() {
            assert_eq!(KvScheme::from_name(scheme.name()), Some(scheme));
            for (n_kv_heads, head_dim) in [(2, 64), (1, 32), (3, 96), (2, 10)] {
                let layout = KvLayout { scheme, n_kv_heads, head_dim };
                let width = n_kv_heads * head_dim;
                let mut block = vec![0; layout.block_bytes()];
                // Integers under 256 are exact in bf16.
                let number =
                    |slot: usize, i: usize, salt: usize| ((slot * 7 + i * 3 + salt) % 255) as f32 - 128.0;
                let row = |slot, salt| (0..width).map(|i| number(slot, i, salt)).collect::<Vec<_>>();
                for slot in 0..BLOCK_TOKENS {
                    layout.write_slot(&mut block, slot, &row(slot, 0), &row(slot, 91));
                }
                let (mut k, mut v) = (vec![0.0; width], vec![0.0; width]);
                for slot in (0..BLOCK_TOKENS).rev() {
                    layout.read_slot(&block, slot, &mut k, &mut v);
                    assert_eq!((&k, &v), (&row(slot, 0), &row(slot, 91)), "{scheme:?} slot {slot}");
                }
            }
        }
    }

    #[test]
    fn a_true_shape_has_no_padding() {
        let layout = KvLayout { scheme: KvScheme::Bf16, n_kv_heads: 8, head_dim: 128 };
        assert_eq!(layout.block_bytes(), 2 * 32 * 8 * 128 * 2);
    }
}
