//! The two 16-bit floats, f16 (IEEE binary16) and bf16, as bit patterns: exact widening, rounding to nearest even.
//! Plain integer code with the same bits everywhere; the lane versions in `isa` are tested against it.

/// The largest finite f16, 65,504, as bits.
pub const F16_MAX_BITS: u16 = 0x7bff;

/// The largest finite bf16, as bits.
pub const BF16_MAX_BITS: u16 = 0x7f7f;

/// Widens an f16, exactly; a signalling NaN comes back quiet.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    let widened = if magnitude >= 0x7c00 {
        let quiet = if magnitude > 0x7c00 { 0x0040_0000 } else { 0 };
        (magnitude << 13) | 0x7f80_0000 | quiet
    } else if magnitude >= 0x0400 {
        // The exponent bias grows from 15 to 127.
        (magnitude << 13) + (112 << 23)
    } else {
        // Subnormal: a whole number of 2^-24, which f32 holds exactly. Written as the difference of two floats in
        // [0.5, 1), whose unit is 2^-24, so no integer-to-float conversion is needed.
        (f32::from_bits(0x3f00_0000 | magnitude) - 0.5).to_bits()
    };
    f32::from_bits(sign | widened)
}

/// Narrows to f16, to nearest even; beyond 65,520 it is infinity, a NaN stays a (quiet) NaN.
#[inline]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let narrowed = if magnitude > 0x7f80_0000 {
        0x7e00 | ((magnitude >> 13) & 0x03ff)
    } else if magnitude >= 0x477f_f000 {
        0x7c00
    } else if magnitude >= 0x3880_0000 {
        let nearest_even = magnitude + 0x0fff + ((magnitude >> 13) & 1);
        (nearest_even >> 13) - (112 << 10)
    } else {
        // Adding 0.5 makes the hardware round to units of 2^-24, the step of the subnormal f16.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0x3f00_0000
    };
    (sign | narrowed) as u16
}

/// Widens a bf16, exactly.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Narrows to bf16, to nearest even; a NaN stays a (quiet) NaN.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return ((bits >> 16) | 0x0040) as u16;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value by the definition of the format, in f64.
    fn defined(bits: u16, exponent_bits: u32) -> f64 {
        let mantissa_bits = 15 - exponent_bits;
        let bias = (1 << (exponent_bits - 1)) - 1;
        let mantissa = f64::from(bits & ((1 << mantissa_bits) - 1)) / f64::from(1u32 << mantissa_bits);
        let exponent = i32::from((bits & 0x7fff) >> mantissa_bits);
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(1 - bias),
            e if e == (1 << exponent_bits) - 1 && mantissa == 0.0 => f64::INFINITY,
            e if e == (1 << exponent_bits) - 1 => f64::NAN,
            e => (1.0 + mantissa) * 2f64.powi(e - bias),
        };
        if bits & 0x8000 != 0 { -magnitude } else { magnitude }
    }

    fn check_all(exponent_bits: u32, widen: fn(u16) -> f32, narrow: fn(f32) -> u16) {
        for bits in 0..=u16::MAX {
            let value = widen(bits);
            let wanted = defined(bits, exponent_bits);
            if wanted.is_nan() {
                assert!(value.is_nan() && widen(narrow(value)).is_nan(), "{bits:#06x}");
                continue;
            }
            assert_eq!(f64::from(value), wanted, "{bits:#06x}");
            assert_eq!(value.is_sign_negative(), bits & 0x8000 != 0, "{bits:#06x}");
            assert_eq!(narrow(value), bits, "{bits:#06x} does not come back");
        }
    }

    /// Between each value and its successor: the middle goes to the even one, its f32 neighbours to the nearer one.
    fn check_rounding(exponent_bits: u32, widen: fn(u16) -> f32, narrow: fn(f32) -> u16) {
        let infinity = ((1u16 << exponent_bits) - 1) << (15 - exponent_bits);
        for low in 0..infinity - 1 {
            let middle = (f64::from(widen(low)) + f64::from(widen(low + 1))) / 2.0;
            let middle32 = middle as f32;
            assert_eq!(f64::from(middle32), middle, "the middle is exact in f32");
            let even = low + (low & 1);
            assert_eq!(narrow(middle32), even, "middle above {low:#06x}");
            assert_eq!(narrow(-middle32), even | 0x8000, "middle below -{low:#06x}");
            assert_eq!(narrow(f32::from_bits(middle32.to_bits() - 1)), low);
            assert_eq!(narrow(f32::from_bits(middle32.to_bits() + 1)), low + 1);
        }
    }

    #[test]
    fn every_f16_is_widened_exactly_and_comes_back() {
        check_all(5, f16_to_f32, f32_to_f16);
        check_rounding(5, f16_to_f32, f32_to_f16);
        assert_eq!(f32_to_f16(65_519.996), F16_MAX_BITS);
        assert_eq!(f32_to_f16(65_520.0), 0x7c00);
        assert_eq!(f32_to_f16(f32::MAX), 0x7c00);
        assert_eq!(f32_to_f16(f32::NEG_INFINITY), 0xfc00);
        assert_eq!(f32_to_f16(1e-40), 0);
        assert_eq!(f32_to_f16(-1e-40), 0x8000);
    }

    #[test]
    fn every_bf16_is_widened_exactly_and_comes_back() {
        check_all(8, bf16_to_f32, f32_to_bf16);
        check_rounding(8, bf16_to_f32, f32_to_bf16);
        assert_eq!(f32_to_bf16(f32::MAX), 0x7f80);
        assert_eq!(f32_to_bf16(f32::INFINITY), 0x7f80);
    }
}
