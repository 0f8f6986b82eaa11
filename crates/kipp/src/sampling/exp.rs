//! The exponential of a whole vocabulary: plain arithmetic without a branch, so that the compiler makes vectors of it and
//! every machine gives the same bits. For sums over many ids; a single weight takes `libm`'s.

/// Added and taken off again, it rounds a number below 2^51 to an integer, which then stands in the lowest bits.
const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

/// ln 2 in two parts, the first with 32 bits, so that its product with an exponent is exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Below it the result is no normal number; it is taken as zero.
pub(super) const SMALLEST: f64 = -708.0;

/// 1/n! from n = 12 down to 0: the Taylor series, whose first missing term is 4e-18 where |r| is largest.
const TAYLOR: [f64; 13] = [
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    1.0 / 2.0,
    1.0,
    1.0,
];

/// Numbers that one call takes, each step on all of them before the next one, so that the compiler makes vectors of it.
const LANES: usize = 4;

/// exp of each of `x`, from -inf to 0, with a relative error of at most 2^-51; 0 below [`SMALLEST`].
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, and exp(x) = 2^n exp(r).
#[inline(always)]
fn exp(x: [f64; LANES]) -> [f64; LANES] {
    let inside = x.map(|x| if x > SMALLEST { x } else { SMALLEST });
    let shifted = inside.map(|x| x * std::f64::consts::LOG2_E + ROUND);
    let mut r = inside;
    for (r, shifted) in r.iter_mut().zip(shifted) {
        let n = shifted - ROUND;
        *r = (*r - n * LN_2_HIGH) - n * LN_2_LOW;
    }
    let mut sums = [1.0 / 6_227_020_800.0; LANES]; // 1/13!
    for coefficient in TAYLOR {
        for (sum, r) in sums.iter_mut().zip(r) {
            *sum = *sum * r + coefficient;
        }
    }
    for ((sum, shifted), x) in sums.iter_mut().zip(shifted).zip(x) {
        // The integer's bits, moved to the exponent: n is from -1022 to 0.
        let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
        *sum = if x < SMALLEST { 0.0 } else { *sum * power };
    }
    sums
}

/// The sum of `exp(x(value))` over `values`, in eight running sums, which are then added in ascending order.
#[inline(always)]
pub(super) fn sum_exp(values: &[f32], x: impl Fn(f32) -> f64) -> f64 {
    let mut sums = [[0.0f64; LANES]; 2];
    let mut add = |values: &[f32; 2 * LANES]| {
        let (halves, _) = values.as_chunks::<LANES>();
        for (sums, half) in sums.iter_mut().zip(halves) {
            for (sum, exp) in sums.iter_mut().zip(exp(half.map(&x))) {
                *sum += exp;
            }
        }
    };
    let (blocks, rest) = values.as_chunks::<{ 2 * LANES }>();
    blocks.iter().for_each(&mut add);
    if !rest.is_empty() {
        let mut padded = [f32::NEG_INFINITY; 2 * LANES];
        padded[..rest.len()].copy_from_slice(rest);
        add(&padded);
    }
    sums.as_flattened().iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential_to_the_last_bits() {
        for i in 0..400_000 {
            let x = -f64::from(i) * 0.001_769;
            let expected = libm::exp(x);
            assert!((exp([x; LANES])[0] - expected).abs() <= expected * 2.0 * f64::EPSILON, "{x}");
        }
        assert_eq!(exp([0.0, -708.5, -1e9, f64::NEG_INFINITY]), [1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn sums_take_every_value_once() {
        for len in [0, 1, 7, 8, 9, 1000] {
            assert_eq!(sum_exp(&vec![0.0; len], f64::from), len as f64);
        }
    }
}
