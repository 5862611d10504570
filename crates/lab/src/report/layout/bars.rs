//! Layouts as stacked bars.

use serde::Serialize;

use super::MessageLayout;

/// The bar of a candidate whose stages add up, and that of its closing error. Times are in
/// microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::report) struct LayoutBar {
    /// Name of the candidate.
    pub(in crate::report) name: String,
    /// The stages in the order of a message's way.
    pub(in crate::report) segments: Vec<LayoutSegment>,
    /// The sum of the stages less the time without tracepoints.
    pub(in crate::report) error: f64,
    /// That as a share of the time without tracepoints.
    pub(in crate::report) error_share: f64,
}

/// A stage in a bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::report) struct LayoutSegment {
    /// Name of the stage.
    pub(in crate::report) stage: String,
    /// What happens in it.
    pub(in crate::report) about: String,
    /// The part of the machine that runs it.
    pub(in crate::report) actor: String,
    /// The mean. A stage shorter than its tracepoints' uncertainty has 0.
    pub(in crate::report) value: f64,
    /// Lower end of its interval.
    pub(in crate::report) low: f64,
    /// Upper end of its interval.
    pub(in crate::report) high: f64,
}

/// The bars of the layouts that close. Others have no picture.
pub(in crate::report) fn bars(layouts: &[&MessageLayout]) -> Vec<LayoutBar> {
    let closing = layouts.iter().filter(|layout| layout.closes);
    let bar = |layout: &&MessageLayout| {
        let account = layout.account.as_ref()?;
        let segment = |stage: &super::LayoutStage| LayoutSegment {
            stage: stage.stage.clone(),
            about: stage.about.clone(),
            actor: stage.actor.clone(),
            value: (stage.mean_ns / 1e3).max(0.0),
            low: stage.low_ns / 1e3,
            high: stage.high_ns / 1e3,
        };
        Some(LayoutBar {
            name: layout.candidate.clone(),
            segments: account.stages.iter().map(segment).collect(),
            error: (account.sum_ns - account.untraced_ns) / 1e3,
            error_share: account.error,
        })
    };
    closing.filter_map(bar).collect()
}
