//! `q5_k`: 256 weights in 176 bytes. Read, not written.
//!
//! ```text
//! byte 0..2    d, f16     byte 2..4   dmin, f16
//! byte 4..16   eight scales s and minimums m of six bits: `k_scales`
//! byte 16..48  fifth bits       byte 48..176  low four bits
//!
//! part p (32 weights, p = 0..8), i in 0..32:  k = 32 p + i
//!   low  = nibble (p % 2) of byte 48 + 32 (p / 2) + i         high = bit p of byte 16 + i
//! w[k] = d * s[p] * (low + 16 high) - dmin * m[p]
//! ```

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::k_scales::scale_and_min;
use super::{Codes, WeightScheme};
use crate::activations::Activations;
use crate::tile::{Coded, CodedWeights, SixBitMin, U5};

/// The scheme `q5_k`.
pub struct Q5K;

/// Bytes of one super-block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    d: [u8; 2],
    dmin: [u8; 2],
    scales: [u8; 12],
    high: [u8; 32],
    low: [u8; 128],
}

const _: () = assert!(size_of::<Group>() == 176);

impl CodedWeights for Group {
    type Codes = U5;
    type Scales = SixBitMin;
    const F16_AT: &'static [usize] = &[0, 2];
    const BYTES: Range<usize> = 4..16;

    #[inline(always)]
    fn unsigned_codes(&self, part: usize) -> [u8; 32] {
        let low = &self.low[32 * (part / 2)..][..32];
        let mut codes = [0; 32];
        for ((code, low), high) in codes.iter_mut().zip(low).zip(&self.high) {
            *code = ((low >> (4 * (part % 2))) & 15) | (((high >> part) & 1) << 4);
        }
        codes
    }

    #[inline(always)]
    fn insert_codes(&mut self, part: usize, codes: &[u8; 32]) {
        let low = &mut self.low[32 * (part / 2)..][..32];
        for ((code, low), high) in codes.iter().zip(low).zip(&mut self.high) {
            *low |= (code & 15) << (4 * (part % 2));
            *high |= (code >> 4) << part;
        }
    }
}

impl WeightScheme for Q5K {
    const NAME: &'static str = "q5_k";
    const GGML_TYPE: u32 = 13;
    /// The number of files that have nothing but q5_k where their quantizer had a choice.
    const FILE_TYPE: u32 = 16;
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
