//! `q5_1`: 32 weights in 24 bytes. Read, not written.
//!
//! ```text
//! byte 0..2   d, f16     byte 2..4   m, f16     byte 4..24   codes of five bits, as in `q5_0`
//! w[k] = d * q[k] + m
//! ```

use bytemuck::{Pod, Zeroable};

use super::q5_0::FiveBits;
use super::{Codes, WeightScheme, read_f16};
use crate::activations::Activations;
use crate::tile::{Coded, CodedWeights, SingleMin, U5};

/// The scheme `q5_1`.
pub struct Q5_1;

/// Bytes of one group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    d: [u8; 2],
    m: [u8; 2],
    codes: FiveBits,
}

const _: () = assert!(size_of::<Group>() == 24);

impl CodedWeights for Group {
    type Codes = U5;
    type Scales = SingleMin;
    const F16_AT: &'static [usize] = &[0, 2];

    #[inline(always)]
    fn unsigned_codes(&self, _: usize) -> [u8; 32] {
        self.codes.unpack()
    }

    #[inline(always)]
    fn insert_codes(&mut self, _: usize, codes: &[u8; 32]) {
        self.codes = FiveBits::pack(codes);
    }
}

impl WeightScheme for Q5_1 {
    const NAME: &'static str = "q5_1";
    const GGML_TYPE: u32 = 7;
    const FILE_TYPE: u32 = 9;
    const CONVERTS: bool = false;
    const GROUP_LEN: usize = 32;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        let (d, m) = (read_f16(group.d), read_f16(group.m));
        for (out, code) in out.iter_mut().zip(group.codes.unpack()) {
            *out = d * f32::from(code) + m;
        }
    }

    fn codes(group: &Group, _: usize) -> Option<Codes> {
        let codes = group.codes.unpack().map(u8::cast_signed);
        Some(Codes { scale: read_f16(group.d), offset: read_f16(group.m), codes })
    }
}
