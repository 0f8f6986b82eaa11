//! `q4_k`: 256 weights in 144 bytes. Read, not written.
//!
//! ```text
//! byte 0..2   d, f16     byte 2..4   dmin, f16
//! byte 4..16  eight scales s and minimums m of six bits: `k_scales`
//! byte 16..144  nibbles
//!
//! part p (32 weights, p = 0..8), i in 0..32:  k = 32 p + i
//!   q[k] = nibble (p % 2) of byte 16 + 32 (p / 2) + i
//! w[k] = d * s[p] * q[k] - dmin * m[p]
//! ```

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::k_scales::scale_and_min;
use super::{Codes, WeightScheme};
use crate::activations::Activations;
use crate::tile::{Coded, CodedWeights, SixBitMin, U4};

/// The scheme `q4_k`.
pub struct Q4K;

/// Bytes of one super-block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    d: [u8; 2],
    dmin: [u8; 2],
    scales: [u8; 12],
    nibbles: [u8; 128],
}

const _: () = assert!(size_of::<Group>() == 144);

impl CodedWeights for Group {
    type Codes = U4;
    type Scales = SixBitMin;
    const F16_AT: &'static [usize] = &[0, 2];
    const BYTES: Range<usize> = 4..16;

    #[inline(always)]
    fn unsigned_codes(&self, part: usize) -> [u8; 32] {
        let mut codes = [0; 32];
        for (code, byte) in codes.iter_mut().zip(&self.nibbles[32 * (part / 2)..][..32]) {
            *code = (byte >> (4 * (part % 2))) & 15;
        }
        codes
    }

    #[inline(always)]
    fn insert_codes(&mut self, part: usize, codes: &[u8; 32]) {
        for (code, byte) in codes.iter().zip(&mut self.nibbles[32 * (part / 2)..][..32]) {
            *byte |= code << (4 * (part % 2));
        }
    }
}

impl WeightScheme for Q4K {
    const NAME: &'static str = "q4_k";
    const GGML_TYPE: u32 = 12;
    /// The number of files that have nothing but q4_k where their quantizer had a choice.
    const FILE_TYPE: u32 = 14;
    const CONVERTS: bool = false;
    const GROUP_LEN: usize = 256;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        for (part, out) in out.chunks_exact_mut(32).enumerate() {
            let (scale, min) = scale_and_min([group.d, group.dmin], &group.scales, part);
            for (out, code) in out.iter_mut().zip(group.unsigned_codes(part)) {
                *out = scale * f32::from(code) - min;
            }
        }
    }

    fn codes(group: &Group, part: usize) -> Option<Codes> {
        let (scale, min) = scale_and_min([group.d, group.dmin], &group.scales, part);
        Some(Codes { scale, offset: -min, codes: group.unsigned_codes(part).map(u8::cast_signed) })
    }
}
