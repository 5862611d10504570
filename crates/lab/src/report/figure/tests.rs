use super::*;
use crate::report::tests::saved;

#[test]
fn figures_match_report_in_units_for_people() {
    let run = saved();
    let panels = panels(&run.report, &run.samples);
    let names = panels.iter().map(|panel| panel.name.as_str()).collect::<Vec<_>>();
    assert_eq!(
        names,
        ["ping-pong", "bulk", "connect"],
        "what was measured, in the plan's order"
    );
    let latency = &panels[0].figures[0];
    assert_eq!(
        (latency.unit.as_str(), latency.measure.as_str()),
        ("µs", "one way, p50")
    );
    assert_eq!(latency.axis.as_deref(), Some("message size"));
    let series = &latency.series[0];
    assert_eq!((series.name.as_str(), series.index), ("toehold", 0));
    let point = &series.points[0];
    assert_eq!(latency.places[point.place].at, Some(64.0));
    assert_eq!(
        (point.estimate.low, point.estimate.median, point.estimate.high),
        (0.5, 1.0, 1.5)
    );
    assert_eq!(point.rounds, [0.5, 1.0, 1.5], "every round is kept");
}

#[test]
fn ratios_match_report() {
    let run = saved();
    let panels = panels(&run.report, &run.samples);
    let ratios = panels[0].ratios.as_ref().unwrap();
    let series = &ratios.series[0];
    assert_eq!(series.name, "toehold / kernel-veth");
    assert_eq!(
        series.points[0].estimate,
        run.report.ratios["latency_64B/toehold/kernel-veth"]
    );
    assert_eq!(series.points[0].rounds.len(), 3);
}

#[test]
fn every_measured_figure_is_in_panel_with_unique_name() {
    let run = saved();
    let panels = panels(&run.report, &run.samples);
    let figures = || {
        panels
            .iter()
            .flat_map(|panel| panel.figures.iter().chain(&panel.ratios))
    };
    let points = |figure: &Figure| {
        figure
            .series
            .iter()
            .map(|series| series.points.len())
            .sum::<usize>()
    };
    let shown = panels
        .iter()
        .flat_map(|panel| &panel.figures)
        .map(points)
        .sum::<usize>();
    let known = run
        .report
        .metrics
        .values()
        .map(|figures| figures.values.len())
        .sum::<usize>();
    assert_eq!(shown, known);
    let mut names = figures().map(|figure| &figure.name).collect::<Vec<_>>();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
