//! Checks that the shown figures, and those of the paper, are figures that the plan measures.

use std::collections::BTreeSet;

use super::content::{Content, PlanFileError, Reader};
use crate::experiment::Plan;
use crate::samples::Side;
use crate::workload::Cell;

/// Returns an error for a figure that is not measured, or a paper's entry that is incomplete.
pub(super) fn check(content: &Content, plan: &Plan, reader: &Reader<'_>) -> Result<(), PlanFileError> {
    let nothing = Side::default();
    let metrics_of = |cell: &Cell| cell.metrics(&nothing, &nothing);
    let parts: BTreeSet<_> = plan
        .cells
        .iter()
        .flat_map(metrics_of)
        .map(|metric| metric.part)
        .collect();
    if let Some(part) = content
        .show
        .iter()
        .find(|part| !parts.contains(part.get_ref().as_str()))
    {
        let known: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let reason = format!(
            "no figure has a part `{}`; there are {}",
            part.get_ref(),
            known.join(", ")
        );
        return Err(reader.at(part, reason));
    }
    let metrics: BTreeSet<_> = plan.cells.iter().flat_map(Cell::metric_names).collect();
    for written in content.paper.iter().flat_map(|paper| &paper.says) {
        let said = written.get_ref();
        let is_number = (said.value.is_some(), said.unit.is_some());
        let is_trend = (said.than.is_some(), said.is.is_some());
        let reason = match (said.figure.is_some(), is_number, is_trend) {
            (false, (false, false), (false, false)) => continue,
            (true, (true, true), (false, false)) | (true, (false, false), (true, true)) => {
                let mut figures = said.figure.iter().chain(&said.than);
                match figures.find(|figure| !is_measured(figure, plan, &metrics)) {
                    None => continue,
                    Some(figure) => {
                        format!("no `{figure}` is measured: METRIC/CANDIDATE/BASELINE or METRIC/CANDIDATE")
                    }
                }
            }
            _ => "a number needs `figure`, `value` and `unit`, a trend `figure`, `is` and `than`, or only `text`"
                .into(),
        };
        return Err(reader.at(written, reason));
    }
    Ok(())
}

fn is_measured(figure: &str, plan: &Plan, metrics: &BTreeSet<String>) -> bool {
    match figure.split('/').collect::<Vec<_>>()[..] {
        [metric, candidate] => {
            metrics.contains(metric) && plan.candidates.iter().any(|name| name == candidate)
        }
        [metric, candidate, baseline] => {
            let mut comparisons = plan.comparisons.iter();
            metrics.contains(metric)
                && comparisons.any(|it| it.candidate == candidate && it.baseline == baseline)
        }
        _ => false,
    }
}
