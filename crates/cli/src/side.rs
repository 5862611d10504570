//! The hidden commands that a measurement's processes run.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use toehold_lab::programs::{web, workers};
use toehold_lab::{Launcher, far, side, testbed};

/// Its name on the command line.
pub(crate) const NAME: &str = "lab-side";

/// Becomes a side of whatever the runner says.
pub(crate) fn run() -> ExitCode {
    side::main(testbed::ALL)
}

/// Starts this program again as a side.
pub(crate) fn launcher() -> Result<Launcher> {
    Ok(Launcher {
        program: program()?,
        arguments: vec![NAME.into()],
    })
}

/// This program, to start it again.
pub(crate) fn program() -> Result<PathBuf> {
    // The link and not what it points at: it goes on leading to this very program
    // when the file has been replaced by a new build meanwhile.
    let program = "/proc/self/exe";
    std::fs::metadata(program).context("cannot find this program again (is /proc mounted?)")?;
    Ok(program.into())
}

/// What the other machine of a measurement is told.
#[derive(Debug, clap::Args)]
pub(crate) struct FarSide {
    /// Say what machine it is
    #[arg(long)]
    about: bool,
}

impl FarSide {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if self.about {
            serde_json::to_writer(std::io::stdout(), &far::About::this())?;
        } else {
            far::relay(&launcher()?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What clients of a web server are told.
#[derive(Debug, clap::Args)]
pub(crate) struct WebClients {
    /// A file that says what they do
    order: PathBuf,
    /// Where the server is
    address: std::net::SocketAddr,
    /// The server's process group
    server: u32,
}

impl WebClients {
    pub(crate) fn run(&self) -> ExitCode {
        web::main(&self.order, self.address, self.server)
    }
}

/// What clients of a server with several workers are told.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkersClients {
    /// A file that says what they do
    order: PathBuf,
    /// Where the server is
    address: workers::ServerAddress,
}

impl WorkersClients {
    pub(crate) fn run(&self) -> ExitCode {
        workers::main(&self.order, &self.address)
    }
}
