//! Web servers, and clients that request one file after the other.
//!
//! The servers are unmodified programs. The clients are this program in another process, which does
//! not know about nodes. It uses the kernel's sockets through the standard library, and its
//! environment decides whether these are a node's.

mod asked;
mod clients;
mod order;
mod processes;
mod response;
mod world_cup;
mod zipf;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use asked::{Asked, Served};
pub(crate) use order::{Counted, Extent, Order};
pub(super) use response::Response;
pub(crate) use zipf::Zipf;

/// The command that brings this program to [`main`].
pub const NAME: &str = "lab-web-clients";

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
/// server's process group, if its use of processors counts. The counts go to standard output.
pub fn main(order: &Path, address: SocketAddr, server: Option<u32>) -> ExitCode {
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
