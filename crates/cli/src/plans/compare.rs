//! `toehold compare`: the differences between two runs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use toehold_lab::changes::{Agreement, Change, Changes, Verdict};
use toehold_lab::report::{Report, Saved, spoken};

use crate::json;
use crate::nodes::table;

/// Compare two runs, of two commits or on two machines, and show changes beyond noise
///
/// Compares every figure that both runs have, as the second divided by the first. A change lies
/// outside of the intervals of both runs; any other difference may be chance.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold compare results/2026-11-21T10-15-00Z-toe-fig3 results/2026-11-22T10-15-00Z-toe-fig3
  toehold compare before.json after.json --json | jq '.cells[] | select(.verdict != \"same\")'")]
pub(crate) struct Arguments {
    /// The first run: its directory, or a report in JSON. An interrupted run has the figures so far
    #[arg(value_name = "A")]
    before: PathBuf,

    /// The second run
    #[arg(value_name = "B")]
    after: PathBuf,

    /// Also show unchanged figures, and those that tables usually leave out
    #[arg(long)]
    all: bool,

    /// Print JSON with everything
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let [before, after] = [&arguments.before, &arguments.after].map(|path| read(path));
    let (before, after) = (before?, after?);
    let changes = Changes::between(&before, &after);
    if arguments.json {
        json::print("toehold/compare/1", &changes)?;
        return Ok(ExitCode::SUCCESS);
    }
    if changes.cells.is_empty() {
        bail!("the two runs have no figure in common");
    }
    let mut text = String::new();
    for (name, report) in [("A", &before), ("B", &after)] {
        text.push_str(&about(name, report));
    }
    text.push_str(&shown(&changes, arguments.all));
    text.push_str(&agreement(&changes));
    for (which, names) in [("A", &changes.only_before), ("B", &changes.only_after)] {
        if !names.is_empty() {
            text.push_str(&format!("only {which} has {}\n", names.join(", ")));
        }
    }
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Report> {
    if path.is_dir() {
        return Ok(Saved::read(path)?.report);
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Report::read(path, &bytes)?)
}

fn about(name: &str, report: &Report) -> String {
    let (plan, build, host) = (&report.header.plan, &report.header.build, &report.header.host);
    let commit = build.commit.get(..12).unwrap_or(&build.commit);
    format!(
        "{name}: {}, {}{}, commit {commit}{}, {}, Linux {}\n",
        plan.experiment,
        report.header.began,
        if report.complete { "" } else { ", interrupted" },
        if build.dirty { " (changed)" } else { "" },
        host.cpu.as_deref().unwrap_or("unknown processor"),
        host.kernel.as_deref().unwrap_or("unknown"),
    )
}

/// How well two runs of the same plan agree.
fn agreement(changes: &Changes) -> String {
    let part = |of: Agreement, what: &str| {
        let share = 100.0 * of.agree as f64 / of.of as f64;
        (of.of > 0).then(|| format!("{} of {} {what} ({share:.0} %)", of.agree, of.of))
    };
    let parts = [
        part(changes.figures, "figures, details among them"),
        part(changes.ratios, "ratios"),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    format!("within the intervals of both: {}\n", parts.join(", "))
}

fn shown(changes: &Changes, all: bool) -> String {
    let figures = changes.cells.iter().filter(|change| all || !change.detail);
    let (same, mut changed): (Vec<_>, Vec<_>) = figures.partition(|it| it.verdict == Verdict::Same);
    // The largest change comes first.
    let size = |change: &Change| change.ratio.median.ln().abs();
    changed.sort_by(|one, other| size(other).total_cmp(&size(one)));
    let count = changed.len();
    if all {
        changed.extend(&same);
    }
    let mut table = table::new(&["figure", "candidate", "A", "B", "B / A", ""], 2);
    for change in changed {
        let ratio = &change.ratio;
        table.add_row([
            change.metric.clone(),
            change.candidate.clone(),
            spoken(change.before.median, change.unit),
            spoken(change.after.median, change.unit),
            format!("{:.2} [{:.2}–{:.2}]", ratio.median, ratio.low, ratio.high),
            match change.verdict {
                Verdict::Better => "better".into(),
                Verdict::Worse => "worse".into(),
                Verdict::Same => String::new(),
            },
        ]);
    }
    let unchanged = same.len();
    match count {
        0 if !all => format!("nothing changed beyond noise, of {unchanged} figures\n"),
        _ => format!("{table}\n{count} changed beyond noise, {unchanged} did not\n"),
    }
}
