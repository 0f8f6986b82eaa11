//! `bf16`: the upper 16 bits of an f32, two little-endian bytes a weight.

use super::{Codes, WeightScheme};
use crate::activations::Activations;
use crate::half::{BF16_MAX_BITS, bf16_to_f32, f32_to_bf16};
use crate::tile::DenseBf16;

/// The scheme `bf16`.
pub struct Bf16;

impl WeightScheme for Bf16 {
    const NAME: &'static str = "bf16";
    const GGML_TYPE: u32 = 30;
    const FILE_TYPE: u32 = 32;
    const CONVERTS: bool = true;
    const GROUP_LEN: usize = 1;
    const CODES_LEN: usize = 0;
    const ACTIVATIONS: Activations = Activations::Bf16;
    type Group = [u8; 2];
    type Tile = DenseBf16;

    #[inline(always)]
    fn decode(group: &[u8; 2], out: &mut [f32]) {
        out[0] = bf16_to_f32(u16::from_le_bytes(*group));
    }

    /// To nearest even; the few f32 that would round to infinity become the largest finite value.
    fn encode(values: &[f32]) -> Option<[u8; 2]> {
        let bits = f32_to_bf16(values[0]);
        let finite = if bits & 0x7fff > BF16_MAX_BITS { (bits & 0x8000) | BF16_MAX_BITS } else { bits };
        Some(finite.to_le_bytes())
    }

    #[inline(always)]
    fn is_finite(group: &[u8; 2]) -> bool {
        u16::from_le_bytes(*group) & 0x7fff <= BF16_MAX_BITS
    }

    fn codes(_: &[u8; 2], _: usize) -> Option<Codes> {
        None
    }
}
