//! The packed scales and minimums of q4_k and q5_k: eight of each, six bits wide, in twelve bytes.
//!
//! ```text
//! byte j      (j = 0..4)   bits 0..6  s[j]          bits 6..8  the upper two bits of s[j + 4]
//! byte 4 + j               bits 0..6  m[j]          bits 6..8  the upper two bits of m[j + 4]
//! byte 8 + j               bits 0..4  the lower four bits of s[j + 4]    bits 4..8  those of m[j + 4]
//! ```

use super::read_f16;

/// Factor of the codes of 32 weights, and what is taken off their products: number `part` of eight, from the group's
/// f16 factors of all scales and of all minimums.
#[inline(always)]
pub(super) fn scale_and_min([d, dmin]: [[u8; 2]; 2], packed: &[u8; 12], part: usize) -> (f32, f32) {
    let (scale, min) = unpack(packed, part);
    (read_f16(d) * f32::from(scale), read_f16(dmin) * f32::from(min))
}

/// Scale and minimum, 0 to 63.
#[inline(always)]
fn unpack(packed: &[u8; 12], part: usize) -> (u8, u8) {
    let j = part % 4;
    let (scales, mins, lower) = (packed[j], packed[4 + j], packed[8 + j]);
    if part < 4 {
        (scales & 63, mins & 63)
    } else {
        ((lower & 15) | ((scales >> 6) << 4), (lower >> 4) | ((mins >> 6) << 4))
    }
}
