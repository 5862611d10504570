//! A report as text for a terminal.

use comfy_table::Table;
use console::style;

use super::figure::panels;
use super::finding::Finding;
use super::findings::losses;
use super::format::{Look, interval, new_table, shown, unit};
use super::layout::MessageLayout;
use super::results::Report;
use super::{layout, paper, worst};
use crate::experiment::{Comparison, Limit, Verdict};
use crate::workload::{Cell, Quantity, Workload};

/// Most columns of ratios in one table; further comparisons have further tables.
const RATIO_COLUMNS: usize = 6;

/// Shown lines of a failed candidate's output. All of it is saved.
const OUTPUT_LINES: usize = 5;

/// The report as tables with units, and notes.
pub fn text(report: &Report, look: Look) -> String {
    let mut text = String::new();
    let host = &report.header.host;
    let plan = &report.header.plan;
    text.push_str(&format!("{}\n", heading(&plan.title, look)));
    text.push_str(&format!(
        "{}, {} cores{}, Linux {}; toehold {} ({}{})\n",
        host.cpu.as_deref().unwrap_or("unknown processor"),
        host.cores,
        if host.virtual_machine { ", virtual" } else { "" },
        host.kernel.as_deref().unwrap_or("unknown"),
        report.header.build.version,
        report
            .header
            .build
            .commit
            .get(..12)
            .unwrap_or(&report.header.build.commit),
        if report.header.build.dirty {
            ", changed"
        } else {
            ""
        },
    ));
    let settings = &plan.settings;
    let rounds = match plan.rounds {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    let [server, client] = settings.cores;
    let cores = match plan.is_spread() {
        true => "neither side on cores of its own".to_owned(),
        false => format!("cores {server} and {client}"),
    };
    text.push_str(&match plan.is_alone() {
        true => format!("{rounds}, core {server}, seed {}\n", plan.seed),
        false if !plan.cells.iter().any(|cell| cell.workload.has_span()) => {
            format!("{rounds}, {cores}, seed {}\n", plan.seed)
        }
        false => format!(
            "{rounds} of {} ms each, {cores}, seed {}, congestion control {}\n",
            settings.span_ms, plan.seed, settings.congestion,
        ),
    });
    if let Some(table) = worst::table(&report.worst, look) {
        let summary = worst::summary(&report.worst);
        text.push_str(&format!(
            "\n{}\n{table}\n{summary}\n",
            heading(worst::TITLE, look)
        ));
    }
    for layouts in report.layouts_by_cell() {
        text.push_str(&format!("\n{}\n", heading(&layout::title(&layouts), look)));
        text.push_str(&laid_out(&layouts, look));
    }
    for (title, belongs) in GROUPS {
        let cells = plan
            .cells
            .iter()
            .filter(|cell| belongs(&cell.workload))
            .collect::<Vec<_>>();
        if let Some(table) = figures(report, &cells, look) {
            text.push_str(&format!("\n{}\n{table}\n", heading(title, look)));
        }
    }
    comparisons(report, look, &mut text);
    if let Some(table) = wanted(report, look) {
        let title = "What is wanted, and what was measured [and its interval]";
        text.push_str(&format!("\n{}\n{table}\n", heading(title, look)));
    }
    if let Some(table) = paper::said(report, look) {
        let section = plan.paper.as_ref().map_or("", |paper| &paper.section);
        let title = format!("What the paper says in {section}, and what was measured [and its interval]");
        text.push_str(&format!("\n{}\n{table}\n", heading(&title, look)));
    }
    notes(report, look, &mut text);
    text
}

/// The heading of a table, and the filter for its workloads.
type Group = (&'static str, fn(&Workload) -> bool);

/// A table for each kind of workload.
const GROUPS: [Group; 16] = [
    ("Sites: requests of all clients", Workload::is_of_sites),
    ("Files, from begin to end", Workload::is_of_files),
    (
        "Latency of followed messages, without tracepoints: half a round trip",
        Workload::is_followed,
    ),
    ("Latency: half a round trip", |workload| {
        matches!(workload, Workload::PingPong { .. } | Workload::WakeUp)
    }),
    (
        "Latency under load: half a round trip, and from when a request was due",
        |workload| {
            matches!(
                workload,
                Workload::HotSpot { .. } | Workload::Mixed { .. } | Workload::OpenLoop { .. }
            )
        },
    ),
    ("Throughput, one way", is_stream),
    ("Throughput of several connections, all together", |workload| {
        matches!(
            workload,
            Workload::MultiStream { .. }
                | Workload::FanIn { .. }
                | Workload::FanOut { .. }
                | Workload::Incast { .. }
                | Workload::Bidirectional { .. }
        )
    }),
    ("Requests, each with a connection of its own", |workload| {
        matches!(workload, Workload::Churn { .. })
    }),
    (
        "Connections, set up and torn down one after the other",
        |workload| matches!(workload, Workload::Connect),
    ),
    (
        "How long bytes stay unacknowledged whose receiver computes 10 ms between calls",
        |workload| matches!(workload, Workload::Acknowledgement { .. }),
    ),
    (
        "What nodes on which nothing happens use of a core, programs and engines",
        |workload| matches!(workload, Workload::Idle { .. }),
    ),
    (
        "Ping-pong of pairs of nodes at once, all on the same cores",
        |workload| matches!(workload, Workload::Crowd { .. }),
    ),
    (
        "Host availability: what is left of the receiver's core while a stream arrives",
        |workload| matches!(workload, Workload::Availability { .. }),
    ),
    (
        "Longest pauses of a ping-pong beside streams, while placements change and while not",
        |workload| matches!(workload, Workload::Switching { .. }),
    ),
    ("Programs with several workers", Workload::is_of_workers),
    ("What finding a connection costs", Workload::is_alone),
];

fn is_stream(workload: &Workload) -> bool {
    matches!(workload, Workload::Stream { .. } | Workload::Bulk)
}

/// The layouts of one message side by side, with remarks.
fn laid_out(layouts: &[&MessageLayout], look: Look) -> String {
    let mut table = new_table(layout::heads(layouts).into_iter(), 2, look);
    for row in layout::stage_rows(layouts) {
        table.add_row(row);
    }
    let mut text = format!("{table}\n");
    for remark in layout::remarks(layouts) {
        text.push_str(&format!("{remark}\n"));
    }
    let unseen = layouts.first().into_iter().flat_map(|layout| &layout.blind_spots);
    let unseen: String = unseen.map(|sentence| format!("- {sentence}\n")).collect();
    text.push_str(&format!("Limits of this layout:\n{unseen}"));
    text
}

/// Medians, with a row for each metric and a column for each candidate.
fn figures(report: &Report, cells: &[&Cell], look: Look) -> Option<Table> {
    let candidates = &report.header.plan.candidates;
    let fixed = ["".to_owned(), "".to_owned()].into_iter();
    let mut table = new_table(fixed.chain(candidates.iter().map(|name| broken(name))), 2, look);
    for cell in cells {
        let workload = &cell.workload;
        let mut title = cell.title();
        for name in cell.metric_names() {
            let Some(figures) = report
                .metrics
                .get(&name)
                .filter(|figures| !figures.detail && !figures.values.is_empty())
                .filter(|figures| is_shown(figures.unit, workload))
            else {
                continue;
            };
            let label = format!("{} {}", figures.label, unit(figures.unit, is_long(workload)));
            let value = |candidate: &String| match figures.values.get(candidate) {
                Some(estimate) => shown(estimate.median, figures.unit, is_long(workload)),
                None => "-".into(),
            };
            table.add_row(
                [std::mem::take(&mut title), label]
                    .into_iter()
                    .chain(candidates.iter().map(value)),
            );
        }
    }
    (table.row_count() > 0).then_some(table)
}

/// Whether a unit is shown: for a stream, processor time per byte tells more than per write.
fn is_shown(unit: Quantity, workload: &Workload) -> bool {
    unit != Quantity::CpuPerThousand || !is_stream(workload)
}

/// Whether times are shown in milliseconds.
fn is_long(workload: &Workload) -> bool {
    matches!(
        workload,
        Workload::Acknowledgement { .. } | Workload::Switching { .. }
    )
}

/// The plan's targets of measured figures.
fn wanted(report: &Report, look: Look) -> Option<Table> {
    let columns = ["", "", "wanted", "measured", ""].map(String::from);
    let mut table = new_table(columns.into_iter(), 2, look);
    let mut about = "";
    for wanted in &report.header.plan.wanted {
        let Some(figure) = report.ratios.get(&wanted.figure) else {
            continue;
        };
        let limit = match wanted.limit {
            Limit::AtMost(limit) => format!("≤ {limit}"),
            Limit::AtLeast(limit) => format!("≥ {limit}"),
        };
        let verdict = match wanted.limit.judge(figure) {
            Verdict::Met => "met",
            Verdict::Probably => "met, but not for sure",
            Verdict::ProbablyNot => "missed, but not for sure",
            Verdict::Missed => "missed",
        };
        let first = if about == wanted.about { "" } else { &wanted.about };
        about = &wanted.about;
        table.add_row([first, &wanted.figure, &limit, &interval(figure), verdict]);
    }
    (table.row_count() > 0).then_some(table)
}

/// Every comparison of main figures: a table of losses, if there are any, then all ratios.
fn comparisons(report: &Report, look: Look, text: &mut String) {
    // Single rounds are not shown, so no samples are needed.
    let losses = losses(&panels(report, &[]));
    if !losses.is_empty() {
        let table = lost(&losses, look);
        let title = "Losses: where a candidate is surely worse [and the interval]";
        text.push_str(&format!("\n{}\n{table}\n", heading(title, look)));
    }
    let mut title = "Ratios: median of the rounds' [and its interval]";
    for columns in measured_comparisons(report).chunks(RATIO_COLUMNS) {
        let table = ratios(report, columns, look);
        text.push_str(&match std::mem::take(&mut title) {
            "" => format!("\n{table}\n"),
            title => format!("\n{}\n{table}\n", heading(title, look)),
        });
    }
}

/// A row for each comparison with a sure loss, at the place where it is worst.
fn lost(losses: &[Finding], look: Look) -> Table {
    let columns = ["", "", "against", "loss", "at"].map(String::from);
    let mut table = new_table(columns.into_iter(), 3, look);
    for finding in losses {
        let (candidate, baseline) = finding.compared.clone().unwrap_or_default();
        let Some(worst) = finding.ours.first() else {
            continue;
        };
        table.add_row([
            finding.about.clone(),
            candidate,
            baseline,
            format!("{} [{}]", worst.text, worst.interval),
            worst.place.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// The measured comparisons in the order of the plan.
fn measured_comparisons(report: &Report) -> Vec<&Comparison> {
    let is_found = |comparison: &&Comparison| {
        let end = format!("/{}/{}", comparison.candidate, comparison.baseline);
        report.ratios.keys().any(|name| name.ends_with(&end))
    };
    let comparisons = &report.header.plan.comparisons;
    comparisons.iter().filter(is_found).collect()
}

/// Main figures, with a row for each workload and a column for each comparison.
fn ratios(report: &Report, comparisons: &[&Comparison], look: Look) -> Table {
    let title = |comparison: &&Comparison| {
        format!(
            "{} /\n{}",
            broken(&comparison.candidate),
            broken(&comparison.baseline)
        )
    };
    let titles = comparisons.iter().map(title);
    let mut table = new_table(["".to_owned()].into_iter().chain(titles), 1, look);
    for name in report.header.plan.cells.iter().map(Cell::name) {
        let cell = |comparison: &&Comparison| {
            let ratio = report.ratios.get(&format!(
                "{name}/{}/{}",
                comparison.candidate, comparison.baseline
            ));
            ratio.map_or("-".into(), interval)
        };
        let cells = comparisons.iter().map(cell).collect::<Vec<String>>();
        if cells.iter().any(|cell| cell != "-") {
            table.add_row([name].into_iter().chain(cells));
        }
    }
    table
}

/// Missing candidates, failures and doubts.
fn notes(report: &Report, look: Look, text: &mut String) {
    let mut notes = Vec::new();
    for (name, fate) in &report.candidates {
        if let Some(reason) = &fate.unavailable {
            notes.push(format!("{name} was not measured: {reason}"));
        }
    }
    for failure in &report.failures {
        let output = failure.output.lines().collect::<Vec<_>>();
        let last = output[output.len().saturating_sub(OUTPUT_LINES)..].iter();
        let output = last.map(|line| format!("\n    {line}")).collect::<String>();
        let (round, workload) = (failure.round + 1, &failure.workload);
        notes.push(format!(
            "{} failed at {workload} in round {round}: {}{output}",
            failure.candidate, failure.reason
        ));
    }
    notes.extend(report.doubts());
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let mark = if look.colours {
            style("note:").yellow().force_styling(true).to_string()
        } else {
            "note:".into()
        };
        text.push_str(&format!("{mark} {note}\n"));
    }
}

fn heading(text: &str, look: Look) -> String {
    style(text).bold().force_styling(look.colours).to_string()
}

/// A long name on two lines, so that its column is no wider than its figures.
fn broken(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((first, second)) if name.len() > 12 => format!("{first}-\n{second}"),
        _ => name.to_owned(),
    }
}
