//! The frozen random stream behind `seed`: a draw is a pure function of (seed, choice, position), so a batch,
//! a preemption or a speculated token cannot move it. Not a general generator, and never to be changed:
//! the golden draws in the tests are a promise to users who kept a seed.
//!
//! Philox4x32-10, from J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel Random Numbers: As Easy
//! as 1, 2, 3" (SC 2011), section 4.3. The key is the seed; the counter is (position, choice, 0).

const ROUNDS: usize = 10;
/// Multipliers of the round function, as published.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Key increments (golden ratio and square root of three minus one, in 32 bits), as published.
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// High and low half of the 64-bit product.
fn wide_product(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

/// Ten rounds of Philox4x32 over one counter.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let (high0, low0) = wide_product(MULTIPLIERS[0], counter[0]);
        let (high1, low1) = wide_product(MULTIPLIERS[1], counter[2]);
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// A number in `0.0..1.0` with 53 random bits. `position` is the number of ids before the drawn one.
pub fn uniform(seed: u64, choice: u32, position: u64) -> f64 {
    let counter = [position as u32, (position >> 32) as u32, choice, 0];
    let words = philox(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(words[1]) << 32 | u64::from(words[0])) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers that the paper's authors publish with their reference implementation.
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn draws_stay_in_the_unit_interval_and_differ_by_every_key_part() {
        let base = uniform(42, 0, 7);
        assert!((0..10_000).all(|position| (0.0..1.0).contains(&uniform(42, 0, position))));
        for other in [uniform(43, 0, 7), uniform(42, 1, 7), uniform(42, 0, 8), uniform(42, 0, 7 + (1 << 32))]
        {
            assert_ne!(base, other);
        }
    }
}
