//! `toehold bench impaired`: TCP over paths with faults.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use toehold_lab::experiment::impaired;
use toehold_lab::testbed;

use super::Output;
use super::measuring::{Measuring, Usual};

/// Time until a stream reaches its full rate, and duration of the measurement, in milliseconds:
/// many round trips.
const SPANS: [u64; 2] = [2_000, 4_000];
const QUICK_SPANS: [u64; 2] = [2_000, 2_000];
/// Time for buffered data to cross a path with heavy loss, in milliseconds.
const PATIENCE: u64 = 60_000;
/// The congestion control of the kernel: Toehold uses it too.
const CONGESTION: &str = "cubic";

/// Measure Toehold's TCP and the kernel's as peers, over paths that lose, delay, repeat or reorder
/// frames
///
/// A stream runs between two network namespaces, and Toehold carries its frames. A seed determines
/// the faults on the path. Toehold's TCP is at one end, or at none; the result is its throughput.
/// All use CUBIC. Every frame is one segment.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench impaired --quick
  toehold bench impaired --rounds 5 --json result.json
  toehold bench impaired --json | jq '.ratios[\"impaired_1%_20ms/toehold-to-kernel/kernel-to-kernel\"]'

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
#[command(mut_arg("span", |span| span.help(
    "How long each measurement takes, in milliseconds [default: 4000; quick: 2000]"
)))]
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
    let measuring = &arguments.measuring;
    let usual = Usual {
        full: &[],
        quick: &[],
    };
    let mut options = measuring.options(Vec::new(), &usual, arguments.candidates, testbed::MIXED)?;
    let [warm_up, span] = if measuring.quick { QUICK_SPANS } else { SPANS };
    options.settings.warm_up_ms = warm_up;
    options.settings.span_ms = measuring.span.unwrap_or(span);
    options.settings.patience_ms = PATIENCE;
    options.settings.congestion = CONGESTION.into();
    super::carry_out(impaired::plan(options, measuring.quick), &arguments.output)
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(testbed::MIXED.iter().map(|candidate| candidate.name))
}
