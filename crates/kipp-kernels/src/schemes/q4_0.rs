//! `q4_0`: 32 weights in 18 bytes.
//!
//! ```text
//! byte 0..2   d, f16        byte 2..18   16 x two nibbles: byte i holds q[i] (low) and q[i + 16] (high)
//! w[k] = d * (q[k] - 8)
//! ```

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, finite_f16, is_finite_f16, read_f16};
use crate::activations::Activations;
use crate::half::f16_to_f32;
use crate::tile::U4;

/// The scheme `q4_0`.
pub struct Q4_0;

/// Bytes of one group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    pub(crate) d: [u8; 2],
    pub(crate) nibbles: [u8; 16],
}

const _: () = assert!(size_of::<Group>() == 18);

impl WeightScheme for Q4_0 {
    const NAME: &'static str = "q4_0";
    const GGML_TYPE: u32 = 2;
    const FILE_TYPE: u32 = 2;
    const CONVERTS: bool = true;
    const GROUP_LEN: usize = 32;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = U4;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        let d = read_f16(group.d);
        let (low, high) = out.split_at_mut(16);
        for ((low, high), &byte) in low.iter_mut().zip(high).zip(&group.nibbles) {
            *low = d * (f32::from(byte & 15) - 8.0);
            *high = d * (f32::from(byte >> 4) - 8.0);
        }
    }

    /// d = (the value of largest magnitude, the first of equals) / -8 rounded to f16, codes rounded against that d.
    /// A d that rounds to zero gives code 8, all zeros; one beyond f16 becomes 65,504 and the codes saturate.
    fn encode(values: &[f32]) -> Option<Group> {
        let largest = values.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m });
        let bits = finite_f16(largest / -8.0);
        let d = f16_to_f32(bits);
        let code = |value: f32| {
            if d == 0.0 { 8 } else { ((value / d).round_ties_even() + 8.0).clamp(0.0, 15.0) as u8 }
        };
        // A scale that rounded to minus zero is written as zero, so that zeros decode to +0.
        let bits = if d == 0.0 { 0 } else { bits };
        let mut group = Group { d: bits.to_le_bytes(), nibbles: [0; 16] };
        for (i, byte) in group.nibbles.iter_mut().enumerate() {
            *byte = code(values[i]) | (code(values[i + 16]) << 4);
        }
        Some(group)
    }

    #[inline(always)]
    fn is_finite(group: &Group) -> bool {
        is_finite_f16(group.d)
    }

    fn codes(group: &Group, _: usize) -> Option<Codes> {
        let mut codes = [0i8; 32];
        for (i, &byte) in group.nibbles.iter().enumerate() {
            codes[i] = (byte & 15).cast_signed() - 8;
            codes[i + 16] = (byte >> 4).cast_signed() - 8;
        }
        Some(Codes { scale: read_f16(group.d), offset: 0.0, codes })
    }
}
