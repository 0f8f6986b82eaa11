//! Seeded numbers: the same seed gives the same arrivals and the same prompts on every machine.

/// A stream of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    /// The stream of a seed and of a place in the measurement; those of two places have nothing in common.
    pub(super) fn new(seed: u64, place: &[u64]) -> Chance {
        let mut chance = Chance(seed);
        for part in place {
            chance = Chance(chance.bits() ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        chance
    }

    /// 64 even bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Above 0, up to 1: its logarithm is a number.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// One of so many, from 0; 0 for none.
    pub(super) fn below(&mut self, count: usize) -> usize {
        // Counts are small: what the rest of a division favours is far below anything that is measured.
        (self.bits() % count.max(1) as u64) as usize
    }

    /// A time until the next of events that come at random, `rate` a second on average: exponentially distributed.
    pub(super) fn waiting_seconds(&mut self, rate: f64) -> f64 {
        -self.unit().ln() / rate
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::statistics::percentile;
    use super::*;

    #[test]
    fn the_same_seed_and_place_give_the_same_numbers_and_others_do_not() {
        let numbers = |seed, place: &[u64]| {
            let mut chance = Chance::new(seed, place);
            [chance.bits(), chance.bits()]
        };
        assert_eq!(numbers(1, &[2, 3]), numbers(1, &[2, 3]));
        let others =
            [numbers(1, &[]), numbers(2, &[]), numbers(1, &[0]), numbers(1, &[0, 0]), numbers(1, &[1])];
        let distinct: std::collections::BTreeSet<[u64; 2]> = others.into_iter().collect();
        assert_eq!(distinct.len(), others.len());
        // The first numbers of the stream of 0, as its authors give them.
        assert_eq!(numbers(0, &[]), [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn waiting_times_are_exponential() {
        let mut chance = Chance::new(5, &[]);
        let rate = 4.0;
        let times: Vec<f64> = (0..50_000).map(|_| chance.waiting_seconds(rate)).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((mean * rate - 1.0).abs() < 0.02, "{mean}");
        for (part, expected) in [(0.5, 2f64.ln()), (0.9, 10f64.ln()), (0.99, 100f64.ln())] {
            let found = percentile(&times, part) * rate;
            assert!((found / expected - 1.0).abs() < 0.04, "{part}: {found}, {expected}");
        }
        // Of a Poisson stream, counts a second have their mean as variance.
        let (mut counts, mut at) = (vec![0.0f64; 12_000], 0.0);
        for time in &times {
            at += time;
            if let Some(count) = counts.get_mut(at as usize) {
                *count += 1.0;
            }
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((variance / mean - 1.0).abs() < 0.06, "{mean} {variance}");
    }
}
