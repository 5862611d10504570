//! `toehold bench placement`: what it costs where a node's stack runs.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use toehold_lab::experiment::{Options, placement};
use toehold_lab::testbed;

use super::Output;
use super::measuring::Measuring;

/// A stack of one's own, a node's that programs attach to, and the kernel's
///
/// Two programs, each pinned to a core, exchange messages. Each is attached to a node
/// of its own, whose engine is one more process on the program's core, or has a stack
/// for itself. Processor time is the program's, without its engine's.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench placement --quick
  toehold bench placement --quick --json | jq '.ratios[\"latency_64B/inline/private\"]'

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
pub(super) struct Arguments {
    /// What to measure, in the order of the columns [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = names())]
    candidates: Vec<String>,

    #[command(flatten)]
    measuring: Measuring,

    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode> {
    let all = || {
        testbed::PLACEMENTS
            .iter()
            .map(|candidate| candidate.name.to_owned())
    };
    let sizes = if arguments.measuring.quick {
        &placement::QUICK_SIZES[..]
    } else {
        &placement::SIZES[..]
    };
    let options = Options {
        sizes: sizes.iter().map(|size| size.parse()).collect::<Result<_, _>>()?,
        candidates: if arguments.candidates.is_empty() {
            all().collect()
        } else {
            arguments.candidates
        },
        rounds: arguments.measuring.rounds(),
        seed: arguments.measuring.seed(),
        settings: arguments.measuring.settings()?,
    };
    super::carry_out(placement::plan(options), &arguments.output)
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(testbed::PLACEMENTS.iter().map(|candidate| candidate.name))
}
