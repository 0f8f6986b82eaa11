//! The layout of the key-value cache: what a block of 32 positions of one layer looks like in memory.
//!
//! ```text
//! block = for each kv head: keys, then values
//! f32    keys  [head_dim][32 positions]               values [32 positions][value_dim]
//! bf16   keys  [head_dim / 2][32 positions] words     values [16 pairs of positions][value_dim] words
//!        (a word holds two bf16: dimensions 2i (low half) and 2i + 1, or positions 2i and 2i + 1)
//! q8_0   keys    scales [groups][32 positions] f16, then codes XOR 0x80, words of 4 dimensions, [2][groups][8][16 positions]
//!        values  scales [groups][32 positions] f16, then codes [32 positions][value_dim] i8
//!        (a group is 32 dimensions of one position, coded as the weight scheme of that name)
//! ```
//!
//! Lanes are positions for the scores and dimensions for the weighted sum of values, so neither adds across lanes.
//! `value_dim` is `head_dim` padded to 32. Which block belongs to which sequence is not known here.

mod lanes;

pub(crate) use lanes::BlockProbabilities;
pub(crate) use lanes::{Bf16Lanes, F32Lanes, KvLanes, Q8Lanes, Values};

use crate::half::{bf16_to_f32, f16_to_f32, f32_to_bf16};
use crate::isa::{Isa, LANES};
use crate::schemes::q8_0;

/// Dimensions that share a scale, and that values are padded to.
const GROUP_DIMS: usize = 32;

/// Positions of a block.
pub const BLOCK_TOKENS: usize = 32;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvScheme {
    /// As computed; for the tight gates.
    F32,
    /// Rounded to bf16.
    Bf16,
    /// Groups of 32 dimensions as signed bytes with an f16 scale.
    Q8_0,
}

impl KvScheme {
    /// Every scheme.
    pub const ALL: &'static [KvScheme] = &[KvScheme::F32, KvScheme::Bf16, KvScheme::Q8_0];

    /// The name, as flags and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            KvScheme::F32 => "f32",
            KvScheme::Bf16 => "bf16",
            KvScheme::Q8_0 => "q8_0",
        }
    }

    /// The scheme of that name.
    pub fn from_name(name: &str) -> Option<KvScheme> {
        KvScheme::ALL.iter().copied().find(|s| s.name() == name)
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
        self.head_dim.next_multiple_of(GROUP_DIMS)
    }

    /// Groups of 32 dimensions of a head.
    fn groups(&self) -> usize {
        self.head_dim.div_ceil(GROUP_DIMS)
    }

    /// Bytes of a block's keys and of its values, one head.
    fn parts(&self) -> (usize, usize) {
        match self.scheme {
            KvScheme::F32 => (BLOCK_TOKENS * self.head_dim * 4, BLOCK_TOKENS * self.value_dim() * 4),
            KvScheme::Bf16 => {
                (BLOCK_TOKENS * self.head_dim.div_ceil(2) * 4, BLOCK_TOKENS * self.value_dim() * 2)
            }
            KvScheme::Q8_0 => {
                let bytes = self.groups() * BLOCK_TOKENS * (2 + GROUP_DIMS);
                (bytes, bytes)
            }
        }
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

    /// Stores the keys and values of consecutive positions, `[positions, n_kv_heads * head_dim]` each, at the slots of
    /// a block from `slot` (0 to 31) on.
    ///
    /// # Panics
    /// If a length is not the layout's or a slot is outside the block.
    #[inline(always)]
    pub fn write_slots<I: Isa>(&self, isa: I, block: &mut [u8], slot: usize, k: &[f32], v: &[f32]) {
        let width = self.n_kv_heads * self.head_dim;
        let positions = k.len().checked_div(width).unwrap_or(0);
        self.check(block.len(), slot + positions.saturating_sub(1), k.len(), v.len(), positions);
        for (head, block) in block.chunks_exact_mut(self.head_bytes()).enumerate() {
            let (keys, values) = block.split_at_mut(self.parts().0);
            for position in 0..positions {
                let at = position * width + head * self.head_dim;
                self.write_head(
                    isa,
                    keys,
                    values,
                    slot + position,
                    &k[at..at + self.head_dim],
                    &v[at..at + self.head_dim],
                );
            }
        }
    }

    /// One head of one position.
    #[inline(always)]
    fn write_head<I: Isa>(
        &self,
        isa: I,
        keys: &mut [u8],
        values: &mut [u8],
        slot: usize,
        k: &[f32],
        v: &[f32],
    ) {
        let value_dim = self.value_dim();
        match self.scheme {
            KvScheme::F32 => {
                for (d, (k, v)) in k.iter().zip(v).enumerate() {
                    *number(keys, d * BLOCK_TOKENS + slot) = k.to_le_bytes();
                    *number(values, slot * value_dim + d) = v.to_le_bytes();
                }
            }
            KvScheme::Bf16 => {
                let words = keys.as_chunks_mut::<4>().0[slot..].iter_mut().step_by(BLOCK_TOKENS);
                for (word, pair) in words.zip(k.chunks(2)) {
                    let half = |i: usize| f32_to_bf16(pair.get(i).copied().unwrap_or(0.0)).to_le_bytes();
                    let (even, odd) = (half(0), half(1));
                    *word = [even[0], even[1], odd[0], odd[1]];
                }
                let halves = values[slot / 2 * value_dim * 4..].as_chunks_mut::<2>().0;
                for (half, v) in halves[slot % 2..].iter_mut().step_by(2).zip(v) {
                    *half = f32_to_bf16(*v).to_le_bytes();
                }
            }
            KvScheme::Q8_0 => {
                let (k_scales, k_codes) = keys.split_at_mut(self.groups() * BLOCK_TOKENS * 2);
                let (v_scales, v_codes) = values.split_at_mut(self.groups() * BLOCK_TOKENS * 2);
                for (g, (k, v)) in k.chunks(GROUP_DIMS).zip(v.chunks(GROUP_DIMS)).enumerate() {
                    let (k, v) = (q8_group(isa, k), q8_group(isa, v));
                    *number(k_scales, g * BLOCK_TOKENS + slot) = k.d;
                    *number(v_scales, g * BLOCK_TOKENS + slot) = v.d;
                    for (j, codes) in k.codes.as_chunks::<4>().0.iter().enumerate() {
                        *number(k_codes, self.code_word(g, j, slot)) = codes.map(|c| c ^ 0x80);
                    }
                    v_codes[slot * value_dim + g * GROUP_DIMS..][..GROUP_DIMS].copy_from_slice(&v.codes);
                }
            }
        }
    }

    /// The word of a q8_0 store that holds dimensions `32 g + 4 j ..` of the key at a slot.
    #[inline(always)]
    fn code_word(&self, g: usize, j: usize, slot: usize) -> usize {
        ((slot / LANES * self.groups() + g) * 8 + j) * LANES + slot % LANES
    }

    /// Reads the keys and values of one position back, widened: the canonical layout, `[n_kv_heads * head_dim]` each.
    ///
    /// # Panics
    /// If a length is not the layout's or the slot is outside the block.
    pub fn read_slot(&self, block: &[u8], slot: usize, k: &mut [f32], v: &mut [f32]) {
        self.check(block.len(), slot, k.len(), v.len(), 1);
        let heads = k.chunks_exact_mut(self.head_dim).zip(v.chunks_exact_mut(self.head_dim));
        for (head, (k, v)) in heads.enumerate() {
            let (keys, values) = self.head(block, head);
            for (d, (k, v)) in k.iter_mut().zip(v).enumerate() {
                (*k, *v) = self.read_number(keys, values, slot, d);
            }
        }
    }

    /// Dimension `d` of the key and of the value at `slot`, widened.
    fn read_number(&self, keys: &[u8], values: &[u8], slot: usize, d: usize) -> (f32, f32) {
        let value_dim = self.value_dim();
        match self.scheme {
            KvScheme::F32 => {
                let f32_at = |bytes: &[u8], at: usize| f32::from_le_bytes(bytes.as_chunks().0[at]);
                (f32_at(keys, d * BLOCK_TOKENS + slot), f32_at(values, slot * value_dim + d))
            }
            KvScheme::Bf16 => {
                let bf16_at =
                    |bytes: &[u8], at: usize| bf16_to_f32(u16::from_le_bytes(bytes.as_chunks().0[at]));
                (
                    bf16_at(keys, (d / 2 * BLOCK_TOKENS + slot) * 2 + d % 2),
                    bf16_at(values, (slot / 2 * value_dim + d) * 2 + slot % 2),
                )
            }
            KvScheme::Q8_0 => {
                let (g, scales_bytes) = (d / GROUP_DIMS, self.groups() * BLOCK_TOKENS * 2);
                let scale_at = |bytes: &[u8]| {
                    f16_to_f32(u16::from_le_bytes(bytes.as_chunks().0[g * BLOCK_TOKENS + slot]))
                };
                let word = self.code_word(g, d % GROUP_DIMS / 4, slot);
                let k = (keys[scales_bytes + word * 4 + d % 4] ^ 0x80).cast_signed();
                let v = values[scales_bytes + slot * value_dim + d].cast_signed();
                (scale_at(keys) * f32::from(k), scale_at(values) * f32::from(v))
            }
        }
    }

    fn check(&self, block_bytes: usize, last_slot: usize, k: usize, v: usize, positions: usize) {
        assert!(last_slot < BLOCK_TOKENS, "slot {last_slot} of {BLOCK_TOKENS}");
        assert_eq!(block_bytes, self.block_bytes(), "a block of another size");
        let expected = positions * self.n_kv_heads * self.head_dim;
        assert_eq!((k, v), (expected, expected), "another width");
    }
}

/// The `N` bytes of number `at`.
#[inline(always)]
fn number<const N: usize>(bytes: &mut [u8], at: usize) -> &mut [u8; N] {
    &mut bytes.as_chunks_mut().0[at]
}

/// Up to 32 values as one group of q8_0, the missing ones zero: the scheme's own encoding, in lanes. Values that are not
/// finite give a scale that is not, so that they show in every result.
#[inline(always)]
fn q8_group<I: Isa>(isa: I, values: &[f32]) -> q8_0::Group {
    let mut padded = [0.0; GROUP_DIMS];
    padded[..values.len()].copy_from_slice(values);
    let halves = padded.as_chunks().0;
    let (low, high) = (isa.load(&halves[0]), isa.load(&halves[1]));
    let magnitude = isa.splat_word(i32::MAX);
    let largest =
        isa.max_words(isa.and(isa.as_words(low), magnitude), isa.and(isa.as_words(high), magnitude));
    let largest = f32::from_bits(isa.reduce_max_words(largest).cast_unsigned());
    if !largest.is_finite() {
        return q8_0::Group { d: [0, 0x7c], codes: [1; GROUP_DIMS] };
    }
    let bits = q8_0::scale_bits(largest);
    let d = f16_to_f32(bits);
    let mut codes = [0; GROUP_DIMS];
    if d != 0.0 {
        // Adding 1.5 * 2^23 rounds to nearest even and leaves the code in the lowest byte.
        let (d, bound, round) = (isa.splat(d), isa.splat(127.0), isa.splat(12_582_912.0));
        for (half, codes) in [low, high].iter().zip(codes.as_chunks_mut::<LANES>().0) {
            let v = isa.min(isa.max(isa.div(*half, d), isa.sub(isa.splat(0.0), bound)), bound);
            *codes = isa.low_bytes(isa.as_words(isa.add(v, round)));
        }
    }
    q8_0::Group { d: bits.to_le_bytes(), codes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::scalar::Scalar;

    #[test]
    fn every_slot_comes_back_and_touches_no_other() {
        for scheme in KvScheme::ALL.iter().copied() {
            assert_eq!(KvScheme::from_name(scheme.name()), Some(scheme));
            for (n_kv_heads, head_dim) in [(2, 64), (1, 32), (3, 96), (2, 10)] {
                let layout = KvLayout { scheme, n_kv_heads, head_dim };
                let width = n_kv_heads * head_dim;
                let mut block = vec![0; layout.block_bytes()];
                // Integers under 128 are exact in every scheme, with a group's largest at 127.
                let number = |slot: usize, i: usize, salt: usize| match i % head_dim % 32 {
                    0 => 127.0,
                    _ => ((slot * 7 + i * 3 + salt) % 255) as f32 - 127.0,
                };
                let row = |slot, salt| (0..width).map(|i| number(slot, i, salt)).collect::<Vec<_>>();
                for slot in 0..BLOCK_TOKENS {
                    layout.write_slots(Scalar, &mut block, slot, &row(slot, 0), &row(slot, 91));
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
