//! How near predictions are to measurements, and how well they rank them.

use serde::{Deserialize, Serialize};

/// Errors of predictions, relative to what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PredictionErrors {
    /// Half of all errors are at most this.
    pub median: f64,
    /// Nine of ten errors are at most this.
    pub ninetieth: f64,
    /// The largest error.
    pub worst: f64,
    /// The index of the largest error.
    pub worst_at: usize,
}

impl PredictionErrors {
    /// Compares pairs of a predicted and a measured number. Returns `None` if there is no pair, or if
    /// a measured number is not above 0 or a predicted one is not finite.
    ///
    /// ```
    /// use toehold_model::accuracy::PredictionErrors;
    ///
    /// let errors = PredictionErrors::of(&[(110.0, 100.0), (99.0, 100.0), (50.0, 100.0)]).unwrap();
    /// assert!((errors.median - 0.1).abs() < 1e-12);
    /// assert_eq!(errors.worst_at, 2);
    /// ```
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let is_meant = |&(predicted, measured): &(f64, f64)| {
            predicted.is_finite() && measured.is_finite() && measured > 0.0
        };
        if !pairs.iter().all(is_meant) {
            return None;
        }
        let errors = pairs
            .iter()
            .map(|(predicted, measured)| (predicted / measured - 1.0).abs());
        let mut errors: Vec<(f64, usize)> = errors.zip(0..).collect();
        errors.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (worst, worst_at) = *errors.last()?;
        let quantile = |share: f64| errors[((errors.len() as f64 * share).ceil() as usize).max(1) - 1].0;
        Some(Self {
            median: quantile(0.5),
            ninetieth: quantile(0.9),
            worst,
            worst_at,
        })
    }
}

/// Kendall's τ of pairs: 1 if both numbers rank all pairs alike, −1 if they rank them inversely. Ties
/// count as neither (τ-a). Returns `None` for fewer than two pairs.
pub fn kendall(pairs: &[(f64, f64)]) -> Option<f64> {
    let mut sum = 0i64;
    let mut number = 0i64;
    for (index, one) in pairs.iter().enumerate() {
        for other in &pairs[index + 1..] {
            let product = (one.0 - other.0) * (one.1 - other.1);
            sum += i64::from(product > 0.0) - i64::from(product < 0.0);
            number += 1;
        }
    }
    (number > 0).then(|| sum as f64 / number as f64)
}

/// Returns the share of values that lie within their intervals, ends included; `None` without values.
pub fn covered(values: &[(f64, [f64; 2])]) -> Option<f64> {
    let inside = values
        .iter()
        .filter(|(value, [least, most])| (least..=most).contains(&value));
    (!values.is_empty()).then(|| inside.count() as f64 / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_sorted_errors() {
        let pairs: Vec<(f64, f64)> = (1..=10)
            .rev()
            .map(|percent| (100.0 + f64::from(percent), 100.0))
            .collect();
        let errors = PredictionErrors::of(&pairs).unwrap();
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(errors.median, 0.05) && near(errors.ninetieth, 0.09) && near(errors.worst, 0.1));
        assert_eq!(errors.worst_at, 0);
    }

    #[test]
    fn pairs_without_sense_have_no_errors() {
        for pairs in [
            &[][..],
            &[(1.0, 0.0)],
            &[(f64::NAN, 1.0)],
            &[(1.0, f64::INFINITY)],
        ] {
            assert_eq!(PredictionErrors::of(pairs), None);
        }
    }

    #[test]
    fn rank_correlation_is_that_of_the_order() {
        assert_eq!(kendall(&[(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)]), Some(1.0));
        assert_eq!(kendall(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]), Some(-1.0));
        assert_eq!(kendall(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]), Some(1.0 / 3.0));
        assert_eq!(kendall(&[(1.0, 1.0)]), None);
    }

    #[test]
    fn intervals_cover_their_ends() {
        assert_eq!(covered(&[(1.0, [1.0, 2.0]), (2.5, [1.0, 2.0])]), Some(0.5));
        assert_eq!(covered(&[]), None);
    }
}
