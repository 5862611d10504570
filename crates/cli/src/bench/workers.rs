//! `toehold bench workers`: programs with several workers.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use toehold_lab::experiment::Options;
use toehold_lab::experiment::workers::{self, Factors};
use toehold_lab::workload::MeasuredProgram;
use toehold_lab::{Settings, testbed};

use super::Output;
use super::measuring::{cores, seed};

/// Compare programs with several workers over nodes, the kernel and Unix sockets
///
/// The programs are nginx, PostgreSQL, MariaDB, Redis, memcached, php-fpm, Varnish, and a small
/// program for each kind of concurrency. Neither servers nor clients are pinned: all run on every
/// core that this command may run on. The report begins with the lowest ratio to the kernel's
/// loopback. The command needs root, for network namespaces. The row of a missing program names the
/// package that has it. docs/workers.md describes the programs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench workers --quick
  toehold bench workers --programs postgresql,nginx-short --workers 4 --clients 1,8,50 --loops 0,2
  taskset -c 0,1 toehold bench workers --candidates direct,kernel-loopback --rounds 9
  toehold bench workers --quick --json | jq '.worst[0]'

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
pub(super) struct Arguments {
    /// One combination of each program, over nodes and the kernel's loopback: some five minutes
    #[arg(long)]
    quick: bool,

    /// What to measure [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = programs())]
    programs: Vec<String>,

    /// Workers of each program, if it has a choice [default: 4; quick: 2]
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: Vec<u8>,

    /// Clients, each with one request at a time [default: 1,8,32; quick: 8]
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = clap::value_parser!(u8).range(1..=64))]
    clients: Vec<u8>,

    /// Busy loops that run at the same time [default: 0,2; quick: 0]
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = clap::value_parser!(u8).range(0..=64))]
    loops: Vec<u8>,

    /// Candidates, in the order of the columns [default: all; quick: direct,kernel-loopback]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = names())]
    candidates: Vec<String>,

    /// Number of rounds [default: 9; quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Duration of each measurement, in seconds [default: 2; quick: 1]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=60))]
    span: Option<u32>,

    /// Seed of the order within each round [default: different each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    output: Output,
}

/// Candidates of `--quick`.
const QUICK: [&str; 2] = ["direct", "kernel-loopback"];

pub(super) fn run(arguments: Arguments) -> Result<ExitCode> {
    let plan = workers::plan(options(&arguments)?, &factors(&arguments));
    super::carry_out(plan, &arguments.output)
}

fn options(arguments: &Arguments) -> Result<Options> {
    let quick = arguments.quick;
    let all = || testbed::WORKERS.iter().map(|candidate| candidate.name.to_owned());
    let candidates = match (&arguments.candidates[..], quick) {
        ([], true) => QUICK.map(str::to_owned).into(),
        ([], false) => all().collect(),
        (chosen, _) => chosen.to_vec(),
    };
    let span = arguments.span.unwrap_or(if quick { 1 } else { 2 });
    Ok(Options {
        sizes: Vec::new(),
        candidates,
        rounds: arguments.rounds.unwrap_or(if quick { 3 } else { 9 }),
        seed: seed(arguments.seed),
        settings: Settings {
            warm_up_ms: 200,
            span_ms: u64::from(span) * 1000,
            patience_ms: 10_000,
            cores: cores(None)?,
            congestion: "reno".into(),
            trace: None,
            far: None,
        },
    })
}

fn factors(arguments: &Arguments) -> Factors {
    let usual = match arguments.quick {
        true => Factors::quick(),
        false => Factors::usual(),
    };
    let or = |chosen: &Vec<u8>, usual| if chosen.is_empty() { usual } else { chosen.clone() };
    let chosen = arguments.programs.iter();
    let programs: Vec<_> = chosen.filter_map(|name| MeasuredProgram::named(name)).collect();
    Factors {
        programs: if programs.is_empty() {
            usual.programs
        } else {
            programs
        },
        workers: or(&arguments.workers, usual.workers),
        clients: or(&arguments.clients, usual.clients),
        loops: or(&arguments.loops, usual.loops),
    }
}

fn programs() -> PossibleValuesParser {
    PossibleValuesParser::new(MeasuredProgram::all().map(MeasuredProgram::name))
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(testbed::WORKERS.iter().map(|candidate| candidate.name))
}
