//! `toehold version`: the build of this program.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use toehold_lab::host::Build;

use crate::json;

/// The version that `toehold --version` prints behind the name.
pub(crate) const LINE: &str = env!("CARGO_PKG_VERSION");

/// Show the build of this program
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  toehold version --json")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let build = Build::this();
    if arguments.json {
        json::print("toehold/version/1", &build)?;
    } else {
        let changed = if build.dirty { ", changed" } else { "" };
        writeln!(
            std::io::stdout(),
            "toehold {} (commit {}{changed}, {} build)",
            build.version,
            build.commit,
            build.profile
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
