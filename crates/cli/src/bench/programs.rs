//! `toehold bench programs`: unmodified programs.

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use toehold_lab::programs::{self, Files, Options, ROWS};
use toehold_lab::samples::Store;
use toehold_lab::say;

use crate::measurement::Output;
use crate::{interrupt, json};

/// Schema of the report.
const SCHEMA: &str = "toehold/bench-programs/1";

/// Compare unmodified programs on two nodes with the same programs over the kernel's TCP
///
/// The programs are NetPIPE, sockperf, iperf3, redis and nginx, with the server on one core and the
/// client on another. They run in turn over veth between two network namespaces, and with `toehold
/// run` on two nodes. One more row measures the cost of the library in a program without sockets.
/// The command needs root, for the namespaces. A row whose programs are missing names the package
/// that has them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench programs --quick
  toehold bench programs --rows sockperf_p50,nginx_1k_1 --rounds 9
  toehold bench programs --quick --json | jq .ratios.redis_50.median

Exit status: 0, or 1 if a row could not be measured, or 130 if interrupted.")]
pub(super) struct Arguments {
    /// Few rounds of a second each: some three minutes
    #[arg(long)]
    quick: bool,

    /// What to measure [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = names())]
    rows: Vec<String>,

    /// Number of rounds [default: 9; quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Duration of each measurement, in seconds [default: 3; quick: 1]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=60))]
    span: Option<u32>,

    /// Seed of the order within each round [default: different each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Cores of the server and the client [default: the first two]
    #[arg(long, value_delimiter = ',', value_name = "SERVER,CLIENT")]
    cores: Option<Vec<usize>>,

    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode> {
    let quick = arguments.quick;
    let options = Options {
        rows: arguments.rows,
        rounds: arguments.rounds.unwrap_or(if quick { 5 } else { 9 }),
        seed: super::measuring::seed(arguments.seed),
        seconds: arguments.span.unwrap_or(if quick { 1 } else { 3 }),
        cores: super::measuring::cores(arguments.cores)?,
    };
    let output = arguments.output;
    output.check()?;
    let stop = interrupt::flag()?;
    let Some(_lock) = super::lock(&stop)? else {
        return Ok(ExitCode::from(interrupt::STATUS));
    };
    let own = std::env::current_exe().context("cannot find this program (is /proc mounted?)")?;
    let files = Files::make(&own)?;
    let mut store = Store::create(&output.results()?, "programs")?;
    let report = programs::run(&options, &own, &files, &mut store, &stop, say)?;
    store.write("report.json", &json::Document::new(SCHEMA, &report))?;
    if !output.is_json_only() {
        write!(std::io::stdout(), "{}", report.text())?;
    }
    output.deliver_one(SCHEMA, &report)?;
    say(&format!("what was measured: {}", store.directory().display()));
    Ok(match (stop.load(Ordering::Relaxed), report.is_whole()) {
        (true, _) => ExitCode::from(interrupt::STATUS),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(ROWS.iter().map(|row| row.name))
}
