//! Means with their standard errors.

/// The mean of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The arithmetic mean; NaN of nothing.
    pub value: f64,
    /// Its standard error, values taken as independent; NaN of fewer than two.
    pub stderr: f64,
}

impl Mean {
    /// Of `values`, with the deviation of a sample (n - 1).
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone) -> Mean {
        let count = values.clone().count() as f64;
        let value = values.clone().sum::<f64>() / count;
        let squares = values.map(|x| (x - value) * (x - value)).sum::<f64>();
        let stderr = if count > 1.0 { (squares / (count - 1.0) / count).sqrt() } else { f64::NAN };
        Mean { value, stderr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Deviations -3, -1, 1, 3: a variance of 20 / 3.
        let mean = Mean::of([1.0, 3.0, 5.0, 7.0].into_iter());
        assert_eq!(mean.value, 4.0);
        assert!((mean.stderr - (20.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-15);
        let one = Mean::of(std::iter::once(2.0));
        assert!(one.value == 2.0 && one.stderr.is_nan());
        assert!(Mean::of(std::iter::empty()).value.is_nan());
    }
}
