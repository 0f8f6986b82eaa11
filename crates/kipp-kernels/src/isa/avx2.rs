//! AVX2 with FMA and F16C: sixteen lanes are two registers. With AVX-VNNI, byte dot products are one instruction.

#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::*;

use super::pair::Pair;
use super::{Isa, LANES};

/// Proof that the processor and the system have AVX2, FMA and F16C, and AVX-VNNI where the constant says so.
#[derive(Clone, Copy, Debug)]
pub struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// The proof, where the instructions exist.
    pub fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || is_x86_feature_detected!("avxvnni"));
        found.then_some(Avx2(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn enabled<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn enabled_vnni<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Asks for a line into the L2 cache. Written as assembly that touches no memory: the intrinsic counts as an access, and
/// inside a loop over register tiles it makes the compiler keep a sum in memory.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], at: usize) {
    let address = bytes.as_ptr().wrapping_add(at).addr();
    // SAFETY: a prefetch is a hint: it changes no memory and faults on no address.
    unsafe { asm!("prefetcht1 [{}]", in(reg) address, options(nomem, nostack, preserves_flags)) };
}

/// Runs one expression of intrinsics. The instructions exist because `self` does.
macro_rules! lanes {
    ($e:expr) => {
        // SAFETY: an `Avx2` exists only after `detect` found every feature that these intrinsics need, and every
        // pointer given to them comes from a reference to as many bytes as they touch.
        unsafe { $e }
    };
}

/// The f16 in the low halves of eight words. Unsafe as its intrinsics are; called where an `Avx2` is at hand.
#[inline(always)]
unsafe fn widen_low_f16(words: __m256i) -> __m256 {
    lanes!({
        let low = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
        // Packing works on each 128-bit half by itself: gather the two useful quarters afterwards.
        let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(low, low));
        _mm256_cvtph_ps(_mm256_castsi256_si128(packed))
    })
}

/// Adds the products of bytes of at most 128 and `x`: two of them fit the 16-bit sums of vpmaddubsw, as those of bytes of
/// any size do not. Unsafe as its intrinsics are.
#[inline(always)]
unsafe fn unsigned_dot(sum: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    lanes!({
        let products = _mm256_maddubs_epi16(codes, x);
        _mm256_add_epi32(sum, _mm256_madd_epi16(products, _mm256_set1_epi16(1)))
    })
}

/// Adds the products of codes less 128 and `x`: sizes times `x` with their signs.
#[inline(always)]
unsafe fn signed_dot(sum: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    lanes!({
        let signed = _mm256_xor_si256(codes, _mm256_set1_epi8(i8::MIN));
        unsigned_dot(sum, _mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed))
    })
}

impl<const VNNI: bool> Isa for Avx2<VNNI> {
    type F32 = Pair<__m256>;
    type I32 = Pair<__m256i>;
    type U8Sum = Pair<__m256i>;
    type U4Sum = Pair<__m256i>;

    const DENSE_TOKENS: usize = 4;
    const CODED_TOKENS: usize = 4;

    type OfCodes = Avx2<VNNI>;
    type OfFloats = Avx2<false>;

    #[inline(always)]
    fn of_codes(self) -> Self::OfCodes {
        self
    }

    #[inline(always)]
    fn of_floats(self) -> Self::OfFloats {
        Avx2(())
    }

    #[inline(always)]
    fn vectorize<R>(self, work: impl FnOnce() -> R) -> R {
        if VNNI { lanes!(enabled_vnni(work)) } else { lanes!(enabled(work)) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        lanes!(Pair(_mm256_set1_ps(value), _mm256_set1_ps(value)))
    }

    #[inline(always)]
    fn load(self, values: &[f32; LANES]) -> Self::F32 {
        lanes!(Pair(_mm256_loadu_ps(values.as_ptr()), _mm256_loadu_ps(values.as_ptr().add(8))))
    }

    #[inline(always)]
    fn load_partial(self, values: &[f32]) -> Self::F32 {
        let mut lanes = [0.0; LANES];
        let len = values.len().min(LANES);
        lanes[..len].copy_from_slice(&values[..len]);
        self.load(&lanes)
    }

    #[inline(always)]
    fn load_le(self, bytes: &[u8; 64]) -> Self::F32 {
        lanes!(Pair(_mm256_loadu_ps(bytes.as_ptr().cast()), _mm256_loadu_ps(bytes.as_ptr().add(32).cast())))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 32]) -> Self::F32 {
        lanes!({
            let low = _mm_loadu_si128(bytes.as_ptr().cast());
            let high = _mm_loadu_si128(bytes.as_ptr().add(16).cast());
            Pair(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        })
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES], v: Self::F32) {
        lanes!({
            _mm256_storeu_ps(out.as_mut_ptr(), v.0);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v.1);
        });
    }

    #[inline(always)]
    fn store_partial(self, out: &mut [f32], v: Self::F32) {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes, v);
        let len = out.len().min(LANES);
        out[..len].copy_from_slice(&lanes[..len]);
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_add_ps(a, b)),
        )
    }

    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_sub_ps(a, b)),
        )
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_mul_ps(a, b)),
        )
    }

    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_div_ps(a, b)),
        )
    }

    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        lanes!(Pair(_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)))
    }

    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_min_ps(a, b)),
        )
    }

    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_max_ps(a, b)),
        )
    }

    #[inline(always)]
    fn splat_word(self, word: i32) -> Self::I32 {
        lanes!(Pair(_mm256_set1_epi32(word), _mm256_set1_epi32(word)))
    }

    #[inline(always)]
    fn load_words(self, bytes: &[u8; 64]) -> Self::I32 {
        lanes!(Pair(
            _mm256_loadu_si256(bytes.as_ptr().cast()),
            _mm256_loadu_si256(bytes.as_ptr().add(32).cast())
        ))
    }

    #[inline(always)]
    fn load_i8(self, bytes: &[u8; 16]) -> Self::I32 {
        lanes!({
            let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
            Pair(_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes)))
        })
    }

    #[inline(always)]
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_and_si256(a, b)),
        )
    }

    #[inline(always)]
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_or_si256(a, b)),
        )
    }

    #[inline(always)]
    fn shl(self, a: Self::I32, by: u32) -> Self::I32 {
        a.map(
            #[inline(always)]
            |a| lanes!(_mm256_sllv_epi32(a, _mm256_set1_epi32(by.cast_signed()))),
        )
    }

    #[inline(always)]
    fn shr(self, a: Self::I32, by: u32) -> Self::I32 {
        a.map(
            #[inline(always)]
            |a| lanes!(_mm256_srlv_epi32(a, _mm256_set1_epi32(by.cast_signed()))),
        )
    }

    #[inline(always)]
    fn sar(self, a: Self::I32, by: u32) -> Self::I32 {
        a.map(
            #[inline(always)]
            |a| lanes!(_mm256_srav_epi32(a, _mm256_set1_epi32(by.cast_signed()))),
        )
    }

    #[inline(always)]
    fn add_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_add_epi32(a, b)),
        )
    }

    #[inline(always)]
    fn sub_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_sub_epi32(a, b)),
        )
    }

    #[inline(always)]
    fn mul_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_mullo_epi32(a, b)),
        )
    }

    #[inline(always)]
    fn max_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        a.zip(
            b,
            #[inline(always)]
            |a, b| lanes!(_mm256_max_epi32(a, b)),
        )
    }

    #[inline(always)]
    fn low_bytes(self, a: Self::I32) -> [u8; LANES] {
        let mut bytes = [0; LANES];
        lanes!({
            let mask = _mm256_set1_epi32(255);
            let low = Pair(_mm256_and_si256(a.0, mask), _mm256_and_si256(a.1, mask));
            // Packing works on 128-bit halves: the words of both registers come out by quarters, put in order afterwards.
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low.0, low.1));
            let (first, last) = (_mm256_castsi256_si128(ordered), _mm256_extracti128_si256::<1>(ordered));
            _mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm_packus_epi16(first, last));
        });
        bytes
    }

    #[inline(always)]
    fn down<const BY: usize>(self, v: Self::F32) -> Self::F32 {
        let low = lanes!(match BY {
            8 => v.1,
            4 => _mm256_permute2f128_ps::<0b0001_0001>(v.0, v.0),
            2 => _mm256_permute_ps::<0b11_10>(v.0),
            _ => _mm256_permute_ps::<0b01>(v.0),
        });
        Pair(low, v.1)
    }

    #[inline(always)]
    fn first(self, v: Self::F32) -> f32 {
        lanes!(_mm256_cvtss_f32(v.0))
    }

    #[inline(always)]
    fn to_f32(self, a: Self::I32) -> Self::F32 {
        a.map(
            #[inline(always)]
            |a| lanes!(_mm256_cvtepi32_ps(a)),
        )
    }

    #[inline(always)]
    fn as_f32(self, a: Self::I32) -> Self::F32 {
        a.map(
            #[inline(always)]
            |a| lanes!(_mm256_castsi256_ps(a)),
        )
    }

    #[inline(always)]
    fn as_words(self, a: Self::F32) -> Self::I32 {
        a.map(
            #[inline(always)]
            |a| lanes!(_mm256_castps_si256(a)),
        )
    }

    #[inline(always)]
    fn f16_pair(self, words: Self::I32) -> (Self::F32, Self::F32) {
        let low = words.map(
            #[inline(always)]
            |w| lanes!(widen_low_f16(w)),
        );
        let high = words.map(
            #[inline(always)]
            |w| lanes!(widen_low_f16(_mm256_srli_epi32::<16>(w))),
        );
        (low, high)
    }

    #[inline(always)]
    fn u8_start(self, start: Self::I32) -> Self::U8Sum {
        if VNNI { start } else { self.splat_word(0) }
    }

    #[inline(always)]
    fn u8_dot(self, sum: Self::U8Sum, codes: Self::I32, x: Self::I32) -> Self::U8Sum {
        if VNNI {
            return self.u6_dot(sum, codes, x);
        }
        lanes!(Pair(signed_dot(sum.0, codes.0, x.0), signed_dot(sum.1, codes.1, x.1)))
    }

    #[inline(always)]
    fn u8_finish(self, sum: Self::U8Sum, _: Self::I32) -> Self::I32 {
        sum
    }

    #[inline(always)]
    fn u6_dot(self, sum: Self::I32, codes: Self::I32, x: Self::I32) -> Self::I32 {
        if VNNI {
            return Pair(
                lanes!(_mm256_dpbusd_avx_epi32(sum.0, codes.0, x.0)),
                lanes!(_mm256_dpbusd_avx_epi32(sum.1, codes.1, x.1)),
            );
        }
        lanes!(Pair(unsigned_dot(sum.0, codes.0, x.0), unsigned_dot(sum.1, codes.1, x.1)))
    }

    #[inline(always)]
    fn u4_start(self, start: Self::I32) -> Self::U4Sum {
        if VNNI { start } else { self.splat_word(0) }
    }

    #[inline(always)]
    fn u4_dot(self, sum: Self::U4Sum, codes: Self::I32, x: Self::I32) -> Self::U4Sum {
        if VNNI {
            return self.u6_dot(sum, codes, x);
        }
        let products = lanes!(Pair(_mm256_maddubs_epi16(codes.0, x.0), _mm256_maddubs_epi16(codes.1, x.1)));
        lanes!(Pair(_mm256_add_epi16(sum.0, products.0), _mm256_add_epi16(sum.1, products.1)))
    }

    #[inline(always)]
    fn u4_finish(self, sum: Self::U4Sum, start: Self::I32) -> Self::I32 {
        if VNNI {
            return sum;
        }
        let one = lanes!(_mm256_set1_epi16(1));
        self.add_words(lanes!(Pair(_mm256_madd_epi16(sum.0, one), _mm256_madd_epi16(sum.1, one))), start)
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], indices: Self::I32) -> Self::I32 {
        let table = lanes!(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())));
        indices.map(
            #[inline(always)]
            |i| lanes!(_mm256_shuffle_epi8(table, i)),
        )
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        prefetch(bytes, at);
    }
}
