//! `toehold sweep`: measures the user's own plans.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use toehold_lab::experiment::PlanFile;

use super::Measuring;

/// Measure a plan from a file, as `toehold reproduce` does
///
/// docs/experiments.md describes the format; the files under experiments/ are examples.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold sweep mine.toml
  toehold sweep mine.toml --quick --json | jq .ratios

Exit status: 0, or 1 if a candidate failed, or 130 if interrupted.")]
pub(crate) struct Arguments {
    /// The plan
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,

    #[command(flatten)]
    measuring: Measuring,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let path = &arguments.file;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = PlanFile::parse(&path.display().to_string(), &text)?;
    let plan = arguments.measuring.plan(&file)?;
    arguments.measuring.carry_out(vec![plan])
}
