//! `iq4_xs`: 256 weights in 136 bytes; a nibble is an index into the table of `iq4_nl`. Read, not written.
//!
//! ```text
//! byte 0..2    d, f16
//! byte 2..4    u16: bits 2p, 2p + 1 are the upper two bits of scale p (p = 0..8)
//! byte 4..8    u32: bits 4p..4p + 4 are its lower four bits;  s[p] = low + 16 high - 32
//! byte 8..136  eight times 16 x two nibbles: byte i of part p holds q[32 p + i] (low) and q[32 p + i + 16] (high)
//! w[k] = d * s[k / 32] * VALUES[q[k]]
//! ```

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::iq4_nl::values;
use super::{Codes, WeightScheme, nibbles, read_f16};
use crate::activations::Activations;
use crate::tile::{Coded, CodedWeights, SixBit, U4Table};

/// The scheme `iq4_xs`.
pub struct Iq4Xs;

/// Bytes of one super-block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    d: [u8; 2],
    scales_high: [u8; 2],
    scales_low: [u8; 4],
    nibbles: [[u8; 16]; 8],
}

const _: () = assert!(size_of::<Group>() == 136);

impl Group {
    /// Factor of the values of a part.
    #[inline(always)]
    fn scale(&self, part: usize) -> f32 {
        let low = (u32::from_le_bytes(self.scales_low) >> (4 * part)) & 15;
        let high = (u16::from_le_bytes(self.scales_high) >> (2 * part)) & 3;
        read_f16(self.d) * (f32::from(low as u16 | (high << 4)) - 32.0)
    }
}

impl CodedWeights for Group {
    type Codes = U4Table;
    type Scales = SixBit;
    const F16_AT: &'static [usize] = &[0];
    const BYTES: Range<usize> = 2..8;

    #[inline(always)]
    fn unsigned_codes(&self, part: usize) -> [u8; 32] {
        nibbles::unpack(&self.nibbles[part])
    }

    #[inline(always)]
    fn insert_codes(&mut self, part: usize, codes: &[u8; 32]) {
        self.nibbles[part] = nibbles::pack(codes);
    }
}

impl WeightScheme for Iq4Xs {
    const NAME: &'static str = "iq4_xs";
    const GGML_TYPE: u32 = 23;
    const FILE_TYPE: u32 = 30;
    const CONVERTS: bool = false;
    const GROUP_LEN: usize = 256;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        for (part, (nibbles, out)) in group.nibbles.iter().zip(out.chunks_exact_mut(32)).enumerate() {
            let scale = group.scale(part);
            for (out, value) in out.iter_mut().zip(values(nibbles)) {
                *out = scale * f32::from(value);
            }
        }
    }

    fn codes(group: &Group, part: usize) -> Option<Codes> {
        Some(Codes { scale: group.scale(part), offset: 0.0, codes: values(&group.nibbles[part]) })
    }
}
