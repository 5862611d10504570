//! Axes: their ranges, their labels, and whether they are linear or logarithmic.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::report::figure::Figure;
use crate::report::format::digits;

/// Values that differ by more than this factor are drawn on a logarithmic axis.
const FAR_APART: f64 = 8.0;

/// Most marks of an axis.
const MARKS: usize = 12;

/// An axis.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    range: Range<f64>,
    is_log: bool,
    marks: Vec<(f64, String)>,
}

impl Scale {
    /// The axis of the varied factor.
    pub(super) fn of_places(figure: &Figure) -> Self {
        let at = || figure.places.iter().filter_map(|place| Some((place.at?, place)));
        let low = at().map(|(at, _)| at).fold(f64::INFINITY, f64::min);
        let high = at().map(|(at, _)| at).fold(f64::NEG_INFINITY, f64::max);
        let is_log = low > 0.0 && high / low > FAR_APART;
        let step = figure.places.len().div_ceil(MARKS);
        Self {
            range: if is_log {
                low / 1.3..high * 1.3
            } else {
                low - 0.5..high + 0.5
            },
            is_log,
            marks: at()
                .step_by(step)
                .map(|(at, place)| (at, place.label.clone()))
                .collect(),
        }
    }

    /// The axis of all values of a figure. A linear axis begins at 0.
    pub(super) fn of_values(figure: &Figure, is_ratio: bool) -> Self {
        let points = || figure.series.iter().flat_map(|series| &series.points);
        let high = points()
            .map(|point| point.estimate.high)
            .fold(f64::MIN_POSITIVE, f64::max);
        let low = points()
            .map(|point| point.estimate.low)
            .fold(f64::INFINITY, f64::min);
        // An axis of ratios includes 1.
        let (low, high) = if is_ratio {
            (low.min(1.0), high.max(1.0))
        } else {
            (low, high)
        };
        let is_log = low > 0.0 && high / low > FAR_APART;
        let (range, marks) = if is_log {
            (low / 1.2..high * 1.2, log_marks(low / 1.2, high * 1.2))
        } else {
            (0.0..high * 1.05, even_marks(high * 1.05))
        };
        let marks = marks.into_iter().map(|mark| (mark, digits(mark))).collect();
        Self { range, is_log, marks }
    }

    /// A linear axis from 0.
    pub(super) fn from_zero(high: f64) -> Self {
        let marks = even_marks(high * 1.05)
            .into_iter()
            .map(|mark| (mark, digits(mark)));
        Self {
            range: 0.0..high * 1.05,
            is_log: false,
            marks: marks.collect(),
        }
    }

    /// The axis of rows with names, from the top downwards.
    pub(super) fn of_names(names: impl Iterator<Item = String>) -> Self {
        let marks: Vec<_> = names
            .enumerate()
            .map(|(row, name)| (-(row as f64), name))
            .collect();
        Self {
            range: 0.5 - marks.len() as f64..0.5,
            is_log: false,
            marks,
        }
    }

    /// The axis of the rows of a figure whose places have names: from the top downwards, with an
    /// empty row between places.
    pub(super) fn of_rows(figure: &Figure) -> Self {
        let of_place = figure.series.len() + 1;
        let last = (figure.places.len() * of_place) as f64 - 1.0;
        let middle = (figure.series.len() as f64 - 1.0) / 2.0;
        let marks = figure.places.iter().enumerate();
        let marks = marks.map(|(index, place)| (-((index * of_place) as f64 + middle), place.label.clone()));
        Self {
            range: -last..1.0,
            is_log: false,
            marks: marks.collect(),
        }
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_log { value.ln() } else { value }
    }
}

impl Ranged for Scale {
    type ValueType = f64;
    type FormatOption = NoDefaultFormatting;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let [low, high, at] = [self.range.start, self.range.end, *value].map(|value| self.place(value));
        let share = if high > low {
            (at - low) / (high - low)
        } else {
            0.5
        };
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        let mark = self.marks.iter().find(|(at, _)| at == value);
        mark.map_or_else(|| digits(*value), |(_, label)| label.clone())
    }
}

/// 1, 2 and 5 times powers of ten; powers of ten alone if there are too many.
fn log_marks(low: f64, high: f64) -> Vec<f64> {
    let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let marks = |steps: &[f64]| {
        let of_exponent = |exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent));
        let all = exponents.clone().flat_map(of_exponent);
        all.filter(|mark| (low..=high).contains(mark)).collect::<Vec<_>>()
    };
    let fine = marks(&[1.0, 2.0, 5.0]);
    if fine.len() <= MARKS { fine } else { marks(&[1.0]) }
}

/// From 0 in steps of 1, 2 or 5 times a power of ten.
fn even_marks(high: f64) -> Vec<f64> {
    let rough = high / 6.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
    (0..=MARKS as u32)
        .map(|mark| f64::from(mark) * step)
        .take_while(|mark| *mark <= high)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(log_marks(0.8, 30.0), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(log_marks(0.1, 1e6).len(), 8);
        assert_eq!(even_marks(63.0), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(even_marks(1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
    }

    #[test]
    fn equal_factors_are_equidistant_on_logarithmic_axis() {
        let scale = Scale {
            range: 1.0..10_000.0,
            is_log: true,
            marks: Vec::new(),
        };
        let at = |value: f64| scale.map(&value, (0, 400));
        assert_eq!([at(1.0), at(10.0), at(100.0), at(10_000.0)], [0, 100, 200, 400]);
    }
}
