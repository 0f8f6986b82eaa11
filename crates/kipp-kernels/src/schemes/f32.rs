//! `f32`: four little-endian bytes a weight.

use super::{Codes, WeightScheme};
use crate::activations::Activations;
use crate::tile::DenseF32;

/// The scheme `f32`.
pub struct F32;

impl WeightScheme for F32 {
    const NAME: &'static str = "f32";
    const GGML_TYPE: u32 = 0;
    const FILE_TYPE: u32 = 0;
    const CONVERTS: bool = false;
    const GROUP_LEN: usize = 1;
    const CODES_LEN: usize = 0;
    const ACTIVATIONS: Activations = Activations::F32;
    type Group = [u8; 4];
    type Tile = DenseF32;

    #[inline(always)]
    fn decode(group: &[u8; 4], out: &mut [f32]) {
        out[0] = f32::from_le_bytes(*group);
    }

    fn encode(values: &[f32]) -> Option<[u8; 4]> {
        Some(values[0].to_le_bytes())
    }

    #[inline(always)]
    fn is_finite(group: &[u8; 4]) -> bool {
        f32::from_le_bytes(*group).is_finite()
    }

    fn codes(_: &[u8; 4], _: usize) -> Option<Codes> {
        None
    }
}
