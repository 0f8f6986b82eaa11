//! `q4_1`: 32 weights in 20 bytes.
//!
//! ```text
//! byte 0..2   d, f16    byte 2..4   m, f16    byte 4..20   16 x two nibbles: byte i holds q[i] (low), q[i + 16] (high)
//! w[k] = d * q[k] + m
//! ```

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, finite_f16, nibbles, read_f16};
use crate::activations::Activations;
use crate::half::f16_to_f32;
use crate::tile::{Coded, CodedWeights, SingleMin, U4};

/// The scheme `q4_1`.
pub struct Q4_1;

/// Bytes of one group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    d: [u8; 2],
    m: [u8; 2],
    nibbles: [u8; 16],
}

const _: () = assert!(size_of::<Group>() == 20);

impl CodedWeights for Group {
    type Codes = U4;
    type Scales = SingleMin;
    const F16_AT: &'static [usize] = &[0, 2];

    #[inline(always)]
    fn unsigned_codes(&self, _: usize) -> [u8; 32] {
        nibbles::unpack(&self.nibbles)
    }

    #[inline(always)]
    fn insert_codes(&mut self, _: usize, codes: &[u8; 32]) {
        self.nibbles = nibbles::pack(codes);
    }
}

impl WeightScheme for Q4_1 {
    const NAME: &'static str = "q4_1";
    const GGML_TYPE: u32 = 3;
    const FILE_TYPE: u32 = 3;
    const CONVERTS: bool = true;
    const GROUP_LEN: usize = 32;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        let (d, m) = (read_f16(group.d), read_f16(group.m));
        for (out, code) in out.iter_mut().zip(nibbles::unpack(&group.nibbles)) {
            *out = d * f32::from(code) + m;
        }
    }

    /// m = min, d = (max - min) / 15, both rounded to f16 (at most 65,504), codes rounded against those. A d that
    /// rounds to zero gives codes 0, so all weights are m.
    fn encode(values: &[f32]) -> Option<Group> {
        let min = values.iter().fold(f32::INFINITY, |m, &v| m.min(v));
        let max = values.iter().fold(f32::NEG_INFINITY, |m, &v| m.max(v));
        let (d_bits, m_bits) = (finite_f16((max - min) / 15.0), finite_f16(min));
        let (d, m) = (f16_to_f32(d_bits), f16_to_f32(m_bits));
        let code = |value: f32| {
            if d == 0.0 { 0 } else { ((value - m) / d).round_ties_even().clamp(0.0, 15.0) as u8 }
        };
        let codes = std::array::from_fn(|i| code(values[i]));
        Some(Group { d: d_bits.to_le_bytes(), m: m_bits.to_le_bytes(), nibbles: nibbles::pack(&codes) })
    }

    fn codes(group: &Group, _: usize) -> Option<Codes> {
        let codes = nibbles::unpack(&group.nibbles).map(u8::cast_signed);
        Some(Codes { scale: read_f16(group.d), offset: read_f16(group.m), codes })
    }
}
