//! `q8_0`: 32 weights in 34 bytes.
//!
//! ```text
//! byte 0..2   d, f16        byte 2..34   q, 32 x i8
//! w[k] = d * q[k]
//! ```

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, finite_f16, read_f16};
use crate::activations::Activations;
use crate::half::f16_to_f32;
use crate::tile::{Coded, CodedWeights, Single, U8};

/// The scheme `q8_0`.
pub struct Q8_0;

/// Bytes of one group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    pub(crate) d: [u8; 2],
    pub(crate) codes: [u8; 32],
}

const _: () = assert!(size_of::<Group>() == 34);

/// The f16 scale of a group whose largest magnitude is given.
pub(crate) fn scale_bits(largest: f32) -> u16 {
    finite_f16(largest / 127.0)
}

impl CodedWeights for Group {
    type Codes = U8;
    type Scales = Single;
    const F16_AT: &'static [usize] = &[0];

    #[inline(always)]
    fn unsigned_codes(&self, _: usize) -> [u8; 32] {
        self.codes.map(|code| code ^ 0x80)
    }

    #[inline(always)]
    fn insert_codes(&mut self, _: usize, codes: &[u8; 32]) {
        self.codes = codes.map(|code| code ^ 0x80);
    }
}

impl WeightScheme for Q8_0 {
    const NAME: &'static str = "q8_0";
    const GGML_TYPE: u32 = 8;
    const FILE_TYPE: u32 = 7;
    const CONVERTS: bool = true;
    const GROUP_LEN: usize = 32;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        let d = read_f16(group.d);
        for (out, &code) in out.iter_mut().zip(&group.codes) {
            *out = d * f32::from(code.cast_signed());
        }
    }

    /// d = max |w| / 127 rounded to f16, codes rounded against that d. A d that rounds to zero gives all zeros; one
    /// beyond f16 becomes 65,504 and the codes saturate.
    fn encode(values: &[f32]) -> Option<Group> {
        let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let bits = scale_bits(largest);
        let d = f16_to_f32(bits);
        let mut group = Group { d: bits.to_le_bytes(), codes: [0; 32] };
        if d != 0.0 {
            for (code, value) in group.codes.iter_mut().zip(values) {
                *code = ((value / d).round_ties_even().clamp(-127.0, 127.0) as i8).cast_unsigned();
            }
        }
        Some(group)
    }

    fn codes(group: &Group, _: usize) -> Option<Codes> {
        Some(Codes { scale: read_f16(group.d), offset: 0.0, codes: group.codes.map(u8::cast_signed) })
    }
}
