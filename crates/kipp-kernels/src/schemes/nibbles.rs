//! 32 nibbles in 16 bytes, as every group of 32 stores them: byte i holds number i (low) and number i + 16 (high).

/// The nibbles, a byte each.
#[inline(always)]
pub(super) fn unpack(nibbles: &[u8; 16]) -> [u8; 32] {
    let mut unpacked = [0; 32];
    let (low, high) = unpacked.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(nibbles) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
    unpacked
}

/// The inverse of [`unpack`].
#[inline(always)]
pub(super) fn pack(unpacked: &[u8; 32]) -> [u8; 16] {
    let (low, high) = unpacked.split_at(16);
    let mut nibbles = [0; 16];
    for ((byte, low), high) in nibbles.iter_mut().zip(low).zip(high) {
        *byte = (low & 15) | (high << 4);
    }
    nibbles
}
