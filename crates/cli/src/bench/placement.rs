//! `toehold bench placement`: what it costs where a node's stack runs.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use toehold_lab::experiment::placement::{self, Depth};
use toehold_lab::testbed;

use super::Output;
use super::measuring::{Measuring, Usual};

/// A stack of one's own, a node's that programs attach to, and the kernel's
///
/// Two programs, each pinned to a core, exchange messages. Each is attached to a node
/// of its own, whose engine is one more process on the program's core, or has a stack
/// for itself. Processor time is the program's, without its engine's, except where
/// nodes are idle.
///
/// Measured are latency, wake-ups, bulk, connections; how long bytes stay
/// unacknowledged while their receiver computes (ack); what idle nodes use (idle); 16
/// nodes in pairs on both cores at once (pingpong); what a stream leaves of its
/// receiver's core to a computing loop (availability); and how long traffic pauses
/// while placements change (pause).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench placement --quick
  toehold bench placement --only ack,pause --candidates adaptive,kernel-veth
  toehold bench placement --quick --json | jq '.ratios[\"latency_64B/inline/private\"]'
  toehold bench placement --quick --only ack --json | jq '.ratios[\"ack_ms/adaptive\"]'

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
pub(super) struct Arguments {
    /// What to measure, in the order of the columns [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = names())]
    candidates: Vec<String>,

    /// Measure what begins with these names only [default: everything]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = placement::KINDS)]
    only: Vec<String>,

    #[command(flatten)]
    measuring: Measuring,

    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode> {
    let usual = Usual {
        full: &placement::SIZES,
        quick: &placement::QUICK_SIZES,
    };
    let measuring = &arguments.measuring;
    let options = measuring.options(Vec::new(), &usual, arguments.candidates, testbed::PLACEMENTS)?;
    let depth = if arguments.measuring.quick {
        Depth::QUICK
    } else {
        Depth::FULL
    };
    let mut plan = placement::plan(options, &depth)?;
    if !arguments.only.is_empty() {
        let is_chosen = |name: &str| arguments.only.iter().any(|only| name.starts_with(only.as_str()));
        plan.cells.retain(|cell| is_chosen(&cell.name()));
    }
    super::carry_out(plan, &arguments.output)
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(testbed::PLACEMENTS.iter().map(|candidate| candidate.name))
}
