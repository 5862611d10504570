//! A run in the form of the page: everything as text, in the order of the page.

use serde::Serialize;

use super::embed;
use crate::report::figure::{Figure, Panel, Series, panels};
use crate::report::finding::Finding;
use crate::report::findings::findings;
use crate::report::format::digits;
use crate::report::layout::{self, LayoutBar, MessageLayout};
use crate::report::saved::Saved;
use crate::report::{csv, facts, picture, worst};
use crate::workload::Better;

/// A run.
pub(super) struct RunView {
    pub(super) anchor: String,
    /// The experiment's name: `toe/fig3`.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) about: String,
    pub(super) doubts: Vec<String>,
    /// Programs with several workers, the worst first.
    pub(super) worst: Vec<worst::Row>,
    pub(super) worst_summary: String,
    /// Where the time of followed messages goes.
    pub(super) layouts: Vec<LayoutView>,
    pub(super) findings: Vec<Finding>,
    pub(super) panels: Vec<PanelView>,
    /// Unavailable candidates, with the reason.
    pub(super) missing: Vec<(String, String)>,
    pub(super) failures: Vec<FailureView>,
    /// Machine, build and settings.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) plan: String,
    pub(super) downloads: Vec<Download>,
}

/// Figures under one heading.
pub(super) struct PanelView {
    pub(super) anchor: String,
    pub(super) title: String,
    /// The main figure and its ratios.
    pub(super) main: Vec<FigureView>,
    /// Other figures, which are folded.
    pub(super) more: Vec<FigureView>,
    /// The number of other figures, and their subjects.
    pub(super) more_about: String,
}

/// A chart and its table.
pub(super) struct FigureView {
    pub(super) id: String,
    pub(super) measure: String,
    /// The title with its unit and the better direction.
    pub(super) caption: String,
    /// A description of the chart, for readers that cannot see it.
    pub(super) summary: String,
    /// The chart as a picture, for browsers without scripts.
    pub(super) picture: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<(String, Vec<Cell>)>,
    pub(super) chart: Chart,
}

/// A value of a table.
pub(super) struct Cell {
    pub(super) median: String,
    pub(super) interval: String,
}

/// Data for the page's script.
#[derive(Serialize)]
pub(super) struct Chart {
    id: String,
    is_ratio: bool,
    #[serde(flatten)]
    figure: Figure,
}

/// The layouts of one message, side by side.
pub(super) struct LayoutView {
    pub(super) id: String,
    pub(super) title: String,
    /// A description of the chart, for readers that cannot see it.
    pub(super) summary: String,
    /// The chart as a picture; empty if no layout closes.
    pub(super) picture: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) remarks: Vec<String>,
    pub(super) blind_spots: Vec<String>,
    pub(super) chart: LayoutChart,
}

/// Data of stacked bars for the page's script.
#[derive(Serialize)]
pub(super) struct LayoutChart {
    id: String,
    bars: Vec<LayoutBar>,
}

impl LayoutView {
    fn of(run: &str, layouts: &[&MessageLayout]) -> Self {
        let bars = layout::bars(layouts);
        let id = format!("{run}-layout-{}", layouts[0].workload);
        let title = layout::title(layouts);
        let picture = match bars[..] {
            [] => String::new(),
            _ => embed::image(&picture::stacked(&title, &bars)),
        };
        let longest = |bar: &LayoutBar| {
            let mut stages: Vec<_> = bar.segments.iter().collect();
            stages.sort_by(|one, other| other.value.total_cmp(&one.value));
            let stages = stages.iter().take(3);
            let said = stages.map(|stage| format!("{} {} µs", stage.stage, digits(stage.value)));
            format!("{}: {}", bar.name, said.collect::<Vec<_>>().join(", "))
        };
        let longest = bars.iter().map(longest).collect::<Vec<_>>().join("; ");
        Self {
            summary: format!("{title}. The longest stages: {longest}. The table below has all values."),
            picture,
            title,
            head: layout::heads(layouts),
            rows: layout::stage_rows(layouts),
            remarks: layout::remarks(layouts),
            blind_spots: layouts[0].blind_spots.clone(),
            chart: LayoutChart { id: id.clone(), bars },
            id,
        }
    }
}

/// A measurement that failed.
pub(super) struct FailureView {
    pub(super) title: String,
    pub(super) reason: String,
    pub(super) output: String,
}

/// A file embedded in the page.
pub(super) struct Download {
    pub(super) name: String,
    pub(super) link: String,
    pub(super) about: &'static str,
}

impl RunView {
    /// The view of a run, the `index`-th of its page.
    pub(super) fn of(index: usize, run: &Saved) -> Self {
        let report = &run.report;
        let anchor = format!("run{}", index + 1);
        let panels = panels(report, &run.samples);
        let missing = report.candidates.iter();
        let missing = missing.filter_map(|(name, fate)| Some((name.clone(), fate.unavailable.clone()?)));
        Self {
            name: report.header.plan.experiment.clone(),
            title: report.header.plan.title.clone(),
            about: facts::line(&report.header),
            doubts: run.doubts(),
            worst: worst::rows(&report.worst).collect(),
            worst_summary: worst::summary(&report.worst),
            layouts: report
                .layouts_by_cell()
                .iter()
                .map(|layouts| LayoutView::of(&anchor, layouts))
                .collect(),
            findings: findings(report, &panels),
            missing: missing.collect(),
            failures: failures(run),
            facts: facts::all(report),
            plan: serde_json::to_string_pretty(&report.header.plan).unwrap_or_default(),
            downloads: downloads(run, &panels),
            panels: panels
                .into_iter()
                .map(|panel| PanelView::of(&anchor, panel))
                .collect(),
            anchor,
        }
    }

    /// All charts, in the form for the script.
    pub(super) fn charts(&self) -> impl Iterator<Item = &Chart> {
        let figures = self
            .panels
            .iter()
            .flat_map(|panel| panel.main.iter().chain(&panel.more));
        figures.map(|figure| &figure.chart)
    }
}

impl PanelView {
    fn of(run: &str, panel: Panel) -> Self {
        let mut figures = panel
            .figures
            .into_iter()
            .map(|figure| FigureView::of(run, figure, false));
        let main = figures.next().into_iter();
        let ratios = panel.ratios.map(|ratios| FigureView::of(run, ratios, true));
        let more: Vec<_> = figures.collect();
        Self {
            anchor: format!("{run}-{}", panel.name),
            title: panel.title,
            main: main.chain(ratios).collect(),
            more_about: about_more(&more),
            more,
        }
    }
}

/// A text about several figures, which may have the same subject in different units.
fn about_more(figures: &[FigureView]) -> String {
    let mut of: Vec<&str> = Vec::new();
    for figure in figures {
        if !of.contains(&figure.measure.as_str()) {
            of.push(&figure.measure);
        }
    }
    let plural = if figures.len() == 1 { "" } else { "s" };
    format!("{} more figure{plural}: {}", figures.len(), of.join("; "))
}

impl FigureView {
    fn of(run: &str, figure: Figure, is_ratio: bool) -> Self {
        let id = format!("{run}-chart-{}", figure.name);
        let better = match figure.better {
            Better::Lower => "lower is better",
            Better::Higher => "higher is better",
        };
        let series = figure.series.iter();
        let first = figure.axis.clone().unwrap_or_default();
        Self {
            caption: format!("{} ({}, {better})", figure.measure, figure.unit),
            measure: figure.measure.clone(),
            summary: summary(&figure),
            picture: embed::image(&picture::svg(&figure, is_ratio)),
            head: [first]
                .into_iter()
                .chain(series.map(|series| series.name.clone()))
                .collect(),
            rows: (0..figure.places.len())
                .map(|place| row(&figure, place))
                .collect(),
            chart: Chart {
                id: id.clone(),
                is_ratio,
                figure,
            },
            id,
        }
    }
}

fn row(figure: &Figure, place: usize) -> (String, Vec<Cell>) {
    let cell = |series: &Series| match figure.at(series, place) {
        Some(estimate) if series.is_paper => Cell {
            median: digits(estimate.median),
            interval: String::new(),
        },
        Some(estimate) => Cell {
            median: digits(estimate.median),
            interval: format!("{}–{}", digits(estimate.low), digits(estimate.high)),
        },
        None => Cell {
            median: "–".into(),
            interval: String::new(),
        },
    };
    let cells = figure.series.iter().map(cell).collect();
    (figure.places[place].label.clone(), cells)
}

/// A description of a chart, in a sentence.
fn summary(figure: &Figure) -> String {
    let ranges = figure.series.iter().map(|series| {
        let medians = series.points.iter().map(|point| point.estimate.median);
        let low = medians.clone().fold(f64::INFINITY, f64::min);
        let high = medians.fold(f64::NEG_INFINITY, f64::max);
        format!("{} {} to {}", series.name, digits(low), digits(high))
    });
    let over = figure
        .axis
        .as_ref()
        .map_or(String::new(), |axis| format!(" over {axis}"));
    format!(
        "Chart of {} in {}{over}: {}. The table below has all values.",
        figure.measure,
        figure.unit,
        ranges.collect::<Vec<_>>().join("; ")
    )
}

fn failures(run: &Saved) -> Vec<FailureView> {
    let failures = run.report.failures.iter();
    let view = failures.map(|failure| FailureView {
        title: format!(
            "{} at {}, round {}",
            failure.candidate,
            failure.workload,
            failure.round + 1
        ),
        reason: failure.reason.clone(),
        output: failure.output.clone(),
    });
    view.collect()
}

fn downloads(run: &Saved, panels: &[Panel]) -> Vec<Download> {
    let about = |name: &str| match name {
        "run.json" => "machine, build and plan",
        "samples.jsonl" => "every measurement, one a line",
        _ => "figures and ratios",
    };
    let experiment = run.report.header.plan.experiment.replace('/', "-");
    let files = run.files.iter().map(|file| Download {
        name: format!("{experiment}-{}.gz", file.name),
        link: embed::download(&file.bytes),
        about: about(file.name),
    });
    let table = Download {
        name: format!("{experiment}-figures.csv.gz"),
        link: embed::download(csv::table(panels).as_bytes()),
        about: "all medians and intervals, for spreadsheets",
    };
    files.chain([table]).collect()
}
