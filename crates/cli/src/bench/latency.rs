//! `toehold bench latency`: where the time of a message goes.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use toehold_lab::experiment::{Options, latency};
use toehold_lab::{Settings, Size, testbed};

use super::Output;
use super::measuring::{cores, seed};

/// Show where the time of a message goes in the kernel's TCP
///
/// A ping-pong between two processes, each pinned to a core, is followed through the kernel by
/// thirteen tracepoints. The table has the stages of a message in their order, each with its mean,
/// its interval and its share. The stages must add up to the time without tracepoints within 5 %.
/// Otherwise the table says that they do not close. Tracing needs root. Without it, only the times
/// of whole messages are measured, and the report says why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench latency --quick
  toehold bench latency --sizes 64,16K --candidates kernel-veth --rounds 20
  toehold bench latency --json | jq '.layouts[] | {candidate, closes, stages: [.account.stages[] | {stage, mean_ns}]}'

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
pub(super) struct Arguments {
    /// Fewer round trips: half a minute or so
    #[arg(long)]
    quick: bool,

    /// What to measure, in the order of the columns [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = names())]
    candidates: Vec<String>,

    /// Sizes of messages [default: 64]. A message of more than a segment cannot be followed
    #[arg(long, alias = "size", value_delimiter = ',', value_name = "SIZE,…")]
    sizes: Vec<Size>,

    /// Number of rounds, each of eight blocks of round trips; fewer than nine never close
    /// [default: 15; quick: 9]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Round trips of each block [default: 500; quick: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=2000))]
    trips: Option<u32>,

    /// Seed of the order within each round [default: different each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Cores of the server's and the client's process [default: the first two]
    #[arg(long, value_delimiter = ',', value_name = "SERVER,CLIENT")]
    cores: Option<Vec<usize>>,

    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode> {
    let trips = arguments.trips.unwrap_or(if arguments.quick { 200 } else { 500 });
    let plan = latency::plan(options(&arguments)?, trips);
    super::carry_out(plan, &arguments.output)
}

fn options(arguments: &Arguments) -> Result<Options> {
    let quick = arguments.quick;
    let all = || {
        testbed::FOLLOWED
            .iter()
            .map(|candidate| candidate.name.to_owned())
    };
    let usual = || {
        latency::SIZES
            .iter()
            .map(|size| size.parse())
            .collect::<Result<_, _>>()
    };
    Ok(Options {
        sizes: match arguments.sizes.is_empty() {
            true => usual()?,
            false => arguments.sizes.clone(),
        },
        candidates: match arguments.candidates.is_empty() {
            true => all().collect(),
            false => arguments.candidates.clone(),
        },
        rounds: arguments.rounds.unwrap_or(if quick { 9 } else { 15 }),
        seed: seed(arguments.seed),
        settings: Settings {
            warm_up_ms: if quick { 20 } else { 50 },
            span_ms: if quick { 80 } else { 250 },
            // Turning tracepoints on takes long on a busy machine.
            patience_ms: 60_000,
            cores: cores(arguments.cores.clone())?,
            congestion: "reno".into(),
            trace: None,
            far: None,
        },
    })
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(testbed::FOLLOWED.iter().map(|candidate| candidate.name))
}
