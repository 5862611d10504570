//! The rate of a clock against the reference.

/// Fewest points from which a rate is taken.
pub(super) const FEWEST_POINTS: usize = 24;

/// Times that the line is improved by what it leaves over.
const POLISHES: usize = 4;

/// The slope of `y` over `x`, unharmed by points far off the line; `None` for too few points, or if
/// the slope is not positive.
///
/// It is Tukey's resistant line ("Exploratory Data Analysis", 1977). The medians of the first and of
/// the last third determine the slope, and the residuals improve it. Points are in order of `x`.
/// Points far off do little harm while they are fewer than half of each third.
pub(super) fn resistant_slope(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < FEWEST_POINTS {
        return None;
    }
    let third = points.len() / 3;
    let (first, last) = (&points[..third], &points[points.len() - third..]);
    let distance = median(last.iter().map(|(x, _)| *x)) - median(first.iter().map(|(x, _)| *x));
    if distance.is_nan() || distance <= 0.0 {
        return None;
    }
    let mut slope = 0.0;
    for _ in 0..=POLISHES {
        let residual = |part: &[(f64, f64)]| median(part.iter().map(|(x, y)| y - slope * x));
        slope += (residual(last) - residual(first)) / distance;
    }
    (slope.is_finite() && slope > 0.0).then_some(slope)
}

/// Returns `true` if at least three quarters of the points are within `tolerance` of a line of this
/// slope.
pub(super) fn is_line(points: &[(f64, f64)], slope: f64, tolerance: f64) -> bool {
    let residual = |(x, y): &(f64, f64)| y - slope * x;
    let middle = median(points.iter().map(residual));
    let near = points
        .iter()
        .filter(|point| (residual(point) - middle).abs() <= tolerance);
    near.count() * 4 >= points.len() * 3
}

/// The median of some numbers; 0 of none.
pub(crate) fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    let (middle, is_even) = (numbers.len() / 2, numbers.len().is_multiple_of(2));
    if numbers.is_empty() {
        return 0.0;
    }
    let (below, upper, _) = numbers.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp);
    match lower {
        Some(lower) if is_even => f64::midpoint(lower, *upper),
        _ => *upper,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(slope: f64) -> Vec<(f64, f64)> {
        let mut random = fastrand::Rng::with_seed(5);
        let point = |number: u32| (f64::from(number), f64::from(number) * slope + random.f64() * 0.5);
        (0..300).map(point).collect()
    }

    #[test]
    fn slope_of_a_noisy_line_is_found() {
        let slope = resistant_slope(&points(1.000_2)).unwrap();
        assert!((slope - 1.000_2).abs() < 5e-4, "{slope}");
    }

    #[test]
    fn points_far_off_do_not_change_the_slope_much() {
        let mut points = points(0.75);
        for number in (0..300).step_by(5) {
            points[number].1 = 1e18 * if number % 2 == 0 { 1.0 } else { -1.0 };
        }
        let slope = resistant_slope(&points).unwrap();
        assert!((slope - 0.75).abs() < 2e-3, "{slope}");
    }

    #[test]
    fn few_or_equal_points_have_no_slope() {
        assert_eq!(resistant_slope(&points(1.0)[..FEWEST_POINTS - 1]), None);
        assert_eq!(resistant_slope(&[(1.0, 1.0); 100]), None);
        assert_eq!(resistant_slope(&points(-1.0)), None);
    }

    #[test]
    fn points_that_jump_halfway_are_no_line() {
        let mut points = points(1.0);
        assert!(is_line(&points, 1.0, 1.0));
        points[150..].iter_mut().for_each(|(_, y)| *y += 1000.0);
        let slope = resistant_slope(&points).unwrap();
        assert!(!is_line(&points, slope, 10.0), "{slope}");
    }

    #[test]
    fn median_of_even_and_odd_counts_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median([].into_iter()), 0.0);
    }
}
