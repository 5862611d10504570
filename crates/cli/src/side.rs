//! The hidden commands of a measurement's processes.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use toehold_lab::programs::{web, workers};
use toehold_lab::{Launcher, far, side, testbed};

/// The command's name on the command line.
pub(crate) const NAME: &str = "lab-side";

/// Runs a side, as the runner tells it.
pub(crate) fn run() -> ExitCode {
    side::main(testbed::ALL)
}

/// A launcher that starts this program again as a side.
pub(crate) fn launcher() -> Result<Launcher> {
    Ok(Launcher {
        program: program()?,
        arguments: vec![NAME.into()],
    })
}

/// The path of this program, to start it again.
pub(crate) fn program() -> Result<PathBuf> {
    // The link itself, not its target: it still leads to this program after a new build has
    // replaced the file.
    let program = "/proc/self/exe";
    std::fs::metadata(program).context("cannot find this program again (is /proc mounted?)")?;
    Ok(program.into())
}

/// Arguments of the other machine's end of a measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct FarSide {
    /// Print facts about the machine
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

/// Arguments of the clients of a web server.
#[derive(Debug, clap::Args)]
pub(crate) struct WebClients {
    /// File with the order for the clients
    order: PathBuf,
    /// Address of the server
    address: std::net::SocketAddr,
    /// The server's process group, if its use of processors counts
    server: Option<u32>,
}

impl WebClients {
    pub(crate) fn run(&self) -> ExitCode {
        web::main(&self.order, self.address, self.server)
    }
}

/// Arguments of the clients of a server with several workers.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkersClients {
    /// File with the order for the clients
    order: PathBuf,
    /// Address of the server
    address: workers::ServerAddress,
}

impl WorkersClients {
    pub(crate) fn run(&self) -> ExitCode {
        workers::main(&self.order, &self.address)
    }
}
