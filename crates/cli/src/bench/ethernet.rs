//! `toehold bench ethernet`: kernel interfaces whose frames Toehold carries.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use toehold_lab::experiment::ethernet;
use toehold_lab::{Size, testbed};

use super::Output;
use super::measuring::{Measuring, Usual};

/// Measure the kernel's TCP over message queues (ETHOM), over UDP (ETHOS), and over veth
///
/// Two programs in network namespaces of their own, each pinned to a core, exchange messages
/// through the kernel's TCP. One more process on each program's core carries the frames of its
/// interface, as `toehold device` starts it. The veth candidate has no such process. Processor time
/// is the program's alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench ethernet --quick
  toehold bench ethernet --sizes 64,1K --candidates ethom,kernel-veth --json result.json
  toehold bench ethernet --quick --json | jq '.ratios[\"latency_64B/ethom/ethos\"]'

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
pub(super) struct Arguments {
    /// What to measure, in the order of the columns [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = names())]
    candidates: Vec<String>,

    /// Sizes of messages, 1 to 16M [default: 64,256,1K,4K,16K,64K; quick: 64,1K]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…")]
    sizes: Vec<Size>,

    #[command(flatten)]
    measuring: Measuring,

    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode> {
    let usual = Usual {
        full: &ethernet::SIZES,
        quick: &ethernet::QUICK_SIZES,
    };
    let measuring = &arguments.measuring;
    let options = measuring.options(arguments.sizes, &usual, arguments.candidates, testbed::ETHERNETS)?;
    super::carry_out(ethernet::plan(options), &arguments.output)
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(testbed::ETHERNETS.iter().map(|candidate| candidate.name))
}
