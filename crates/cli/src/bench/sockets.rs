//! `toehold bench sockets`: stream sockets as a program sees them.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use toehold_lab::experiment::sockets;
use toehold_lab::{Size, testbed};

use super::Output;
use super::measuring::{Measuring, Usual};

/// Compare latency, throughput, CPU use and connection rate of stream sockets
///
/// Two processes, each pinned to a core, exchange messages over each candidate in turn, in a new
/// order every round. Ratios are computed within a round, so that a change of the machine's speed
/// does not look like a difference.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench sockets --quick
  toehold bench sockets --sizes 64,1K --candidates kernel-veth,unix --rounds 9 --json result.json
  toehold bench sockets --quick --json | jq .ratios

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
pub(super) struct Arguments {
    /// What to measure, in the order of the columns [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = names(), hide_possible_values = true)]
    #[arg(help = candidates_help())]
    candidates: Vec<String>,

    /// Sizes of messages, 1 to 16M [default: 1,16,64,256,1K,4K,16K,64K,256K,1M; quick: 64,1K,64K]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…")]
    sizes: Vec<Size>,

    #[command(flatten)]
    measuring: Measuring,

    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode> {
    let usual = Usual {
        full: &sockets::SIZES,
        quick: &sockets::QUICK_SIZES,
    };
    let measuring = &arguments.measuring;
    let options = measuring.options(arguments.sizes, &usual, arguments.candidates, testbed::SOCKETS)?;
    super::carry_out(sockets::plan(options), &arguments.output)
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(testbed::SOCKETS.iter().map(|candidate| candidate.name))
}

fn candidates_help() -> String {
    let lines = testbed::SOCKETS
        .iter()
        .map(|candidate| format!("\n- {}: {}", candidate.name, candidate.about));
    format!(
        "What to measure, in the order of the columns [default: all]{}",
        lines.collect::<String>()
    )
}
