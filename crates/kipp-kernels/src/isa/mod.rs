//! The lanes: the few vector operations that kernels may use, one file an instruction set.
//!
//! A vector has 16 logical lanes on every instruction set (two registers on AVX2, four on NEON, an array in plain Rust),
//! so that a kernel written once sums in the same order everywhere and all classes give the same bits. Each operation is
//! one IEEE operation a lane (a fused multiply-add rounds once) or exact integer arithmetic; approximate instructions
//! have no place here.
//!
//! A token such as `Avx2` can only be had from `detect()`, so holding one proves that the instructions exist. Rust has
//! no `#[target_feature]` for trait methods: everything is `#[inline(always)]` and a kernel runs inside
//! [`Isa::vectorize`], the one function of each file that carries the attribute. That holds for closures too: one that
//! is not inlined calls each instruction as a function, and a kernel becomes 300 times slower without a warning.

pub mod scalar;

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "aarch64")]
pub mod neon;
#[cfg(target_arch = "x86_64")]
mod pair;

/// Logical lanes of a vector, on every instruction set.
pub const LANES: usize = 16;

/// An instruction set: a proof that it exists, and its operations.
pub trait Isa: Copy + Send + Sync + 'static {
    /// 16 f32.
    type F32: Copy;
    /// 16 words: i32, or bits.
    type I32: Copy;
    /// Running dot products of bytes, for at most eight words; see [`Isa::u8_start`].
    type U8Sum: Copy;
    /// Running dot products of nibbles, for at most eight words; see [`Isa::u4_dot`].
    type U4Sum: Copy;

    /// Whether [`Isa::bf16_dot`] is one instruction, so that bf16 weights meet their input in pairs.
    const HAS_BF16_DOT: bool = false;
    /// Tokens whose f32 sums (16 rows each) fit in registers beside the operands of the dense kernel.
    const DENSE_TOKENS: usize;
    /// The same for the integer kernels, which also hold the running dot products.
    const CODED_TOKENS: usize;

    /// The same instruction set without dot products of bf16 pairs.
    type OfCodes: Isa;
    /// The same without any dot products: what kernels of floats use, so that they are compiled once for all.
    type OfFloats: Isa;

    /// This set's [`Isa::OfCodes`].
    fn of_codes(self) -> Self::OfCodes;
    /// This set's [`Isa::OfFloats`].
    fn of_floats(self) -> Self::OfFloats;

    /// Runs `work` with the instruction set enabled, so that everything inlined into it may use it.
    fn vectorize<R>(self, work: impl FnOnce() -> R) -> R;

    /// The same value in every lane.
    fn splat(self, value: f32) -> Self::F32;
    /// Sixteen values.
    fn load(self, values: &[f32; LANES]) -> Self::F32;
    /// Up to sixteen values; the other lanes are zero.
    fn load_partial(self, values: &[f32]) -> Self::F32;
    /// Sixteen little-endian f32.
    fn load_le(self, bytes: &[u8; 64]) -> Self::F32;
    /// Sixteen little-endian f16, widened exactly.
    fn load_f16(self, bytes: &[u8; 32]) -> Self::F32;
    /// Writes sixteen values.
    fn store(self, out: &mut [f32; LANES], v: Self::F32);
    /// Writes the first `out.len()` lanes, sixteen at most.
    fn store_partial(self, out: &mut [f32], v: Self::F32);

    /// `a + b`.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a / b`, correctly rounded.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `if a < b { a } else { b }`: `b` where either is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `if a > b { a } else { b }`: `b` where either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// The same word in every lane.
    fn splat_word(self, word: i32) -> Self::I32;
    /// Sixteen little-endian words.
    fn load_words(self, bytes: &[u8; 64]) -> Self::I32;
    /// Sixteen signed bytes, widened.
    fn load_i8(self, bytes: &[u8; 16]) -> Self::I32;
    /// Bitwise and.
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bitwise or.
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Shifts left, `by` < 32.
    fn shl(self, a: Self::I32, by: u32) -> Self::I32;
    /// Shifts right and fills with zeros, `by` < 32.
    fn shr(self, a: Self::I32, by: u32) -> Self::I32;
    /// Shifts right and fills with the sign, `by` < 32.
    fn sar(self, a: Self::I32, by: u32) -> Self::I32;
    /// `a + b`, wrapping.
    fn add_words(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// `a - b`, wrapping.
    fn sub_words(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// The low half of `a * b`.
    fn mul_words(self, a: Self::I32, b: Self::I32) -> Self::I32;

    /// The larger, as signed numbers.
    fn max_words(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// The lowest byte of each word.
    fn low_bytes(self, a: Self::I32) -> [u8; LANES];

    /// Each i32 as f32, to nearest even.
    fn to_f32(self, a: Self::I32) -> Self::F32;
    /// The bits as f32.
    fn as_f32(self, a: Self::I32) -> Self::F32;
    /// The f32's bits.
    fn as_words(self, a: Self::F32) -> Self::I32;
    /// Each word as two f16 (low half, high half), widened exactly.
    fn f16_pair(self, words: Self::I32) -> (Self::F32, Self::F32);

    /// Each word as two bf16 (low half, high half), widened exactly.
    #[inline(always)]
    fn bf16_pair(self, words: Self::I32) -> (Self::F32, Self::F32) {
        let high = self.and(words, self.splat_word(-0x1_0000));
        (self.as_f32(self.shl(words, 16)), self.as_f32(high))
    }

    /// `sum + odd * odd', then `+ even * even'`, of the two bf16 (low half even) in each word: two fused
    /// multiply-adds. An instruction that does it in one takes denormals for zero.
    #[inline(always)]
    fn bf16_dot(self, sum: Self::F32, weights: Self::I32, x: Self::I32) -> Self::F32 {
        let ((even, odd), (x_even, x_odd)) = (self.bf16_pair(weights), self.bf16_pair(x));
        self.fma(even, x_even, self.fma(odd, x_odd, sum))
    }

    /// Running dot products of codes around 128, that is of the codes less 128. `start` is what products of the codes
    /// themselves have too much: minus 128 times the sum of all `x` to come. It is given to [`Isa::u8_finish`] again:
    /// each instruction set adds it where that costs nothing, or multiplies signed codes and needs none.
    fn u8_start(self, start: Self::I32) -> Self::U8Sum;
    /// Adds, in each lane, the four products of `codes` (u8) and `x` (i8, never -128).
    fn u8_dot(self, sum: Self::U8Sum, codes: Self::I32, x: Self::I32) -> Self::U8Sum;
    /// The products, exactly.
    fn u8_finish(self, sum: Self::U8Sum, start: Self::I32) -> Self::I32;
    /// Adds, in each lane, the four products of `codes` (bytes of 0 to 63) and `x` (i8, never -128).
    fn u6_dot(self, sum: Self::I32, codes: Self::I32, x: Self::I32) -> Self::I32;
    /// Running dot products that start at `start`, which is given to [`Isa::u4_finish`] again.
    fn u4_start(self, start: Self::I32) -> Self::U4Sum;
    /// Adds, in each lane, the four products of `codes` (bytes of 0 to 15) and `x` (i8, never -128). Exact for eight
    /// such calls.
    fn u4_dot(self, sum: Self::U4Sum, codes: Self::I32, x: Self::I32) -> Self::U4Sum;
    /// Start and products, exactly.
    fn u4_finish(self, sum: Self::U4Sum, start: Self::I32) -> Self::I32;

    /// Each byte (0 to 15) replaced by that entry of the table.
    fn look_up(self, table: &[u8; 16], indices: Self::I32) -> Self::I32;

    /// Asks for the 64 bytes at `bytes[at..]` ahead of their use; `at` may lie outside.
    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        let _ = (bytes, at);
    }

    /// Lane `i` becomes lane `i + BY` for `i` under `BY`, which is 8, 4, 2 or 1; the other lanes hold anything.
    fn down<const BY: usize>(self, v: Self::F32) -> Self::F32;
    /// The first lane.
    fn first(self, v: Self::F32) -> f32;

    /// All lanes folded by `fold` in one fixed tree: halves, quarters, eighths, the last two.
    #[inline(always)]
    fn reduce(self, v: Self::F32, fold: impl Fn(Self::F32, Self::F32) -> Self::F32) -> f32 {
        let v = fold(v, self.down::<8>(v));
        let v = fold(v, self.down::<4>(v));
        let v = fold(v, self.down::<2>(v));
        self.first(fold(v, self.down::<1>(v)))
    }

    /// The sum of all lanes, in the tree of [`Isa::reduce`].
    #[inline(always)]
    fn reduce_add(self, v: Self::F32) -> f32 {
        self.reduce(
            v,
            #[inline(always)]
            |a, b| self.add(a, b),
        )
    }

    /// The largest lane; `b` of `max` where lanes are NaN.
    #[inline(always)]
    fn reduce_max(self, v: Self::F32) -> f32 {
        self.reduce(
            v,
            #[inline(always)]
            |a, b| self.max(a, b),
        )
    }

    /// The largest word, as a signed number.
    #[inline(always)]
    fn reduce_max_words(self, v: Self::I32) -> i32 {
        let largest = self.reduce(
            self.as_f32(v),
            #[inline(always)]
            |a, b| self.as_f32(self.max_words(self.as_words(a), self.as_words(b))),
        );
        largest.to_bits().cast_signed()
    }
}
