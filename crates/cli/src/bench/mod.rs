//! `toehold bench`: measurements, with a file for each experiment. This file carries them out.

mod demux;
mod ethernet;
mod impaired;
mod latency;
mod measuring;
mod placement;
mod programs;
mod sockets;
mod workers;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use toehold_lab::{Plan, testbed};

use crate::interrupt;
use crate::measurement::{self, Begin, Output, lock};

pub(crate) use measuring::{cores, seed};

/// Compare stacks on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  toehold bench sockets --quick")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Sockets(sockets::Arguments),
    Latency(latency::Arguments),
    Placement(placement::Arguments),
    Ethernet(ethernet::Arguments),
    Impaired(impaired::Arguments),
    Programs(programs::Arguments),
    Workers(workers::Arguments),
    Demux(demux::Arguments),
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.experiment {
        Experiment::Sockets(arguments) => sockets::run(arguments),
        Experiment::Latency(arguments) => latency::run(arguments),
        Experiment::Placement(arguments) => placement::run(arguments),
        Experiment::Ethernet(arguments) => ethernet::run(arguments),
        Experiment::Impaired(arguments) => impaired::run(arguments),
        Experiment::Programs(arguments) => programs::run(arguments),
        Experiment::Workers(arguments) => workers::run(arguments),
        Experiment::Demux(arguments) => demux::run(&arguments),
    }
}

/// Runs a plan, from the lock to the report. Fails if no candidate could be measured.
fn carry_out(plan: Plan, output: &Output) -> Result<ExitCode> {
    plan.check(testbed::ALL)?;
    output.check()?;
    let stop = interrupt::flag()?;
    let Some(_lock) = lock(&stop)? else {
        return Ok(ExitCode::from(interrupt::STATUS));
    };
    let report = measurement::measure(plan, &output.results()?, &Begin::Anew, &stop)?;
    if !output.is_json_only() {
        measurement::show(&report)?;
    }
    let reports = [report];
    output.deliver(&reports)?;
    Ok(measurement::status(&reports))
}
