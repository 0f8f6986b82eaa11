//! Own exponential: the same bits on every machine, one value or sixteen.
//!
//! exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2 (Cody and Waite's two-part ln 2), exp(r) by its series to
//! the seventh power (next term: 5e-9). Within 1 unit in the last place (2 promised) where the result is normal.

use crate::isa::Isa;

/// exp is zero under this and infinite over [`HIGH`]; between them n fits the two steps of scaling.
const LOW: f32 = -105.0;
const HIGH: f32 = 89.0;
/// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The upper bits of ln 2 (n times it is exact) and the rest.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// 1 / k!, from the seventh down to the second.
const SERIES: [f32; 6] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];

/// e to the power of each lane. Of 0 exactly 1, of NaN NaN, under -104 zero, over 88.73 infinity.
#[inline(always)]
pub(crate) fn exp<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let x = isa.max(isa.splat(LOW), isa.min(isa.splat(HIGH), x));
    let shifted = isa.fma(x, isa.splat(std::f32::consts::LOG2_E), isa.splat(ROUND));
    let n = isa.sub(shifted, isa.splat(ROUND));
    let r = isa.fma(n, isa.splat(-LN_2_HIGH), x);
    let r = isa.fma(n, isa.splat(-LN_2_LOW), r);
    let mut p = isa.splat(SERIES[0]);
    for c in &SERIES[1..] {
        p = isa.fma(p, r, isa.splat(*c));
    }
    let one = isa.splat(1.0);
    let p = isa.fma(isa.fma(p, r, one), r, one);
    // 2^n in two factors, so that neither leaves the range of normal numbers and the result rounds once.
    let n = isa.sub_words(isa.as_words(shifted), isa.splat_word(ROUND.to_bits().cast_signed()));
    let half = isa.sar(n, 1);
    isa.mul(isa.mul(p, power_of_two(isa, half)), power_of_two(isa, isa.sub_words(n, half)))
}

/// 2^n for n that give a normal number.
#[inline(always)]
fn power_of_two<I: Isa>(isa: I, n: I::I32) -> I::F32 {
    isa.as_f32(isa.shl(isa.add_words(n, isa.splat_word(127)), 23))
}

/// e to the power of one value, step by step the formula of the lanes. Of 0 exactly 1, of NaN NaN, under -104 zero,
/// over 88.73 infinity; else within 2 units in the last place.
#[inline(always)]
pub fn exp_one(x: f32) -> f32 {
    let x = if HIGH < x { HIGH } else { x };
    let x = if LOW > x { LOW } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let p = SERIES[1..].iter().fold(SERIES[0], |p, c| p.mul_add(r, *c));
    let p = p.mul_add(r, 1.0).mul_add(r, 1.0);
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned());
    p * power(n >> 1) * power(n.wrapping_sub(n >> 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::scalar::Scalar;

    fn units_apart(a: f32, b: f32) -> u32 {
        a.to_bits().abs_diff(b.to_bits())
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let mut worst = 0;
        let mut x = -103.9f32;
        while x < 88.7 {
            let wanted = f64::from(x).exp() as f32;
            worst = worst.max(units_apart(exp_one(x), wanted));
            x += 0.000_37;
        }
        assert!(worst <= 2, "{worst} units");
    }

    #[test]
    fn one_value_and_sixteen_have_the_same_bits() {
        let odd = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -1e-40, 88.8, -104.5, 1e30, -1e30];
        let many = (0..20_000).map(|i| (i as f32 - 10_000.0) * 0.0123);
        for x in odd.into_iter().chain(many) {
            assert_eq!(exp(Scalar, [x; 16])[3].to_bits(), exp_one(x).to_bits(), "exp({x})");
        }
        assert!(exp_one(f32::NAN).is_nan() && exp(Scalar, [f32::NAN; 16])[0].is_nan());
    }

    #[test]
    fn the_ends_are_as_stated() {
        assert_eq!(exp_one(0.0), 1.0);
        assert_eq!(exp_one(-0.0), 1.0);
        assert_eq!(exp_one(-1e30), 0.0);
        assert_eq!(exp_one(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_one(88.8), f32::INFINITY);
        assert!(exp_one(88.72).is_finite());
        assert!(exp_one(-103.0) > 0.0);
    }
}
