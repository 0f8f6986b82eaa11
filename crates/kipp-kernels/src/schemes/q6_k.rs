//! `q6_k`: 256 weights in 210 bytes. Read, not written.
//!
//! ```text
//! byte   0..128  low four bits      byte 128..192  high two bits
//! byte 192..208  s, 16 x i8         byte 208..210  d, f16
//!
//! half h (128 weights, h = 0, 1), quarter c (32 weights, c = 0..4), i in 0..32:  k = 128 h + 32 c + i
//!   low  = nibble (c / 2) of byte 64 h + 32 (c % 2) + i         high = bits 2c, 2c + 1 of byte 128 + 32 h + i
//! w[k] = d * s[k / 16] * (low + 16 high - 32)
//! ```

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, read_f16};
use crate::activations::Activations;
use crate::tile::{ByteOf16, Coded, CodedWeights, U6};

/// The scheme `q6_k`.
pub struct Q6K;

/// Bytes of one super-block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    low: [u8; 128],
    high: [u8; 64],
    scales: [u8; 16],
    d: [u8; 2],
}

const _: () = assert!(size_of::<Group>() == 210);

impl CodedWeights for Group {
    type Codes = U6;
    type Scales = ByteOf16;
    const F16_AT: &'static [usize] = &[208];
    const BYTES: Range<usize> = 192..208;

    #[inline(always)]
    fn unsigned_codes(&self, part: usize) -> [u8; 32] {
        let (half, quarter) = (part / 4, part % 4);
        let low = &self.low[64 * half + 32 * (quarter % 2)..][..32];
        let high = &self.high[32 * half..][..32];
        let mut codes = [0; 32];
        for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
            *code = ((low >> (4 * (quarter / 2))) & 15) | (((high >> (2 * quarter)) & 3) << 4);
        }
        codes
    }

    #[inline(always)]
    fn insert_codes(&mut self, part: usize, codes: &[u8; 32]) {
        let (half, quarter) = (part / 4, part % 4);
        let low = &mut self.low[64 * half + 32 * (quarter % 2)..][..32];
        let high = &mut self.high[32 * half..][..32];
        for ((code, low), high) in codes.iter().zip(low).zip(high) {
            *low |= (code & 15) << (4 * (quarter / 2));
            *high |= (code >> 4) << (2 * quarter);
        }
    }
}

impl WeightScheme for Q6K {
    const NAME: &'static str = "q6_k";
    const GGML_TYPE: u32 = 14;
    const FILE_TYPE: u32 = 18;
    const CONVERTS: bool = false;
    const GROUP_LEN: usize = 256;
    const CODES_LEN: usize = 16;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        let d = read_f16(group.d);
        for (part, out) in out.chunks_exact_mut(32).enumerate() {
            let codes = group.unsigned_codes(part);
            for (i, (out, code)) in out.iter_mut().zip(codes).enumerate() {
                let scale = d * f32::from(group.scales[2 * part + i / 16].cast_signed());
                *out = scale * (f32::from(code) - 32.0);
            }
        }
    }

    fn codes(group: &Group, part: usize) -> Option<Codes> {
        let unsigned = group.unsigned_codes(part / 2);
        let mut codes = [0i8; 32];
        for (code, &unsigned) in codes.iter_mut().zip(&unsigned[16 * (part % 2)..][..16]) {
            *code = unsigned.cast_signed() - 32;
        }
        let scale = read_f16(group.d) * f32::from(group.scales[part].cast_signed());
        Some(Codes { scale, offset: 0.0, codes })
    }
}
