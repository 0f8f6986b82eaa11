//! The packed scales and minimums of q4_k and q5_k: eight of each, six bits wide, in twelve bytes.
//!
//! ```text
//! byte j      (j = 0..4)   bits 0..6  s[j]          bits 6..8  the upper two bits of s[j + 4]
//! byte 4 + j               bits 0..6  m[j]          bits 6..8  the upper two bits of m[j + 4]
//! byte 8 + j               bits 0..4  the lower four bits of s[j + 4]    bits 4..8  those of m[j + 4]
//! ```

/// Scale and minimum, 0 to 63, of 32 weights: number `part` of eight.
#[inline(always)]
pub(super) fn scale_and_min(packed: &[u8; 12], part: usize) -> (u8, u8) {
    let j = part % 4;
    let (scales, mins, lower) = (packed[j], packed[4 + j], packed[8 + j]);
    if part < 4 {
        (scales & 63, mins & 63)
    } else {
        ((lower & 15) | ((scales >> 6) << 4), (lower >> 4) | ((mins >> 6) << 4))
    }
}
