//! `q2_k`: 256 weights in 84 bytes. Read, not written.
//!
//! ```text
//! byte  0..16  one byte for each 16 weights: scale s (low nibble), minimum m (high nibble)
//! byte 16..80  codes of two bits
//! byte 80..82  d, f16     byte 82..84  dmin, f16
//!
//! part p (32 weights, p = 0..8), i in 0..32:  k = 32 p + i
//!   q[k] = bits 2 (p % 4), 2 (p % 4) + 1 of byte 16 + 32 (p / 4) + i
//! w[k] = d * s[k / 16] * q[k] - dmin * m[k / 16]
//! ```

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, read_f16};
use crate::activations::Activations;
use crate::tile::{Coded, CodedWeights, FourBitMinOf16, U2};

/// The scheme `q2_k`.
pub struct Q2K;

/// Bytes of one super-block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    scales: [u8; 16],
    codes: [u8; 64],
    d: [u8; 2],
    dmin: [u8; 2],
}

const _: () = assert!(size_of::<Group>() == 84);

impl Group {
    /// Factor of the codes of 16 weights, and what is taken off their products.
    #[inline(always)]
    fn scale_and_min(&self, sixteen: usize) -> (f32, f32) {
        let packed = self.scales[sixteen];
        (read_f16(self.d) * f32::from(packed & 15), read_f16(self.dmin) * f32::from(packed >> 4))
    }
}

impl CodedWeights for Group {
    type Codes = U2;
    type Scales = FourBitMinOf16;
    const F16_AT: &'static [usize] = &[80, 82];
    const BYTES: Range<usize> = 0..16;

    #[inline(always)]
    fn unsigned_codes(&self, part: usize) -> [u8; 32] {
        let mut codes = [0; 32];
        for (code, byte) in codes.iter_mut().zip(&self.codes[32 * (part / 4)..][..32]) {
            *code = (byte >> (2 * (part % 4))) & 3;
        }
        codes
    }

    #[inline(always)]
    fn insert_codes(&mut self, part: usize, codes: &[u8; 32]) {
        for (code, byte) in codes.iter().zip(&mut self.codes[32 * (part / 4)..][..32]) {
            *byte |= code << (2 * (part % 4));
        }
    }
}

impl WeightScheme for Q2K {
    const NAME: &'static str = "q2_k";
    const GGML_TYPE: u32 = 10;
    const FILE_TYPE: u32 = 10;
    const CONVERTS: bool = false;
    const GROUP_LEN: usize = 256;
    const CODES_LEN: usize = 16;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        for (part, out) in out.chunks_exact_mut(32).enumerate() {
            let codes = group.unsigned_codes(part);
            for (half, (out, codes)) in out.chunks_exact_mut(16).zip(codes.chunks_exact(16)).enumerate() {
                let (scale, min) = group.scale_and_min(2 * part + half);
                for (out, code) in out.iter_mut().zip(codes) {
                    *out = scale * f32::from(*code) - min;
                }
            }
        }
    }

    fn codes(group: &Group, sixteen: usize) -> Option<Codes> {
        let unsigned = group.unsigned_codes(sixteen / 2);
        let mut codes = [0i8; 32];
        for (code, unsigned) in codes.iter_mut().zip(&unsigned[16 * (sixteen % 2)..][..16]) {
            *code = unsigned.cast_signed();
        }
        let (scale, min) = group.scale_and_min(sixteen);
        Some(Codes { scale, offset: -min, codes })
    }
}
