//! The median of a few runs and how far they lie around it.

/// What several runs came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// Median absolute deviation.
    pub(super) mad: f64,
}

impl Summary {
    /// `None` for no values.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let center = median(values)?;
        let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
        Some(Self { median: center, mad: median(&distances)? })
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some((sorted[low] + sorted[high]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers() {
        assert_eq!(Summary::of(&[3.0, 1.0, 10.0]), Some(Summary { median: 3.0, mad: 2.0 }));
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]), Some(Summary { median: 2.5, mad: 1.0 }));
        assert_eq!(Summary::of(&[]), None);
    }
}
