//! `iq4_nl`: 32 weights in 18 bytes; a nibble is an index into a table of 16 values. Read, not written.
//!
//! ```text
//! byte 0..2   d, f16        byte 2..18   16 x two nibbles: byte i holds q[i] (low) and q[i + 16] (high)
//! w[k] = d * VALUES[q[k]]
//! ```

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, nibbles, read_f16};
use crate::activations::Activations;
use crate::tile::{Coded, CodedWeights, Single, U4Table};

/// What the indices mean: denser near zero, where most weights are. The format's own table.
pub const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The scheme `iq4_nl`.
pub struct Iq4Nl;

/// Bytes of one group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    d: [u8; 2],
    nibbles: [u8; 16],
}

const _: () = assert!(size_of::<Group>() == 18);

impl CodedWeights for Group {
    type Codes = U4Table;
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

impl WeightScheme for Iq4Nl {
    const NAME: &'static str = "iq4_nl";
    const GGML_TYPE: u32 = 20;
    const FILE_TYPE: u32 = 25;
    const CONVERTS: bool = false;
    const GROUP_LEN: usize = 32;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        let d = read_f16(group.d);
        for (out, value) in out.iter_mut().zip(values(&group.nibbles)) {
            *out = d * f32::from(value);
        }
    }

    fn codes(group: &Group, _: usize) -> Option<Codes> {
        Some(Codes { scale: read_f16(group.d), offset: 0.0, codes: values(&group.nibbles) })
    }
}

/// The values of 32 indices.
#[inline(always)]
pub(super) fn values(nibbles: &[u8; 16]) -> [i8; 32] {
    nibbles::unpack(nibbles).map(|index| VALUES[usize::from(index)])
}
