//! Sixteen lanes in plain Rust: the reference that the other instruction sets equal bit by bit, and the class of
//! processors that have none of them.

use super::{Isa, LANES};
use crate::half::f16_to_f32;

/// Plain Rust, available everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

#[inline(always)]
fn map<T: Copy, U: Copy + Default>(a: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    let mut out = [U::default(); LANES];
    for (out, a) in out.iter_mut().zip(a) {
        *out = f(a);
    }
    out
}

#[inline(always)]
fn zip<T: Copy + Default>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> T) -> [T; LANES] {
    let mut out = [T::default(); LANES];
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
    out
}

#[inline(always)]
fn words(bytes: &[u8; 64]) -> [i32; LANES] {
    let mut out = [0; LANES];
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *out = i32::from_le_bytes(*bytes);
    }
    out
}

// Not inlined: unrolled into every kernel it would be most of the time that this crate takes to compile.
#[inline(never)]
fn dot(sum: [i32; LANES], codes: [i32; LANES], x: [i32; LANES]) -> [i32; LANES] {
    let mut out = sum;
    for ((out, codes), x) in out.iter_mut().zip(codes).zip(x) {
        for (code, x) in codes.to_le_bytes().into_iter().zip(x.to_le_bytes()) {
            *out += i32::from(code) * i32::from(x.cast_signed());
        }
    }
    out
}

impl Isa for Scalar {
    type F32 = [f32; LANES];
    type I32 = [i32; LANES];
    type U8Sum = [i32; LANES];
    type U4Sum = [i32; LANES];

    const DENSE_TOKENS: usize = 4;
    const CODED_TOKENS: usize = 4;

    type OfCodes = Scalar;
    type OfFloats = Scalar;

    #[inline(always)]
    fn of_codes(self) -> Self::OfCodes {
        self
    }

    #[inline(always)]
    fn of_floats(self) -> Self::OfFloats {
        self
    }

    #[inline(always)]
    fn vectorize<R>(self, work: impl FnOnce() -> R) -> R {
        work()
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        [value; LANES]
    }

    #[inline(always)]
    fn load(self, values: &[f32; LANES]) -> Self::F32 {
        *values
    }

    #[inline(always)]
    fn load_partial(self, values: &[f32]) -> Self::F32 {
        let mut out = [0.0; LANES];
        for (out, value) in out.iter_mut().zip(values) {
            *out = *value;
        }
        out
    }

    #[inline(always)]
    fn load_le(self, bytes: &[u8; 64]) -> Self::F32 {
        map(words(bytes), |w| f32::from_bits(w.cast_unsigned()))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 32]) -> Self::F32 {
        let mut out = [0.0; LANES];
        for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *out = f16_to_f32(u16::from_le_bytes(*bytes));
        }
        out
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES], v: Self::F32) {
        *out = v;
    }

    #[inline(always)]
    fn store_partial(self, out: &mut [f32], v: Self::F32) {
        for (out, v) in out.iter_mut().zip(v) {
            *out = v;
        }
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        let mut out = c;
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a.mul_add(b, *out);
        }
        out
    }

    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn splat_word(self, word: i32) -> Self::I32 {
        [word; LANES]
    }

    #[inline(always)]
    fn load_words(self, bytes: &[u8; 64]) -> Self::I32 {
        words(bytes)
    }

    #[inline(always)]
    fn load_i8(self, bytes: &[u8; 16]) -> Self::I32 {
        map(*bytes, |b| i32::from(b.cast_signed()))
    }

    #[inline(always)]
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, |a, b| a & b)
    }

    #[inline(always)]
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, |a, b| a | b)
    }

    #[inline(always)]
    fn shl(self, a: Self::I32, by: u32) -> Self::I32 {
        map(a, |a| a << by)
    }

    #[inline(always)]
    fn shr(self, a: Self::I32, by: u32) -> Self::I32 {
        map(a, |a| (a.cast_unsigned() >> by).cast_signed())
    }

    #[inline(always)]
    fn sar(self, a: Self::I32, by: u32) -> Self::I32 {
        map(a, |a| a >> by)
    }

    #[inline(always)]
    fn add_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, i32::wrapping_add)
    }

    #[inline(always)]
    fn sub_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, i32::wrapping_sub)
    }

    #[inline(always)]
    fn mul_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, i32::wrapping_mul)
    }

    #[inline(always)]
    fn max_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, i32::max)
    }

    #[inline(always)]
    fn low_bytes(self, a: Self::I32) -> [u8; LANES] {
        map(a, |a| a as u8)
    }

    #[inline(always)]
    fn down<const BY: usize>(self, v: Self::F32) -> Self::F32 {
        std::array::from_fn(|i| v[(i + BY) % LANES])
    }

    #[inline(always)]
    fn first(self, v: Self::F32) -> f32 {
        v[0]
    }

    #[inline(always)]
    fn to_f32(self, a: Self::I32) -> Self::F32 {
        map(a, |a| a as f32)
    }

    #[inline(always)]
    fn as_f32(self, a: Self::I32) -> Self::F32 {
        map(a, |a| f32::from_bits(a.cast_unsigned()))
    }

    #[inline(always)]
    fn as_words(self, a: Self::F32) -> Self::I32 {
        map(a, |a| a.to_bits().cast_signed())
    }

    #[inline(always)]
    fn f16_pair(self, words: Self::I32) -> (Self::F32, Self::F32) {
        (map(words, |w| f16_to_f32(w as u16)), map(words, |w| f16_to_f32((w >> 16) as u16)))
    }

    #[inline(always)]
    fn u8_start(self, start: Self::I32) -> Self::U8Sum {
        start
    }

    #[inline(always)]
    fn u8_dot(self, sum: Self::U8Sum, codes: Self::I32, x: Self::I32) -> Self::U8Sum {
        dot(sum, codes, x)
    }

    #[inline(always)]
    fn u8_finish(self, sum: Self::U8Sum, _: Self::I32) -> Self::I32 {
        sum
    }

    #[inline(always)]
    fn u6_dot(self, sum: Self::I32, codes: Self::I32, x: Self::I32) -> Self::I32 {
        dot(sum, codes, x)
    }

    #[inline(always)]
    fn u4_start(self, start: Self::I32) -> Self::U4Sum {
        start
    }

    #[inline(always)]
    fn u4_dot(self, sum: Self::U4Sum, codes: Self::I32, x: Self::I32) -> Self::U4Sum {
        dot(sum, codes, x)
    }

    #[inline(always)]
    fn u4_finish(self, sum: Self::U4Sum, _: Self::I32) -> Self::I32 {
        sum
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], indices: Self::I32) -> Self::I32 {
        map(indices, |word| i32::from_le_bytes(word.to_le_bytes().map(|i| table[usize::from(i & 15)])))
    }
}
