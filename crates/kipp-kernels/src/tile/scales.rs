//! Where a block has the scales and minimums of its 16 rows, kept as packed as in the file, and how they unpack.
//!
//! ```text
//! head of a block = for each f16 of a group, for each group: 16 x f16 | for each byte of scales: 16 x u8 | padding
//! ```
//!
//! One load holds the same byte of 16 rows, so that no position inside a group needs a shift of its own.

use crate::isa::Isa;

/// How groups of some schemes are scaled.
pub trait Scaling: 'static {
    /// Columns of a group in parts of 32.
    const PARTS: usize;
    /// Groups of a block and row: blocks are 64 columns at least.
    const GROUPS: usize = if Self::PARTS == 1 { 2 } else { 1 };
    /// Columns that share a scale: 16 or 32.
    const COLS: usize = 32;
    /// Whether something is added to scale times code; else codes are centred on the middle of their range.
    const HAS_OFFSET: bool = false;
    /// How many f16 a group has.
    const F16: usize = if Self::HAS_OFFSET { 2 } else { 1 };
    /// How many other bytes of scales.
    const BYTES: usize = 0;
    /// Lines of a block's head.
    const LINES: usize = (Self::F16 * Self::GROUPS * 32 + Self::BYTES * 16).div_ceil(64);

    /// The scale of the block's columns `COLS * index ..`, as the scheme computes it.
    fn scale<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32;

    /// What is added there to scale times code.
    #[inline(always)]
    fn offset<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        let _ = (head, index);
        isa.splat(0.0)
    }
}

/// The head of a block: its first lines.
pub struct Head<'a>(pub(super) &'a [[u8; 64]]);

impl Head<'_> {
    /// The `i`-th run of 16 f16.
    #[inline(always)]
    fn f16<I: Isa>(&self, isa: I, i: usize) -> I::F32 {
        isa.load_f16(&self.0.as_flattened().as_chunks::<32>().0[i])
    }

    /// Byte `i` of the scales after `f16` runs of f16, of 16 rows, its sign extended.
    #[inline(always)]
    fn byte<I: Isa>(&self, isa: I, f16: usize, i: usize) -> I::I32 {
        isa.load_i8(&self.0.as_flattened().as_chunks::<16>().0[2 * f16 + i])
    }
}

/// Some bits of each word, from bit `from` on.
#[inline(always)]
fn bits<I: Isa>(isa: I, words: I::I32, from: u32, mask: i32) -> I::I32 {
    isa.and(isa.shr(words, from), isa.splat_word(mask))
}

/// Whole numbers less 32, times `d`.
#[inline(always)]
fn less_32<I: Isa>(isa: I, d: I::F32, words: I::I32) -> I::F32 {
    isa.mul(d, isa.to_f32(isa.sub_words(words, isa.splat_word(32))))
}

/// `-(dmin * min)`.
#[inline(always)]
fn negated<I: Isa>(isa: I, dmin: I::F32, min: I::I32) -> I::F32 {
    isa.mul(isa.mul(dmin, isa.splat(-1.0)), isa.to_f32(min))
}

/// An f16 for each 32 columns: q8_0, q4_0, q5_0, iq4_nl.
pub struct Single;

impl Scaling for Single {
    const PARTS: usize = 1;

    #[inline(always)]
    fn scale<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        head.f16(isa, index)
    }
}

/// An f16 and an f16 minimum for each 32 columns: q4_1, q5_1.
pub struct SingleMin;

impl Scaling for SingleMin {
    const PARTS: usize = 1;
    const HAS_OFFSET: bool = true;

    #[inline(always)]
    fn scale<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        head.f16(isa, index)
    }

    #[inline(always)]
    fn offset<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        head.f16(isa, 2 + index)
    }
}

/// Six bits and a minimum of six for each 32 columns, f16 factors of both for 256: q4_k, q5_k.
pub struct SixBitMin;

impl SixBitMin {
    /// Six bits of a part: `own` is the byte that parts below 4 have them in, with the upper two of a later part;
    /// `shared` from bit `from` on has the lower four of a later one.
    #[inline(always)]
    fn six<I: Isa>(isa: I, head: &Head<'_>, own: usize, part: usize, from: u32) -> I::I32 {
        let own = head.byte(isa, 2, own + part % 4);
        if part < 4 {
            return isa.and(own, isa.splat_word(63));
        }
        let lower = bits(isa, head.byte(isa, 2, 8 + part % 4), from, 15);
        isa.or(lower, bits(isa, own, 2, 0x30))
    }
}

impl Scaling for SixBitMin {
    const PARTS: usize = 8;
    const HAS_OFFSET: bool = true;
    const BYTES: usize = 12;

    #[inline(always)]
    fn scale<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        isa.mul(head.f16(isa, 0), isa.to_f32(SixBitMin::six(isa, head, 0, index, 0)))
    }

    #[inline(always)]
    fn offset<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        negated(isa, head.f16(isa, 1), SixBitMin::six(isa, head, 4, index, 4))
    }
}

/// Six bits around 32 for each 32 columns, an f16 for 256: iq4_xs.
pub struct SixBit;

impl Scaling for SixBit {
    const PARTS: usize = 8;
    const BYTES: usize = 6;

    #[inline(always)]
    fn scale<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        let high = bits(isa, head.byte(isa, 1, index / 4), 2 * (index % 4) as u32, 3);
        let low = bits(isa, head.byte(isa, 1, 2 + index / 2), 4 * (index % 2) as u32, 15);
        less_32(isa, head.f16(isa, 0), isa.or(low, isa.shl(high, 4)))
    }
}

/// Six bits around 32 for each 16 columns, an f16 for 256: q3_k.
pub struct SixBitOf16;

impl Scaling for SixBitOf16 {
    const PARTS: usize = 8;
    const COLS: usize = 16;
    const BYTES: usize = 12;

    #[inline(always)]
    fn scale<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        let low = bits(isa, head.byte(isa, 1, index % 8), 4 * (index / 8) as u32, 15);
        let high = bits(isa, head.byte(isa, 1, 8 + index % 4), 2 * (index / 4) as u32, 3);
        less_32(isa, head.f16(isa, 0), isa.or(low, isa.shl(high, 4)))
    }
}

/// Four bits and a minimum of four for each 16 columns, f16 factors of both for 256: q2_k.
pub struct FourBitMinOf16;

impl Scaling for FourBitMinOf16 {
    const PARTS: usize = 8;
    const COLS: usize = 16;
    const HAS_OFFSET: bool = true;
    const BYTES: usize = 16;

    #[inline(always)]
    fn scale<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        isa.mul(head.f16(isa, 0), isa.to_f32(bits(isa, head.byte(isa, 2, index), 0, 15)))
    }

    #[inline(always)]
    fn offset<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        negated(isa, head.f16(isa, 1), bits(isa, head.byte(isa, 2, index), 4, 15))
    }
}

/// A signed byte for each 16 columns, an f16 for 256: q6_k.
pub struct ByteOf16;

impl Scaling for ByteOf16 {
    const PARTS: usize = 8;
    const COLS: usize = 16;
    const BYTES: usize = 16;

    #[inline(always)]
    fn scale<I: Isa>(isa: I, head: &Head<'_>, index: usize) -> I::F32 {
        isa.mul(head.f16(isa, 0), isa.to_f32(head.byte(isa, 1, index)))
    }
}
