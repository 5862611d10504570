//! Web servers, and clients that ask them: each for a file as soon as it has the last one.
//!
//! The servers are programs of others. The clients are this program once more, which knows
//! nothing of nodes there: it uses the kernel's sockets through the standard library, and what
//! they are is decided by whoever starts it.

mod asked;
mod clients;
mod processes;
mod response;
mod world_cup;
mod zipf;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub(super) use asked::Asked;
pub(super) use response::Response;
use serde::{Deserialize, Serialize};

use crate::samples::Side;

/// The command that brings this program to [`main`].
pub const NAME: &str = "lab-web-clients";

/// What the clients' process is told, in a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// How many ask at once, each over a connection of its own.
    pub(super) clients: u8,
    /// What they ask for.
    pub(super) asked: Asked,
    /// Before anything counts.
    pub(super) warm_up: Duration,
    /// That counts.
    pub(super) span: Duration,
    /// Without a byte for so long, the server is given up.
    pub(super) patience: Duration,
    /// The engines of the server's and the clients' nodes, if they are on nodes.
    pub(super) engines: Vec<u32>,
}

/// What was counted while it counted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) client: Side,
    pub(super) server: Side,
}

/// Whether a file is a trace that clients may follow: a log of the 1998 World Cup's web site, as it
/// is published, compressed or not.
///
/// # Errors
///
/// If it cannot be read, if its last record is cut off, or if no file was asked for.
pub fn check_trace(file: &Path) -> io::Result<()> {
    Asked::world_cup(file).map(drop)
}

/// The clients of an order, which is in a file, in a process of their own. `server` is the
/// server's process group. What they counted goes to standard output.
pub fn main(order: &Path, address: SocketAddr, server: u32) -> ExitCode {
    let read = || Ok(serde_json::from_slice(&fs::read(order)?)?);
    let counted = read().and_then(|order: Order| clients::run(&order, address, server));
    match counted.and_then(|counted| Ok(serde_json::to_string(&counted)?)) {
        Ok(counted) => {
            println!("{counted}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
