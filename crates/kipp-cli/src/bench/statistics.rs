//! Medians and what surrounds them. The best of several runs is never a result.

use serde::{Deserialize, Serialize};

/// What several runs came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Half of the runs are at most this, half at least.
    pub(crate) median: f64,
    /// Median absolute deviation: the median of the distances from the median.
    pub(crate) mad: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// `None` for no values.
    pub(crate) fn of(values: &[f64]) -> Option<Summary> {
        let center = median(values)?;
        let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
        Some(Summary {
            median: center,
            mad: median(&distances)?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// The middle value, or the mean of the two in the middle; `None` for no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The value that `part` of them are at most, one that was measured (the nearest rank); NaN for none.
pub(crate) fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers() {
        let summary = Summary::of(&[10.0, 12.0, 11.0, 100.0, 9.0]).unwrap();
        assert_eq!(summary, Summary { median: 11.0, mad: 1.0, min: 9.0, max: 100.0 });
        let even = Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(even, Summary { median: 2.5, mad: 1.0, min: 1.0, max: 4.0 });
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!(one, Summary { median: 7.0, mad: 0.0, min: 7.0, max: 7.0 });
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!((percentile(&values, 0.99), percentile(&values, 0.5)), (198.0, 100.0));
        assert_eq!((percentile(&[3.0], 0.99), percentile(&[3.0], 0.0)), (3.0, 3.0));
        assert!(percentile(&[], 0.99).is_nan());
    }
}
