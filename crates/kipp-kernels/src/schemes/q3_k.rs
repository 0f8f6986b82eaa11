//! `q3_k`: 256 weights in 110 bytes. Read, not written.
//!
//! ```text
//! byte  0..32   third bits      byte 32..96  low two bits
//! byte 96..108  16 scales of six bits, s[j] = low + 16 high - 32:
//!               low = nibble (j / 8) of byte 96 + j % 8      high = bits 2 (j / 4), 2 (j / 4) + 1 of byte 104 + j % 4
//! byte 108..110  d, f16
//!
//! part p (32 weights, p = 0..8), i in 0..32:  k = 32 p + i
//!   low = bits 2 (p % 4), 2 (p % 4) + 1 of byte 32 + 32 (p / 4) + i           third = bit p of byte i
//! w[k] = d * s[k / 16] * (low + 4 third - 4)
//! ```

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, read_f16};
use crate::activations::Activations;
use crate::tile::{Coded, CodedWeights, SixBitOf16, U3};

/// The scheme `q3_k`.
pub struct Q3K;

/// Bytes of one super-block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    third: [u8; 32],
    low: [u8; 64],
    scales: [u8; 12],
    d: [u8; 2],
}

const _: () = assert!(size_of::<Group>() == 110);

impl Group {
    /// Factor of the codes of 16 weights.
    #[inline(always)]
    fn scale(&self, sixteen: usize) -> f32 {
        let low = (self.scales[sixteen % 8] >> (4 * (sixteen / 8))) & 15;
        let high = (self.scales[8 + sixteen % 4] >> (2 * (sixteen / 4))) & 3;
        read_f16(self.d) * (f32::from(low | (high << 4)) - 32.0)
    }
}

impl CodedWeights for Group {
    type Codes = U3;
    type Scales = SixBitOf16;
    const F16_AT: &'static [usize] = &[108];
    const BYTES: Range<usize> = 96..108;

    #[inline(always)]
    fn unsigned_codes(&self, part: usize) -> [u8; 32] {
        let low = &self.low[32 * (part / 4)..][..32];
        let mut codes = [0; 32];
        for ((code, low), third) in codes.iter_mut().zip(low).zip(&self.third) {
            *code = ((low >> (2 * (part % 4))) & 3) | (((third >> part) & 1) << 2);
        }
        codes
    }

    #[inline(always)]
    fn insert_codes(&mut self, part: usize, codes: &[u8; 32]) {
        let low = &mut self.low[32 * (part / 4)..][..32];
        for ((code, low), third) in codes.iter().zip(low).zip(&mut self.third) {
            *low |= (code & 3) << (2 * (part % 4));
            *third |= (code >> 2) << part;
        }
    }
}

impl WeightScheme for Q3K {
    const NAME: &'static str = "q3_k";
    const GGML_TYPE: u32 = 11;
    /// The number of files that have nothing but q3_k where their quantizer had a choice.
    const FILE_TYPE: u32 = 11;
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
                let scale = group.scale(2 * part + half);
                for (out, code) in out.iter_mut().zip(codes) {
                    *out = scale * (f32::from(*code) - 4.0);
                }
            }
        }
    }

    fn codes(group: &Group, sixteen: usize) -> Option<Codes> {
        let unsigned = group.unsigned_codes(sixteen / 2);
        let mut codes = [0i8; 32];
        for (code, unsigned) in codes.iter_mut().zip(&unsigned[16 * (sixteen % 2)..][..16]) {
            *code = unsigned.cast_signed() - 4;
        }
        Some(Codes { scale: group.scale(sixteen), offset: 0.0, codes })
    }
}
