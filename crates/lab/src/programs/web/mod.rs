//! Web servers, and clients that request one file after the other.
//!
//! The servers are unmodified programs. The clients are this program in another process, which does
//! not know about nodes. It uses the kernel's sockets through the standard library, and its
//! environment decides whether these are a node's.

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

/// The order for the clients' process, in a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// Number of clients, each with a connection of its own.
    pub(super) clients: u8,
    /// Their requests.
    pub(super) asked: Asked,
    /// Duration before the measurement.
    pub(super) warm_up: Duration,
    /// Duration of the measurement.
    pub(super) span: Duration,
    /// Time without a byte before the server is given up.
    pub(super) patience: Duration,
    /// The engines of the server's and the clients' nodes, if they are on nodes.
    pub(super) engines: Vec<u32>,
}

/// The counts of the measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) client: Side,
    pub(super) server: Side,
}

/// Checks that a file is a trace for clients: a log of the 1998 World Cup's web site in its
/// published form, compressed or not.
///
/// # Errors
///
/// If it cannot be read, if its last record is incomplete, or if it has no answer with a file.
pub fn check_trace(file: &Path) -> io::Result<()> {
    Asked::world_cup(file).map(drop)
}

/// Runs the clients of an order, which is in a file, in a process of their own. `server` is the
/// server's process group. The counts go to standard output.
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
