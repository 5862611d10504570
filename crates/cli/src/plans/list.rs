//! `toehold list`: the plans, their durations, and their requirements.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use toehold_lab::experiment::{PlanFile, builtin};
use toehold_lab::site::SiteCandidate;
use toehold_lab::{Plan, programs, testbed};

use crate::json;
use crate::nodes::table;

/// List the plans that can be reproduced: figures of papers, with their durations
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  toehold list\n  toehold list --json | jq '.plans[].name'")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    plans: &'a [Row],
}

/// One plan.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    title: String,
    /// The section of the paper.
    section: Option<String>,
    about: String,
    /// Approximate duration.
    quick_ns: u64,
    full_ns: u64,
    needs: Vec<Need>,
}

/// A program that candidates or workloads need.
#[derive(Debug, Serialize)]
struct Need {
    program: &'static str,
    /// The Debian package that has it.
    package: &'static str,
    is_here: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let rows: Vec<_> = builtin::all()?.iter().map(row).collect();
    if arguments.json {
        json::print("toehold/list/1", &Listing { plans: &rows })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut listed = table::new(
        &["name", "what it measures", "paper", "needs", "quick", "full"],
        4,
    );
    for row in &rows {
        let needs: Vec<_> = row.needs.iter().map(Need::text).collect();
        listed.add_row([
            row.name.clone(),
            row.title.clone(),
            row.section.clone().unwrap_or_default(),
            needs.join(", "),
            spoken(row.quick_ns),
            spoken(row.full_ns),
        ]);
    }
    writeln!(
        std::io::stdout(),
        "{listed}\ntoehold reproduce NAME [--quick]; with the name of a paper or `all`, one after the other"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn row(file: &PlanFile) -> Row {
    let span = |is_quick| {
        let plan = file.plan(is_quick, 0, [0, 1]);
        plan.length(testbed::ALL).as_secs().max(1) * 1_000_000_000
    };
    let plan = file.plan(false, 0, [0, 1]);
    Row {
        name: file.name().to_owned(),
        section: plan.paper.as_ref().map(|paper| paper.section.clone()),
        about: file.about.trim().to_owned(),
        quick_ns: span(true),
        full_ns: span(false),
        needs: needs(&plan),
        title: plan.title,
    }
}

/// The requirements of its candidates and of its workloads.
fn needs(plan: &Plan) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    let used = testbed::ALL
        .iter()
        .filter(|known| plan.candidates.iter().any(|name| name == known.name));
    let of_candidates = used.flat_map(|candidate| candidate.programs);
    let of_workloads = plan.cells.iter().flat_map(|cell| cell.workload.programs());
    let of_deployments = plan.deployments.values().flat_map(SiteCandidate::programs);
    let of_others = of_candidates.chain(of_workloads).copied();
    for (program, package) in of_others.chain(of_deployments) {
        if !needs.iter().any(|need| need.program == program) {
            needs.push(Need {
                program,
                package,
                is_here: programs::find(program).is_some(),
            });
        }
    }
    needs
}

impl Need {
    fn text(&self) -> String {
        if self.is_here {
            self.program.to_owned()
        } else {
            format!("{} (missing: install the package {})", self.program, self.package)
        }
    }
}

/// Formats a duration as minutes and seconds.
fn spoken(span_ns: u64) -> String {
    humantime::format_duration(Duration::from_nanos(span_ns)).to_string()
}
