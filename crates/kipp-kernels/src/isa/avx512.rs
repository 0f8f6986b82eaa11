//! AVX-512: sixteen lanes are one register. Three instruction sets share this file: the base (F, BW, DQ, VL), with VNNI
//! (byte dot products) and with VNNI and BF16 (dot products of bf16 pairs); they differ in what two operations compile to.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Isa, LANES};

/// Proof that the processor and the system have AVX-512 F, BW, DQ and VL, AVX2, FMA and F16C, and where the constants
/// say so VNNI and BF16 (never BF16 alone).
#[derive(Clone, Copy, Debug)]
pub struct Avx512<const VNNI: bool, const BF16: bool>(());

impl<const VNNI: bool, const BF16: bool> Avx512<VNNI, BF16> {
    /// The proof, where the instructions exist.
    pub fn detect() -> Option<Self> {
        const { assert!(VNNI || !BF16) };
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || is_x86_feature_detected!("avx512vnni"))
            && (!BF16 || is_x86_feature_detected!("avx512bf16"));
        found.then_some(Avx512(()))
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn enabled<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn enabled_vnni<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c")]
fn enabled_bf16<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Runs one expression of intrinsics. The instructions exist because `self` does.
macro_rules! lanes {
    ($e:expr) => {
        // SAFETY: an `Avx512` exists only after `detect` found every feature that these intrinsics need, and every
        // pointer given to them comes from a reference to as many bytes as they touch.
        unsafe { $e }
    };
}

/// The first `lanes` lanes, sixteen at most.
#[inline(always)]
fn mask(lanes: usize) -> __mmask16 {
    ((1u32 << lanes.min(LANES)) - 1) as __mmask16
}

impl<const VNNI: bool, const BF16: bool> Isa for Avx512<VNNI, BF16> {
    type F32 = __m512;
    type I32 = __m512i;
    type U8Sum = (__m512i, __m512i);
    type U4Sum = __m512i;

    const HAS_BF16_DOT: bool = BF16;
    const DENSE_TOKENS: usize = 24;
    /// Without VNNI the running products of a byte code take two registers a token.
    const CODED_TOKENS: usize = if VNNI { 12 } else { 8 };

    type OfCodes = Avx512<VNNI, false>;
    type OfFloats = Avx512<false, false>;

    #[inline(always)]
    fn of_codes(self) -> Self::OfCodes {
        Avx512(())
    }

    #[inline(always)]
    fn of_floats(self) -> Self::OfFloats {
        Avx512(())
    }

    #[inline(always)]
    fn vectorize<R>(self, work: impl FnOnce() -> R) -> R {
        match (VNNI, BF16) {
            (_, true) => lanes!(enabled_bf16(work)),
            (true, false) => lanes!(enabled_vnni(work)),
            (false, false) => lanes!(enabled(work)),
        }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        lanes!(_mm512_set1_ps(value))
    }

    #[inline(always)]
    fn load(self, values: &[f32; LANES]) -> Self::F32 {
        lanes!(_mm512_loadu_ps(values.as_ptr()))
    }

    #[inline(always)]
    fn load_partial(self, values: &[f32]) -> Self::F32 {
        lanes!(_mm512_maskz_loadu_ps(mask(values.len()), values.as_ptr()))
    }

    #[inline(always)]
    fn load_le(self, bytes: &[u8; 64]) -> Self::F32 {
        lanes!(_mm512_loadu_ps(bytes.as_ptr().cast()))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 32]) -> Self::F32 {
        lanes!(_mm512_cvtph_ps(_mm256_loadu_si256(bytes.as_ptr().cast())))
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES], v: Self::F32) {
        lanes!(_mm512_storeu_ps(out.as_mut_ptr(), v));
    }

    #[inline(always)]
    fn store_partial(self, out: &mut [f32], v: Self::F32) {
        lanes!(_mm512_mask_storeu_ps(out.as_mut_ptr(), mask(out.len()), v));
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        lanes!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn splat_word(self, word: i32) -> Self::I32 {
        lanes!(_mm512_set1_epi32(word))
    }

    #[inline(always)]
    fn load_words(self, bytes: &[u8; 64]) -> Self::I32 {
        lanes!(_mm512_loadu_si512(bytes.as_ptr().cast()))
    }

    #[inline(always)]
    fn load_i8(self, bytes: &[u8; 16]) -> Self::I32 {
        lanes!(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.as_ptr().cast())))
    }

    #[inline(always)]
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        lanes!(_mm512_and_si512(a, b))
    }

    #[inline(always)]
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        lanes!(_mm512_or_si512(a, b))
    }

    #[inline(always)]
    fn shl(self, a: Self::I32, by: u32) -> Self::I32 {
        lanes!(_mm512_sllv_epi32(a, _mm512_set1_epi32(by.cast_signed())))
    }

    #[inline(always)]
    fn shr(self, a: Self::I32, by: u32) -> Self::I32 {
        lanes!(_mm512_srlv_epi32(a, _mm512_set1_epi32(by.cast_signed())))
    }

    #[inline(always)]
    fn sar(self, a: Self::I32, by: u32) -> Self::I32 {
        lanes!(_mm512_srav_epi32(a, _mm512_set1_epi32(by.cast_signed())))
    }

    #[inline(always)]
    fn add_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        lanes!(_mm512_add_epi32(a, b))
    }

    #[inline(always)]
    fn sub_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        lanes!(_mm512_sub_epi32(a, b))
    }

    #[inline(always)]
    fn mul_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        lanes!(_mm512_mullo_epi32(a, b))
    }

    #[inline(always)]
    fn max_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        lanes!(_mm512_max_epi32(a, b))
    }

    #[inline(always)]
    fn low_bytes(self, a: Self::I32) -> [u8; LANES] {
        let mut bytes = [0; LANES];
        lanes!(_mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(a)));
        bytes
    }

    #[inline(always)]
    fn down<const BY: usize>(self, v: Self::F32) -> Self::F32 {
        lanes!(match BY {
            8 => _mm512_shuffle_f32x4::<0b11_10>(v, v),
            4 => _mm512_shuffle_f32x4::<0b01>(v, v),
            2 => _mm512_permute_ps::<0b11_10>(v),
            _ => _mm512_permute_ps::<0b01>(v),
        })
    }

    #[inline(always)]
    fn first(self, v: Self::F32) -> f32 {
        lanes!(_mm512_cvtss_f32(v))
    }

    #[inline(always)]
    fn to_f32(self, a: Self::I32) -> Self::F32 {
        lanes!(_mm512_cvtepi32_ps(a))
    }

    #[inline(always)]
    fn as_f32(self, a: Self::I32) -> Self::F32 {
        lanes!(_mm512_castsi512_ps(a))
    }

    #[inline(always)]
    fn as_words(self, a: Self::F32) -> Self::I32 {
        lanes!(_mm512_castps_si512(a))
    }

    #[inline(always)]
    fn f16_pair(self, words: Self::I32) -> (Self::F32, Self::F32) {
        lanes!({
            let low = _mm512_cvtepi32_epi16(words);
            let high = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(words));
            (_mm512_cvtph_ps(low), _mm512_cvtph_ps(high))
        })
    }

    #[inline(always)]
    fn bf16_dot(self, sum: Self::F32, weights: Self::I32, x: Self::I32) -> Self::F32 {
        if BF16 {
            lanes!(_mm512_dpbf16_ps(sum, bf16_lanes(weights), bf16_lanes(x)))
        } else {
            let ((even, odd), (x_even, x_odd)) = (self.bf16_pair(weights), self.bf16_pair(x));
            self.fma(even, x_even, self.fma(odd, x_odd, sum))
        }
    }

    #[inline(always)]
    fn u8_start(self, start: Self::I32) -> Self::U8Sum {
        if VNNI { (start, start) } else { lanes!((_mm512_setzero_si512(), _mm512_setzero_si512())) }
    }

    #[inline(always)]
    fn u8_dot(self, sum: Self::U8Sum, codes: Self::I32, x: Self::I32) -> Self::U8Sum {
        if VNNI {
            return (lanes!(_mm512_dpbusd_epi32(sum.0, codes, x)), sum.1);
        }
        lanes!({
            // A byte times an i8 overflows the 16-bit sums of vpmaddubsw; two nibbles do not.
            let nibble = _mm512_set1_epi8(15);
            let low = _mm512_and_si512(codes, nibble);
            let high = _mm512_and_si512(_mm512_srli_epi32::<4>(codes), nibble);
            (
                _mm512_add_epi16(sum.0, _mm512_maddubs_epi16(low, x)),
                _mm512_add_epi16(sum.1, _mm512_maddubs_epi16(high, x)),
            )
        })
    }

    #[inline(always)]
    fn u8_finish(self, sum: Self::U8Sum, start: Self::I32) -> Self::I32 {
        if VNNI {
            return sum.0;
        }
        lanes!({
            let low = _mm512_madd_epi16(sum.0, _mm512_set1_epi16(1));
            let high = _mm512_madd_epi16(sum.1, _mm512_set1_epi16(16));
            _mm512_add_epi32(_mm512_add_epi32(low, high), start)
        })
    }

    #[inline(always)]
    fn u6_dot(self, sum: Self::I32, codes: Self::I32, x: Self::I32) -> Self::I32 {
        if VNNI {
            return lanes!(_mm512_dpbusd_epi32(sum, codes, x));
        }
        lanes!({
            let products = _mm512_maddubs_epi16(codes, x);
            _mm512_add_epi32(sum, _mm512_madd_epi16(products, _mm512_set1_epi16(1)))
        })
    }

    #[inline(always)]
    fn u4_start(self, start: Self::I32) -> Self::U4Sum {
        if VNNI { start } else { lanes!(_mm512_setzero_si512()) }
    }

    #[inline(always)]
    fn u4_dot(self, sum: Self::U4Sum, codes: Self::I32, x: Self::I32) -> Self::U4Sum {
        if VNNI {
            lanes!(_mm512_dpbusd_epi32(sum, codes, x))
        } else {
            lanes!(_mm512_add_epi16(sum, _mm512_maddubs_epi16(codes, x)))
        }
    }

    #[inline(always)]
    fn u4_finish(self, sum: Self::U4Sum, start: Self::I32) -> Self::I32 {
        if VNNI {
            return sum;
        }
        lanes!(_mm512_add_epi32(_mm512_madd_epi16(sum, _mm512_set1_epi16(1)), start))
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], indices: Self::I32) -> Self::I32 {
        lanes!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, indices)
        })
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        super::avx2::prefetch(bytes, at);
    }
}

/// The words as pairs of bf16, for the intrinsic that wants its own type.
#[inline(always)]
fn bf16_lanes(words: __m512i) -> __m512bh {
    // SAFETY: both are plain registers of 512 bits.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(words) }
}

/// The processor's maker, as it names itself.
pub(crate) fn vendor() -> [u8; 12] {
    let answer = __cpuid(0);
    let mut name = [0; 12];
    for (part, word) in name.as_chunks_mut::<4>().0.iter_mut().zip([answer.ebx, answer.edx, answer.ecx]) {
        *part = word.to_le_bytes();
    }
    name
}
