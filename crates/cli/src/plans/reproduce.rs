//! `toehold reproduce`: measures figures of papers on this machine.

use std::process::ExitCode;

use anyhow::Result;

use super::{Measuring, chosen};

/// Measure figures of the papers on this machine, with all candidates in one run
///
/// Every plan visits its cells in an order drawn anew for each round, and measures the candidates
/// of a cell directly after one another. Each sample is saved before the next is taken. An
/// interrupted run can be resumed if plan, settings and build are the same.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold reproduce toe/fig3 --quick
  toehold reproduce toe ethom --quick --out results
  toehold reproduce all

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
pub(crate) struct Arguments {
    /// Name of a plan or a paper, or `all`
    #[arg(required = true, value_name = "NAME|PAPER|all")]
    names: Vec<String>,

    #[command(flatten)]
    measuring: Measuring,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let measuring = &arguments.measuring;
    let plans = chosen(&arguments.names)?;
    let plans = plans.iter().map(|file| measuring.plan(file));
    measuring.carry_out(plans.collect::<Result<_>>()?)
}
