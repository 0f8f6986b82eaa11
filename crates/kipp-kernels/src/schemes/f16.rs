//! `f16`: IEEE binary16, two little-endian bytes a weight.

use super::{Codes, WeightScheme, finite_f16, is_finite_f16, read_f16};
use crate::activations::Activations;
use crate::half::f32_to_f16;
use crate::tile::DenseF16;

/// The scheme `f16`.
pub struct F16;

impl WeightScheme for F16 {
    const NAME: &'static str = "f16";
    const GGML_TYPE: u32 = 1;
    const FILE_TYPE: u32 = 1;
    const CONVERTS: bool = true;
    const GROUP_LEN: usize = 1;
    const CODES_LEN: usize = 0;
    const ACTIVATIONS: Activations = Activations::F32;
    type Group = [u8; 2];
    type Tile = DenseF16;

    #[inline(always)]
    fn decode(group: &[u8; 2], out: &mut [f32]) {
        out[0] = read_f16(*group);
    }

    /// To nearest even; beyond 65,504 the largest finite value. The sign of zero stays.
    fn encode(values: &[f32]) -> Option<[u8; 2]> {
        let bits = if values[0] == 0.0 { f32_to_f16(values[0]) } else { finite_f16(values[0]) };
        Some(bits.to_le_bytes())
    }

    #[inline(always)]
    fn is_finite(group: &[u8; 2]) -> bool {
        is_finite_f16(*group)
    }

    fn codes(_: &[u8; 2], _: usize) -> Option<Codes> {
        None
    }
}
