//! `toehold bench sockets`: what a program sees through a stream socket.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use toehold_lab::experiment::sockets::{self, Options};
use toehold_lab::{Settings, Size, host, testbed};

use super::Output;

/// Latency, throughput, CPU use and connection rate of stream sockets
///
/// Two processes, each pinned to a core, exchange messages: in turn over each
/// candidate, every round in a new order. Ratios are taken round by round, so
/// that a change of the machine's speed does not look like a difference.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench sockets --quick
  toehold bench sockets --sizes 64,1K --candidates kernel-veth,unix --rounds 9 --json result.json
  toehold bench sockets --quick --json | jq .ratios

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
pub(super) struct Arguments {
    /// Few sizes and short measurements: under 40 seconds
    #[arg(long)]
    quick: bool,

    /// What to measure, in the order of the columns [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = names(), hide_possible_values = true)]
    #[arg(help = candidates_help())]
    candidates: Vec<String>,

    /// Sizes of messages, 1 to 16M [default: 1,16,64,256,1K,4K,16K,64K,256K,1M; quick: 64,1K,64K]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…")]
    sizes: Vec<Size>,

    /// How often everything is measured [default: 9; quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// How long each measurement takes, in milliseconds [default: 250; quick: 80]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    span: Option<u64>,

    /// Decides the order within each round [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The cores of the server's and the client's process [default: the first two]
    #[arg(long, value_delimiter = ',', value_name = "SERVER,CLIENT")]
    cores: Option<Vec<usize>>,

    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode> {
    let quick = arguments.quick;
    let all = || {
        testbed::ALL
            .iter()
            .map(|candidate| candidate.name.to_owned())
            .collect()
    };
    let usual = if quick {
        &sockets::QUICK_SIZES[..]
    } else {
        &sockets::SIZES[..]
    };
    let options = Options {
        sizes: match arguments.sizes {
            sizes if sizes.is_empty() => usual.iter().map(|size| size.parse()).collect::<Result<_, _>>()?,
            sizes => sizes,
        },
        candidates: if arguments.candidates.is_empty() {
            all()
        } else {
            arguments.candidates
        },
        rounds: arguments.rounds.unwrap_or(if quick { 5 } else { 9 }),
        seed: arguments
            .seed
            .unwrap_or_else(|| u64::from(std::process::id()) ^ clock()),
        settings: Settings {
            warm_up_ms: if quick { 20 } else { 50 },
            span_ms: arguments.span.unwrap_or(if quick { 80 } else { 250 }),
            patience_ms: if quick { 5_000 } else { 10_000 },
            cores: cores(arguments.cores)?,
            congestion: "reno".into(),
        },
    };
    super::carry_out(sockets::plan(options), &arguments.output)
}

/// Nanoseconds of the current second: different in runs that follow one another.
fn clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::from(now.subsec_nanos()))
}

fn cores(chosen: Option<Vec<usize>>) -> Result<[usize; 2]> {
    let usable = host::usable_cores();
    let chosen = match chosen {
        Some(chosen) => chosen,
        None => usable.iter().copied().take(2).collect(),
    };
    if let Some(core) = chosen.iter().find(|core| !usable.contains(core)) {
        bail!("this process may not run on core {core}; it may on {usable:?}");
    }
    match chosen[..] {
        [server, client] => Ok([server, client]),
        [only] => Ok([only, only]),
        _ => bail!("--cores takes two numbers, as in --cores 0,1"),
    }
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(testbed::ALL.iter().map(|candidate| candidate.name))
}

fn candidates_help() -> String {
    let lines = testbed::ALL
        .iter()
        .map(|candidate| format!("\n- {}: {}", candidate.name, candidate.about));
    format!(
        "What to measure, in the order of the columns [default: all]{}",
        lines.collect::<String>()
    )
}
