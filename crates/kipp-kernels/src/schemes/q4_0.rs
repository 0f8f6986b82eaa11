//! `q4_0`: 32 weights in 18 bytes.
//!
//! ```text
//! byte 0..2   d, f16        byte 2..18   16 x two nibbles: byte i holds q[i] (low) and q[i + 16] (high)
//! w[k] = d * (q[k] - 8)
//! ```

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, finite_f16, nibbles, read_f16};
use crate::activations::Activations;
use crate::half::f16_to_f32;
use crate::tile::{Coded, CodedWeights, Single, U4};

/// The scheme `q4_0`.
pub struct Q4_0;

/// Bytes of one group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    d: [u8; 2],
    nibbles: [u8; 16],
}

const _: () = assert!(size_of::<Group>() == 18);

impl CodedWeights for Group {
    type Codes = U4;
    type Scales = Single;
    const F16_AT: &'static [usize] = &[0];

    #[inline(always)]
    fn unsigned_codes(&self, _: usize) -> [u8; 32] {
        nibbles::unpack(&self.nibbles)
    }

    #[inline(always)]
    fn insert_codes(&mut self, _: usize, codes: &[u8; 32]) {
        self.nibbles = nibbles::pack(codes);
    }
}

impl WeightScheme for Q4_0 {
    const NAME: &'static str = "q4_0";
    const GGML_TYPE: u32 = 2;
    const FILE_TYPE: u32 = 2;
    const CONVERTS: bool = true;
    const GROUP_LEN: usize = 32;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        let d = read_f16(group.d);
        for (out, code) in out.iter_mut().zip(nibbles::unpack(&group.nibbles)) {
            *out = d * (f32::from(code) - 8.0);
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
        let codes = std::array::from_fn(|i| code(values[i]));
        Some(Group { d: bits.to_le_bytes(), nibbles: nibbles::pack(&codes) })
    }

    fn codes(group: &Group, _: usize) -> Option<Codes> {
        let codes = nibbles::unpack(&group.nibbles).map(|code| code.cast_signed() - 8);
        Some(Codes { scale: read_f16(group.d), offset: 0.0, codes })
    }
}
