//! NEON with byte dot products: sixteen lanes are four registers. With I8MM, unsigned codes meet signed bytes in one
//! instruction; without it they are shifted into the range of signed ones.

#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::arch::asm;

use super::{Isa, LANES};

/// Proof that the processor and the system have NEON and DotProd, and I8MM where the constant says so.
#[derive(Clone, Copy, Debug)]
pub struct Neon<const I8MM: bool>(());

impl<const I8MM: bool> Neon<I8MM> {
    /// The proof, where the instructions exist.
    pub fn detect() -> Option<Self> {
        use std::arch::is_aarch64_feature_detected;
        let found = is_aarch64_feature_detected!("neon")
            && is_aarch64_feature_detected!("dotprod")
            && (!I8MM || is_aarch64_feature_detected!("i8mm"));
        found.then_some(Neon(()))
    }
}

#[target_feature(enable = "neon,dotprod")]
fn enabled<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[target_feature(enable = "neon,dotprod,i8mm")]
fn enabled_i8mm<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Runs one expression of intrinsics. The instructions exist because `self` does.
macro_rules! lanes {
    ($e:expr) => {
        // SAFETY: a `Neon` exists only after `detect` found every feature that these intrinsics need, and every pointer
        // given to them comes from a reference to as many bytes as they touch.
        unsafe { $e }
    };
}

/// The expression for each of the four registers.
macro_rules! each {
    ($i:ident => $e:expr) => {
        [
            {
                let $i = 0;
                lanes!($e)
            },
            {
                let $i = 1;
                lanes!($e)
            },
            {
                let $i = 2;
                lanes!($e)
            },
            {
                let $i = 3;
                lanes!($e)
            },
        ]
    };
}

/// Adds the four products of signed bytes in each word. Written as assembly, as [`usdot`] is: Rust 1.95 does not have
/// the intrinsics yet. Pure, so that equal sums are computed once.
///
/// # Safety
/// The processor has DotProd.
#[inline(always)]
unsafe fn sdot(mut sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: the instruction exists, as the caller promises, and touches nothing but these registers.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Adds the four products of unsigned bytes of `a` and signed ones of `b` in each word.
///
/// # Safety
/// The processor has I8MM.
#[inline(always)]
unsafe fn usdot(mut sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: the instruction exists, as the caller promises, and touches nothing but these registers.
    unsafe {
        asm!("usdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Four f16, widened. Unsafe as its intrinsics are; called where a `Neon` is at hand.
#[inline(always)]
unsafe fn widen_f16(halves: uint16x4_t) -> float32x4_t {
    lanes!(vcvt_f32_f16(vreinterpret_f16_u16(halves)))
}

impl<const I8MM: bool> Isa for Neon<I8MM> {
    type F32 = [float32x4_t; 4];
    type I32 = [int32x4_t; 4];
    type U8Sum = [int32x4_t; 4];
    type U4Sum = [int32x4_t; 4];

    const DENSE_TOKENS: usize = 4;
    const CODED_TOKENS: usize = 4;

    type OfCodes = Neon<I8MM>;
    type OfFloats = Neon<false>;

    #[inline(always)]
    fn of_codes(self) -> Self::OfCodes {
        self
    }

    #[inline(always)]
    fn of_floats(self) -> Self::OfFloats {
        Neon(())
    }

    #[inline(always)]
    fn vectorize<R>(self, work: impl FnOnce() -> R) -> R {
        if I8MM { lanes!(enabled_i8mm(work)) } else { lanes!(enabled(work)) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        lanes!([vdupq_n_f32(value); 4])
    }

    #[inline(always)]
    fn load(self, values: &[f32; LANES]) -> Self::F32 {
        each!(i => vld1q_f32(values.as_ptr().add(4 * i)))
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
        self.as_f32(self.load_words(bytes))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 32]) -> Self::F32 {
        each!(i => widen_f16(vreinterpret_u16_u8(vld1_u8(bytes.as_ptr().add(8 * i)))))
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES], v: Self::F32) {
        let _: [(); 4] = each!(i => vst1q_f32(out.as_mut_ptr().add(4 * i), v[i]));
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
        each!(i => vaddq_f32(a[i], b[i]))
    }

    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(i => vsubq_f32(a[i], b[i]))
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(i => vmulq_f32(a[i], b[i]))
    }

    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(i => vdivq_f32(a[i], b[i]))
    }

    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        each!(i => vfmaq_f32(c[i], a[i], b[i]))
    }

    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        // NEON's own minimum is NaN where either is.
        each!(i => vbslq_f32(vcltq_f32(a[i], b[i]), a[i], b[i]))
    }

    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(i => vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i]))
    }

    #[inline(always)]
    fn splat_word(self, word: i32) -> Self::I32 {
        lanes!([vdupq_n_s32(word); 4])
    }

    #[inline(always)]
    fn load_words(self, bytes: &[u8; 64]) -> Self::I32 {
        each!(i => vreinterpretq_s32_u8(vld1q_u8(bytes.as_ptr().add(16 * i))))
    }

    #[inline(always)]
    fn load_i8(self, bytes: &[u8; 16]) -> Self::I32 {
        lanes!({
            let bytes = vld1q_s8(bytes.as_ptr().cast());
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            [
                vmovl_s16(vget_low_s16(low)),
                vmovl_high_s16(low),
                vmovl_s16(vget_low_s16(high)),
                vmovl_high_s16(high),
            ]
        })
    }

    #[inline(always)]
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(i => vandq_s32(a[i], b[i]))
    }

    #[inline(always)]
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(i => vorrq_s32(a[i], b[i]))
    }

    #[inline(always)]
    fn shl(self, a: Self::I32, by: u32) -> Self::I32 {
        each!(i => vshlq_s32(a[i], vdupq_n_s32(by.cast_signed())))
    }

    #[inline(always)]
    fn shr(self, a: Self::I32, by: u32) -> Self::I32 {
        let by = -by.cast_signed();
        each!(i => vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a[i]), vdupq_n_s32(by))))
    }

    #[inline(always)]
    fn sar(self, a: Self::I32, by: u32) -> Self::I32 {
        let by = -by.cast_signed();
        each!(i => vshlq_s32(a[i], vdupq_n_s32(by)))
    }

    #[inline(always)]
    fn add_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(i => vaddq_s32(a[i], b[i]))
    }

    #[inline(always)]
    fn sub_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(i => vsubq_s32(a[i], b[i]))
    }

    #[inline(always)]
    fn mul_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(i => vmulq_s32(a[i], b[i]))
    }

    #[inline(always)]
    fn max_words(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(i => vmaxq_s32(a[i], b[i]))
    }

    #[inline(always)]
    fn low_bytes(self, a: Self::I32) -> [u8; LANES] {
        let mut bytes = [0; LANES];
        lanes!({
            let low = vmovn_high_s32(vmovn_s32(a[0]), a[1]);
            let high = vmovn_high_s32(vmovn_s32(a[2]), a[3]);
            let narrowed = vmovn_high_s16(vmovn_s16(low), high);
            vst1q_u8(bytes.as_mut_ptr(), vreinterpretq_u8_s8(narrowed));
        });
        bytes
    }

    #[inline(always)]
    fn down<const BY: usize>(self, v: Self::F32) -> Self::F32 {
        match BY {
            8 => [v[2], v[3], v[2], v[3]],
            4 => [v[1], v[1], v[2], v[3]],
            2 => [lanes!(vextq_f32::<2>(v[0], v[0])), v[1], v[2], v[3]],
            _ => [lanes!(vextq_f32::<1>(v[0], v[0])), v[1], v[2], v[3]],
        }
    }

    #[inline(always)]
    fn first(self, v: Self::F32) -> f32 {
        lanes!(vgetq_lane_f32::<0>(v[0]))
    }

    #[inline(always)]
    fn to_f32(self, a: Self::I32) -> Self::F32 {
        each!(i => vcvtq_f32_s32(a[i]))
    }

    #[inline(always)]
    fn as_f32(self, a: Self::I32) -> Self::F32 {
        each!(i => vreinterpretq_f32_s32(a[i]))
    }

    #[inline(always)]
    fn as_words(self, a: Self::F32) -> Self::I32 {
        each!(i => vreinterpretq_s32_f32(a[i]))
    }

    #[inline(always)]
    fn f16_pair(self, words: Self::I32) -> (Self::F32, Self::F32) {
        let low = each!(i => widen_f16(vmovn_u32(vreinterpretq_u32_s32(words[i]))));
        let high = each!(i => widen_f16(vshrn_n_u32::<16>(vreinterpretq_u32_s32(words[i]))));
        (low, high)
    }

    #[inline(always)]
    fn u8_start(self, start: Self::I32) -> Self::U8Sum {
        if I8MM { start } else { self.splat_word(0) }
    }

    #[inline(always)]
    fn u8_dot(self, sum: Self::U8Sum, codes: Self::I32, x: Self::I32) -> Self::U8Sum {
        if I8MM {
            return each!(i => usdot(sum[i], codes[i], x[i]));
        }
        // Codes less 128 are signed bytes.
        let middle = lanes!(vdupq_n_s32(-0x7f7f_7f80));
        each!(i => sdot(sum[i], veorq_s32(codes[i], middle), x[i]))
    }

    #[inline(always)]
    fn u8_finish(self, sum: Self::U8Sum, _: Self::I32) -> Self::I32 {
        sum
    }

    #[inline(always)]
    fn u6_dot(self, sum: Self::I32, codes: Self::I32, x: Self::I32) -> Self::I32 {
        each!(i => sdot(sum[i], codes[i], x[i]))
    }

    #[inline(always)]
    fn u4_start(self, start: Self::I32) -> Self::U4Sum {
        start
    }

    #[inline(always)]
    fn u4_dot(self, sum: Self::U4Sum, codes: Self::I32, x: Self::I32) -> Self::U4Sum {
        each!(i => sdot(sum[i], codes[i], x[i]))
    }

    #[inline(always)]
    fn u4_finish(self, sum: Self::U4Sum, _: Self::I32) -> Self::I32 {
        sum
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], indices: Self::I32) -> Self::I32 {
        let table = lanes!(vld1q_u8(table.as_ptr()));
        each!(i => vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(indices[i]))))
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        let address = bytes.as_ptr().wrapping_add(at).addr();
        // SAFETY: a prefetch is a hint: it changes no memory and faults on no address.
        unsafe { asm!("prfm pldl2keep, [{}]", in(reg) address, options(nomem, nostack, preserves_flags)) };
    }
}
