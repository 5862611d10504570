//! `toehold bench demux`: the cost of finding a connection, by strategy.

mod report;
mod tables;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::ValueEnum;
use toehold_demux_lab::speed::{self, Plan};
use toehold_lab::samples::Store;
use toehold_lab::say;

use super::Output;
use crate::json;
use report::{AttackReport, DemuxReport};

/// Schema of the report.
const SCHEMA: &str = "toehold/bench-demux/1";

/// Schema of the report of `--attacks`.
const ATTACKS_SCHEMA: &str = "toehold/bench-demux-attacks/1";

/// Measure the cost of finding a connection: the strategies of McKenney and Dove's paper, and ours
///
/// The first part reproduces the paper's numbers and figures, beside the equations and a simulation
/// that runs the strategies' code. It counts protocol control blocks examined, which depend on no
/// machine. The second part measures nanoseconds per look-up on this machine. Every round measures
/// all strategies, hash maps, and DPDK's rte_hash if it is installed (Debian's package
/// librte-hash23). A floor reads as many cache lines as any look-up must.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench demux --quick
  toehold bench demux --attacks --rounds 5
  toehold bench demux --quick --json | jq '.ratios[\"tpca_65536/flow-table/bsd\"]'
  toehold bench demux --connections 1024,1048576 --traffic tpca,misses --json")]
pub(super) struct Arguments {
    /// Half a minute: fewer connections, traffic, rounds
    #[arg(long)]
    quick: bool,

    /// Connections [default: 1024,65536,1048576,10000000; quick: 1024,65536,1048576]
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = clap::value_parser!(u32).range(2..=1 << 24))]
    connections: Vec<u32>,

    /// Traffic to look up [default: all; quick: tpca,misses]
    #[arg(long, value_delimiter = ',', value_name = "TRAFFIC,…")]
    traffic: Vec<Traffic>,

    /// Rounds [default: 9; quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Measure the effect of attackers that choose connections or segments instead, with this many
    /// connections
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1048576",
        value_parser = clap::value_parser!(u32).range(64..=1 << 22))]
    attacks: Option<u32>,

    /// Seed of users, connections, hashes and the order of candidates
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    #[command(flatten)]
    output: Output,
}

/// Kinds of traffic, by the names on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Traffic {
    /// Users of TPC/A with a response time of 0.2 s
    Tpca,
    /// Trains of 16 segments
    Trains,
    /// Few connections have most segments
    Zipf,
    /// Look-ups of unknown connections
    Misses,
    /// A connection comes and goes for eight look-ups
    Churn,
}

impl From<Traffic> for speed::Traffic {
    fn from(traffic: Traffic) -> Self {
        match traffic {
            Traffic::Tpca => Self::Tpca,
            Traffic::Trains => Self::Trains,
            Traffic::Zipf => Self::Zipf,
            Traffic::Misses => Self::Misses,
            Traffic::Churn => Self::Churn,
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = &arguments.output;
    output.check()?;
    // An interrupt ends the run at once: there is no partial state.
    let Some(_lock) = super::lock(&AtomicBool::new(false))? else {
        return Ok(ExitCode::FAILURE);
    };
    let mut store = Store::create(&output.results()?, "demux")?;
    let plan = plan(arguments);
    if let Some(live) = arguments.attacks {
        let found = AttackReport::measured(live, plan.rounds, plan.seed);
        store.write("report.json", &json::Document::new(ATTACKS_SCHEMA, &found))?;
        output.deliver_one(ATTACKS_SCHEMA, &found)?;
        if !output.is_json_only() {
            tables::show_attacks(&found.attacks)?;
        }
    } else {
        let report = DemuxReport::measured(&plan, arguments.quick);
        for round in report.rounds() {
            store.append(&round)?;
        }
        store.write("report.json", &json::Document::new(SCHEMA, &report))?;
        output.deliver_one(SCHEMA, &report)?;
        if !output.is_json_only() {
            tables::show(&report)?;
        }
    }
    say(&format!("what was measured: {}", store.directory().display()));
    Ok(ExitCode::SUCCESS)
}

fn plan(arguments: &Arguments) -> Plan {
    let (connections, traffic, rounds): (&[u32], &[Traffic], u32) = match arguments.quick {
        true => (&[1 << 10, 1 << 16, 1 << 20], &[Traffic::Tpca, Traffic::Misses], 3),
        false => (
            &[1 << 10, 1 << 16, 1 << 20, 10_000_000],
            Traffic::value_variants(),
            9,
        ),
    };
    fn or<T: Copy>(given: &[T], usual: &[T]) -> Vec<T> {
        if given.is_empty() {
            usual.to_vec()
        } else {
            given.to_vec()
        }
    }
    let traffic = or(&arguments.traffic, traffic);
    Plan {
        connections: or(&arguments.connections, connections),
        traffic: traffic.into_iter().map(Into::into).collect(),
        lists: true,
        rounds: arguments.rounds.unwrap_or(rounds),
        seed: arguments.seed,
    }
}
