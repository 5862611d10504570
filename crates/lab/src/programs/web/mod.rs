//! Web servers, and clients that ask them: each for a file as soon as it has the last one.
//!
//! The servers are programs of others. The clients are this program once more, which knows
//! nothing of nodes there: it uses the kernel's sockets through the standard library, and what
//! they are is decided by whoever starts it.

mod clients;
mod processes;
mod response;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::samples::Side;

/// The command that brings this program to [`main`].
pub const NAME: &str = "lab-web-clients";

/// What the clients' process is told, in a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// How many ask at once, each over a connection of its own.
    pub(super) clients: u8,
    /// What there is to ask for.
    pub(super) files: Vec<Served>,
    /// Which of them is asked for, one after the other, by whichever client comes next; and
    /// again from the beginning.
    pub(super) requests: Vec<u32>,
    /// Before anything counts.
    pub(super) warm_up: Duration,
    /// That counts.
    pub(super) span: Duration,
    /// Without a byte for so long, the server is given up.
    pub(super) patience: Duration,
    /// The engines of the server's and the clients' nodes, if they are on nodes.
    pub(super) engines: Vec<u32>,
}

/// A file that the server has.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Served {
    /// Its name.
    pub(super) name: String,
    /// Its bytes.
    pub(super) length: u64,
}

/// What was counted while it counted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) client: Side,
    pub(super) server: Side,
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
