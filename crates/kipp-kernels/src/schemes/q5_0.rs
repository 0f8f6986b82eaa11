//! `q5_0`: 32 weights in 22 bytes. Read, not written.
//!
//! ```text
//! byte 0..2   d, f16     byte 2..6   fifth bits, u32: bit k is that of q[k]
//! byte 6..22  16 x two nibbles: byte i holds the low four bits of q[i] (low) and q[i + 16] (high)
//! w[k] = d * (q[k] - 16)
//! ```

use bytemuck::{Pod, Zeroable};

use super::{Codes, WeightScheme, read_f16};
use crate::activations::Activations;
use crate::tile::{Coded, CodedWeights, Single, U5};

/// The scheme `q5_0`.
pub struct Q5_0;

/// Bytes of one group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Group {
    d: [u8; 2],
    codes: FiveBits,
}

const _: () = assert!(size_of::<Group>() == 22);

/// 32 codes of five bits, as q5_0 and q5_1 store them.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct FiveBits {
    high: [u8; 4],
    low: [u8; 16],
}

impl FiveBits {
    /// The codes, 0 to 31.
    #[inline(always)]
    pub(crate) fn unpack(&self) -> [u8; 32] {
        let high = u32::from_le_bytes(self.high);
        let mut codes = [0; 32];
        for (k, code) in codes.iter_mut().enumerate() {
            let low = (self.low[k % 16] >> (4 * (k / 16))) & 15;
            *code = low | (((high >> k) & 1) << 4) as u8;
        }
        codes
    }

    /// The inverse of [`FiveBits::unpack`].
    pub(crate) fn pack(codes: &[u8; 32]) -> FiveBits {
        let mut packed = FiveBits { high: [0; 4], low: [0; 16] };
        for (k, code) in codes.iter().enumerate() {
            packed.low[k % 16] |= (code & 15) << (4 * (k / 16));
            packed.high[k / 8] |= (code >> 4) << (k % 8);
        }
        packed
    }
}

impl CodedWeights for Group {
    type Codes = U5;
    type Scales = Single;
    const F16_AT: &'static [usize] = &[0];

    #[inline(always)]
    fn unsigned_codes(&self, _: usize) -> [u8; 32] {
        self.codes.unpack()
    }

    #[inline(always)]
    fn insert_codes(&mut self, _: usize, codes: &[u8; 32]) {
        self.codes = FiveBits::pack(codes);
    }
}

impl WeightScheme for Q5_0 {
    const NAME: &'static str = "q5_0";
    const GGML_TYPE: u32 = 6;
    const FILE_TYPE: u32 = 8;
    const CONVERTS: bool = false;
    const GROUP_LEN: usize = 32;
    const CODES_LEN: usize = 32;
    const ACTIVATIONS: Activations = Activations::S8;
    type Group = Group;
    type Tile = Coded<Group>;

    #[inline(always)]
    fn decode(group: &Group, out: &mut [f32]) {
        let d = read_f16(group.d);
        for (out, code) in out.iter_mut().zip(group.codes.unpack()) {
            *out = d * (f32::from(code) - 16.0);
        }
    }

    fn codes(group: &Group, _: usize) -> Option<Codes> {
        let codes = group.codes.unpack().map(|code| code.cast_signed() - 16);
        Some(Codes { scale: read_f16(group.d), offset: 0.0, codes })
    }
}
