//! How the codes of 32 columns lie in lines: planes of bits. Not what they mean; that takes their scales.
//!
//! ```text
//! quad q                             columns 4 q .. 4 q + 4, a byte each of a word
//! plane of b bits (b = 1, 2, 4, 8)   b words a row: word j holds those bits of quads 8 / b * j .., the first lowest
//! ```
//!
//! A quad comes out of a plane by a shift and a mask, and quads in ascending order take a plane's lines one by one. Codes
//! of other widths are two planes, the upper bits first: three bits are 1 + 2, five 1 + 4, six 2 + 4.

use std::marker::PhantomData;

use crate::isa::Isa;
use crate::schemes::iq4_nl;

/// Lines of codes of 32 columns: one word a row and line.
pub trait CodeLines: 'static {
    /// Lines of 32 columns: bits of a stored code.
    const LINES: usize;
    /// The bits of what [`CodeLines::quad`] gives.
    const BITS: u32;
    /// The cheapest that these bits allow.
    type Products: CodeProducts;

    /// Writes stored codes as one row's words, `[LINES]`.
    fn pack(codes: &[u8; 32], words: &mut [[u8; 4]]);

    /// The stored codes in one row's words, `[LINES]`.
    fn unpack(words: &[[u8; 4]]) -> [u8; 32];

    /// The codes of columns `4 * quad ..`, a byte each, of 16 rows. `lines` is `[LINES]`.
    fn quad<I: Isa>(isa: I, lines: &[[u8; 64]], quad: usize) -> I::I32;
}

/// One of the ways in which instruction sets sum products of codes: the fewer bits, the fewer steps.
pub trait CodeProducts: 'static {
    /// Bits of the codes for which sums are exact.
    const MOST_BITS: usize;
    /// Running dot products.
    type Sum<I: Isa>: Copy;

    /// No products yet.
    fn start<I: Isa>(isa: I, start: I::I32) -> Self::Sum<I>;

    /// Adds the four products of each lane.
    fn add<I: Isa>(isa: I, sum: Self::Sum<I>, codes: I::I32, x: I::I32) -> Self::Sum<I>;

    /// Start and products, exactly.
    fn finish<I: Isa>(isa: I, sum: Self::Sum<I>, start: I::I32) -> I::I32;
}

/// Codes of eight bits, around 128.
pub struct ByteProducts;

/// Codes of six bits at most.
pub struct SixBitProducts;

/// Codes of four bits at most.
pub struct NibbleProducts;

/// Codes of `LOW + HIGH` bits: a plane of `HIGH` upper bits (none if zero) and one of `LOW`.
pub struct Planes<const LOW: usize, const HIGH: usize, P>(PhantomData<P>);

/// Two bits: q2_k.
pub type U2 = Planes<2, 0, NibbleProducts>;
/// Three bits: q3_k.
pub type U3 = Planes<2, 1, NibbleProducts>;
/// Nibbles: q4_0, q4_1, q4_k.
pub type U4 = Planes<4, 0, NibbleProducts>;
/// Five bits: q5_0, q5_1, q5_k.
pub type U5 = Planes<4, 1, SixBitProducts>;
/// Six bits: q6_k.
pub type U6 = Planes<4, 2, SixBitProducts>;
/// Bytes: q8_0.
pub type U8 = Planes<8, 0, ByteProducts>;

/// Nibbles that are indices into the table of iq4_nl, whose values plus 128 are the codes: iq4_nl, iq4_xs.
pub struct U4Table;

impl CodeProducts for ByteProducts {
    const MOST_BITS: usize = 8;
    type Sum<I: Isa> = I::U8Sum;

    #[inline(always)]
    fn start<I: Isa>(isa: I, start: I::I32) -> I::U8Sum {
        isa.u8_start(start)
    }

    #[inline(always)]
    fn add<I: Isa>(isa: I, sum: I::U8Sum, codes: I::I32, x: I::I32) -> I::U8Sum {
        isa.u8_dot(sum, codes, x)
    }

    #[inline(always)]
    fn finish<I: Isa>(isa: I, sum: I::U8Sum, start: I::I32) -> I::I32 {
        isa.u8_finish(sum, start)
    }
}

impl CodeProducts for SixBitProducts {
    const MOST_BITS: usize = 6;
    type Sum<I: Isa> = I::I32;

    #[inline(always)]
    fn start<I: Isa>(_: I, start: I::I32) -> I::I32 {
        start
    }

    #[inline(always)]
    fn add<I: Isa>(isa: I, sum: I::I32, codes: I::I32, x: I::I32) -> I::I32 {
        isa.u6_dot(sum, codes, x)
    }

    #[inline(always)]
    fn finish<I: Isa>(_: I, sum: I::I32, _: I::I32) -> I::I32 {
        sum
    }
}

impl CodeProducts for NibbleProducts {
    const MOST_BITS: usize = 4;
    type Sum<I: Isa> = I::U4Sum;

    #[inline(always)]
    fn start<I: Isa>(isa: I, start: I::I32) -> I::U4Sum {
        isa.u4_start(start)
    }

    #[inline(always)]
    fn add<I: Isa>(isa: I, sum: I::U4Sum, codes: I::I32, x: I::I32) -> I::U4Sum {
        isa.u4_dot(sum, codes, x)
    }

    #[inline(always)]
    fn finish<I: Isa>(isa: I, sum: I::U4Sum, start: I::I32) -> I::I32 {
        isa.u4_finish(sum, start)
    }
}

/// A word each of whose bytes has its lowest bits set.
const fn mask(bits: usize) -> u32 {
    u32::from_le_bytes([(0xff >> (8 - bits)) as u8; 4])
}

/// Writes the plane of some bits of the codes, from bit `from` on.
#[inline(always)]
fn pack_plane<const BITS: usize>(codes: &[u8; 32], from: usize, words: &mut [[u8; 4]]) {
    for (word, quads) in words.iter_mut().zip(codes.as_chunks::<4>().0.chunks_exact(8 / BITS)) {
        let mut packed = 0;
        for (i, quad) in quads.iter().enumerate() {
            packed |= ((u32::from_le_bytes(*quad) >> from) & mask(BITS)) << (BITS * i);
        }
        *word = packed.to_le_bytes();
    }
}

/// Adds what [`pack_plane`] wrote to the codes.
#[inline(always)]
fn unpack_plane<const BITS: usize>(words: &[[u8; 4]], from: usize, codes: &mut [u8; 32]) {
    for (word, quads) in words.iter().zip(codes.as_chunks_mut::<4>().0.chunks_exact_mut(8 / BITS)) {
        for (i, quad) in quads.iter_mut().enumerate() {
            let bits = (u32::from_le_bytes(*word) >> (BITS * i)) & mask(BITS);
            *quad = (u32::from_le_bytes(*quad) | bits << from).to_le_bytes();
        }
    }
}

/// A quad's bits of a plane, moved to bit `to` of each byte.
#[inline(always)]
fn field<I: Isa, const BITS: usize>(isa: I, plane: &[[u8; 64]], quad: usize, to: usize) -> I::I32 {
    let words = isa.load_words(&plane[quad * BITS / 8]);
    let at = BITS * (quad % (8 / BITS));
    let moved = if at > to {
        isa.shr(words, (at - to) as u32)
    } else if at < to {
        isa.shl(words, (to - at) as u32)
    } else {
        words
    };
    if BITS == 8 { moved } else { isa.and(moved, isa.splat_word((mask(BITS) << to).cast_signed())) }
}

impl<const LOW: usize, const HIGH: usize, P: CodeProducts> CodeLines for Planes<LOW, HIGH, P> {
    const LINES: usize = LOW + HIGH;
    const BITS: u32 = {
        assert!(LOW + HIGH <= P::MOST_BITS);
        (LOW + HIGH) as u32
    };
    type Products = P;

    #[inline(always)]
    fn pack(codes: &[u8; 32], words: &mut [[u8; 4]]) {
        let (high, low) = words.split_at_mut(HIGH);
        if HIGH > 0 {
            pack_plane::<HIGH>(codes, LOW, high);
        }
        pack_plane::<LOW>(codes, 0, low);
    }

    #[inline(always)]
    fn unpack(words: &[[u8; 4]]) -> [u8; 32] {
        let mut codes = [0; 32];
        let (high, low) = words.split_at(HIGH);
        if HIGH > 0 {
            unpack_plane::<HIGH>(high, LOW, &mut codes);
        }
        unpack_plane::<LOW>(low, 0, &mut codes);
        codes
    }

    #[inline(always)]
    fn quad<I: Isa>(isa: I, lines: &[[u8; 64]], quad: usize) -> I::I32 {
        let (high, low) = lines.split_at(HIGH);
        let low = field::<I, LOW>(isa, low, quad, 0);
        if HIGH == 0 { low } else { isa.or(low, field::<I, HIGH>(isa, high, quad, LOW)) }
    }
}

/// The table as codes around 128, which byte products want.
const TABLE: [u8; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = iq4_nl::VALUES[i].cast_unsigned() ^ 0x80;
        i += 1;
    }
    table
};

impl CodeLines for U4Table {
    const LINES: usize = 4;
    const BITS: u32 = 8;
    type Products = ByteProducts;

    #[inline(always)]
    fn pack(codes: &[u8; 32], words: &mut [[u8; 4]]) {
        U4::pack(codes, words);
    }

    #[inline(always)]
    fn unpack(words: &[[u8; 4]]) -> [u8; 32] {
        U4::unpack(words)
    }

    #[inline(always)]
    fn quad<I: Isa>(isa: I, lines: &[[u8; 64]], quad: usize) -> I::I32 {
        isa.look_up(&TABLE, U4::quad(isa, lines, quad))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::scalar::Scalar;

    /// Packs codes into a lane and takes them out by both ways.
    fn check<C: CodeLines>(value: impl Fn(u8) -> u8) {
        let stored_bits = C::LINES as u32;
        let codes: [u8; 32] =
            std::array::from_fn(|k| (k * 89 + 7) as u8 & (0xffu32 >> (8 - stored_bits)) as u8);
        let mut words = [[0xaa; 4]; 8];
        C::pack(&codes, &mut words[..C::LINES]);
        assert_eq!(C::unpack(&words[..C::LINES]), codes);
        for lane in [0, 5, 15] {
            let mut lines = [[0xff; 64]; 8];
            for (line, word) in lines.iter_mut().zip(words) {
                line[4 * lane..][..4].copy_from_slice(&word);
            }
            for quad in 0..8 {
                let found = C::quad(Scalar, &lines[..C::LINES], quad)[lane].to_le_bytes();
                let expected: [u8; 4] = std::array::from_fn(|b| value(codes[4 * quad + b]));
                assert_eq!(found, expected, "{stored_bits} bits, quad {quad}");
            }
        }
    }

    #[test]
    fn codes_come_out_of_their_planes() {
        check::<U8>(|code| code);
        check::<U6>(|code| code);
        check::<U5>(|code| code);
        check::<U4>(|code| code);
        check::<U3>(|code| code);
        check::<U2>(|code| code);
        check::<U4Table>(|code| (i16::from(iq4_nl::VALUES[usize::from(code)]) + 128) as u8);
    }
}
