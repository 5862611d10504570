//! A finding of a run, in a line: the difference between two candidates and the expectation.

use super::difference::{Difference, Tone};
use super::figure::{Figure, Panel};
use crate::workload::Better;

/// One finding.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    /// The panel that shows it.
    pub(super) panel: String,
    /// The measured quantity.
    pub(super) about: String,
    /// The compared candidates, if any: candidate and baseline.
    pub(super) compared: Option<(String, String)>,
    /// The result: one, or those at the places that differ most. A loss comes first.
    pub(super) ours: Vec<Difference>,
    /// The expectation, and whether it was met.
    pub(super) expected: Option<Expected>,
}

/// An expectation from before the run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expected {
    /// The expectation, and its source.
    pub(super) text: String,
    /// Whether it was met.
    pub(super) verdict: String,
    /// The judgement.
    pub(super) tone: Tone,
}

impl Finding {
    /// Whether a candidate is worse than its baseline, or an expectation was surely not met.
    pub(super) fn is_loss(&self) -> bool {
        let ours = self.ours.iter().map(|ours| ours.tone);
        let expected = self.expected.iter().map(|expected| expected.tone);
        ours.chain(expected).any(|tone| tone == Tone::Worse)
    }
}

/// The panel of a figure, its better direction, and the figure's index in it.
pub(super) fn place<'a>(panels: &'a [Panel], figure: &str) -> Option<(&'a Panel, Better, String)> {
    let metric = figure.split('/').next()?;
    panels.iter().find_map(|panel| {
        let figures = panel.figures.iter();
        let mut places = figures.flat_map(|figure| figure.places.iter().map(move |place| (figure, place)));
        let found = places.find(|(_, place)| place.workload == metric)?;
        Some((panel, found.0.better, found.1.label.clone()))
    })
}

/// A panel's title and the measured quantity.
pub(super) fn about(title: &str, main: &Figure) -> String {
    let title = title.split(':').next().unwrap_or(title);
    format!("{title} ({})", main.measure)
}
