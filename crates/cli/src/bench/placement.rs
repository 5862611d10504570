//! `toehold bench placement`: the costs of the placements of a node's stack.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use toehold_lab::experiment::placement::{self, Depth};
use toehold_lab::testbed;

use super::Output;
use super::measuring::{Measuring, Usual};

/// Compare a private stack, a node's stack that programs attach to, and the kernel's
///
/// Two programs, each pinned to a core, exchange messages. Each has a private stack, or is attached
/// to a node of its own. The node's engine is one more process on the program's core. Processor
/// time is the program's, without its engine's, except for idle nodes.
///
/// It measures latency, wake-ups, bulk transfers and connections. `ack` is the time for which bytes
/// stay unacknowledged while their receiver computes. `idle` is the use of idle nodes. `pingpong`
/// runs 16 nodes in pairs on both cores at once. `availability` is the share of the receiver's core
/// that a stream leaves to a computing loop. `pause` is the pause of traffic while placements
/// change.
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

    /// Measure only rows whose names begin with these [default: everything]
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
