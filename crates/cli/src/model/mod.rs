//! `toehold model`: results of theory, with a file for each paper.

mod demux;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Compute the results of the papers' equations
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  toehold model demux --users 2000 --chains 19")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    model: Model,
}

#[derive(Debug, Subcommand)]
enum Model {
    Demux(demux::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.model {
        Model::Demux(arguments) => demux::run(arguments),
    }
}
