//! Panels, their figures, and the series and points of a figure.

use serde::Serialize;

use crate::statistics::Estimate;
use crate::workload::Better;

/// Figures of one kind of workload, under one heading.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::report) struct Panel {
    /// Stable name, unique within the run: lower-case letters, digits and dashes.
    pub(in crate::report) name: String,
    /// Title of the workload, for people.
    pub(in crate::report) title: String,
    /// The main figure of the workloads first, then others.
    pub(in crate::report) figures: Vec<Figure>,
    /// The main figure's ratios, with a series for each comparison.
    pub(in crate::report) ratios: Option<Figure>,
}

/// One figure of all candidates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::report) struct Figure {
    /// Stable name, unique within the run: lower-case letters, digits and dashes.
    pub(in crate::report) name: String,
    /// The measured quantity, for people.
    pub(in crate::report) measure: String,
    /// Unit of all values.
    pub(in crate::report) unit: String,
    /// Which direction is better.
    pub(in crate::report) better: Better,
    /// The varied factor, if it is a number; places are then in ascending order.
    pub(in crate::report) axis: Option<String>,
    /// The workloads of the figure.
    pub(in crate::report) places: Vec<Place>,
    /// The candidates' figures.
    pub(in crate::report) series: Vec<Series>,
}

/// The place of a workload on the axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::report) struct Place {
    /// Stable name of the workload.
    pub(in crate::report) workload: String,
    /// Label for people.
    pub(in crate::report) label: String,
    /// Position on an axis of numbers.
    pub(in crate::report) at: Option<f64>,
}

/// A candidate's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::report) struct Series {
    /// The candidate, or the two compared candidates.
    pub(in crate::report) name: String,
    /// Index among all candidates or comparisons of the run, which determines the colour.
    pub(in crate::report) index: usize,
    /// Index that determines the mark. Several series of one candidate share it.
    pub(in crate::report) mark: usize,
    /// Whether the values are a paper's. They were not measured here, and their intervals have no
    /// meaning.
    pub(in crate::report) is_paper: bool,
    /// In the order of places, without places that were not measured.
    pub(in crate::report) points: Vec<Point>,
}

/// A figure at a place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::report) struct Point {
    /// Index of the place.
    pub(in crate::report) place: usize,
    /// The figure.
    #[serde(flatten)]
    pub(in crate::report) estimate: Estimate,
    /// The figure in each round.
    pub(in crate::report) rounds: Vec<f64>,
}

impl Figure {
    /// The figure of a series at a place.
    pub(in crate::report) fn at(&self, series: &Series, place: usize) -> Option<Estimate> {
        let point = series.points.iter().find(|point| point.place == place)?;
        Some(point.estimate)
    }

    /// Whether no figure was measured.
    pub(in crate::report) fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }
}
