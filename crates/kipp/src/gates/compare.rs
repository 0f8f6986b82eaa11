//! How two sets of logits differ.

/// Leads of the reference's best logit over its runner-up below this are noise for a class with coded activations.
pub(super) const CODED_LEAD: f32 = 0.1;

/// `sum (x - reference)^2 / sum reference^2`, over everything together, in f64. NaN when anything is not finite.
pub fn nmse(x: &[Vec<f32>], reference: &[Vec<f32>]) -> f64 {
    let (mut difference, mut power) = (0.0, 0.0);
    for (x, reference) in x.iter().flatten().zip(reference.iter().flatten()) {
        let (x, reference) = (f64::from(*x), f64::from(*reference));
        difference += (x - reference) * (x - reference);
        power += reference * reference;
    }
    let same_shape = x.len() == reference.len() && x.iter().zip(reference).all(|(x, r)| x.len() == r.len());
    if same_shape { difference / power } else { f64::NAN }
}

/// Best ids compared, position by position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Positions compared.
    pub positions: usize,
    /// The best ids differ although the reference's best one leads by more than the noise.
    pub wrong: usize,
    /// The best ids differ where the reference's two best are within the noise.
    pub within_noise: usize,
}

impl Comparison {
    /// Compares the best ids; `noise` is the lead up to which the reference itself is undecided.
    pub fn new(x: &[Vec<f32>], reference: &[Vec<f32>], noise: f32) -> Comparison {
        let mut comparison = Comparison { positions: x.len(), ..Comparison::default() };
        for (x, reference) in x.iter().zip(reference) {
            let (best, lead) = best_and_lead(reference);
            if best_and_lead(x).0 == best {
                continue;
            }
            if lead > noise {
                comparison.wrong += 1;
            } else {
                comparison.within_noise += 1;
            }
        }
        comparison
    }

    /// For a table.
    pub(super) fn detail(&self, noise: f32) -> String {
        let Comparison { positions, wrong, within_noise } = self;
        format!("best id: {wrong} of {positions} wrong, {within_noise} within a lead of {noise}")
    }
}

/// The id of the largest value (the lowest on a tie) and its lead over the runner-up.
pub(super) fn best_and_lead(logits: &[f32]) -> (usize, f32) {
    let (mut best, mut top, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (id, value) in logits.iter().enumerate() {
        if *value > top {
            (best, second, top) = (id, top, *value);
        } else if *value > second {
            second = *value;
        }
    }
    (best, top - second)
}

/// Values whose bits differ; a difference in shape counts as well.
pub(super) fn bits_that_differ(x: &[Vec<f32>], y: &[Vec<f32>]) -> usize {
    let shape = x.len().abs_diff(y.len());
    let rows = x.iter().zip(y).map(|(x, y)| {
        x.len().abs_diff(y.len()) + x.iter().zip(y).filter(|(x, y)| x.to_bits() != y.to_bits()).count()
    });
    shape + rows.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_seen() {
        let reference = vec![vec![3.0, 4.0], vec![0.0, 1.0]];
        assert_eq!(nmse(&reference, &reference), 0.0);
        assert_eq!(nmse(&[vec![3.0, 4.0], vec![0.0, 0.0]], &reference), 1.0 / 26.0);
        assert!(nmse(&[vec![f32::NAN, 4.0], vec![0.0, 1.0]], &reference).is_nan());
        assert!(nmse(&reference[..1], &reference).is_nan());
        assert_eq!(best_and_lead(&[1.0, 3.0, 3.0]), (1, 0.0));
        let other = [vec![4.5, 4.0], vec![0.0, 1.0]];
        assert_eq!(Comparison::new(&other, &reference, 0.1).wrong, 1);
        assert_eq!(Comparison::new(&other, &reference, 1.5).within_noise, 1);
        assert_eq!(bits_that_differ(&[vec![0.0]], &[vec![-0.0]]), 1);
        assert_eq!(bits_that_differ(&[vec![0.0], vec![1.0]], &[vec![0.0]]), 1);
    }
}
