//! `iq4_nl`: 32 weights in 18 bytes; a nibble is an index into a table of 16 values. Read, not written.
//!
//! ```text
//! byte 0..2   d, f16        byte 2..18   16 x two nibbles: byte i holds q[i] (low) and q[i + 16] (high)
//! w[k] = d * VALUES[q[k]]
//! ```

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, is_finite_f16, read_f16};
use crate::activations::Activations;
use crate::tile::Iq4;

/// What the indices mean: denser near zero, where most weights are. The format's own table.
pub const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The scheme `iq4_nl`.
pub struct Iq4Nl;

/// Bytes of one group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    pub(crate) d: [u8; 2],
    pub(crate) nibbles: [u8; 16],
}

const _: () = assert!(size_of::<Group>() == 18);

impl WeightScheme for Iq4Nl {
    const NAME: &'static str = "iq4_nl";
    const GGML_TYPE: u32 = 20;
    const FILE_TYPE: u32 = 25;
    const CONVERTS: bool = false;
    const GROUP_LEN: usize = 32;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Iq4;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        let d = read_f16(group.d);
        for (out, value) in out.iter_mut().zip(values(&group.nibbles)) {
            *out = d * f32::from(value);
        }
    }

    fn encode(_: &[f32]) -> Option<Group> {
        None
    }

    #[inline(always)]
    fn is_finite(group: &Group) -> bool {
        is_finite_f16(group.d)
    }

    fn codes(group: &Group, _: usize) -> Option<Codes> {
        Some(Codes { scale: read_f16(group.d), offset: 0.0, codes: values(&group.nibbles) })
    }
}

/// The values of 32 indices: those in the low nibbles first.
#[inline(always)]
pub(super) fn values(nibbles: &[u8; 16]) -> [i8; 32] {
    let mut values = [0; 32];
    let (low, high) = values.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(nibbles) {
        *low = VALUES[usize::from(byte & 15)];
        *high = VALUES[usize::from(byte >> 4)];
    }
    values
}
