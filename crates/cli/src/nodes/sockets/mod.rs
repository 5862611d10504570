//! `toehold sockets`: lists a node's sockets in the form of `ss -tin`.

mod lines;
mod ss;
mod words;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use toehold_node::control::SocketStatus;

use super::Within;
use super::table::Wide;
use crate::json;

/// List a node's sockets
///
/// The form is that of `ss -tiano`, but cwnd and ssthresh are in bytes. Recv-Q of a listener is the
/// number of connections in its accept queue, Send-Q its backlog.
///
/// Every running timer is shown with its remaining time and its number of consecutive expiries. The
/// names of `ss -o` are `on` (a retransmission timeout, a tail loss probe or the wait for reordered
/// segments), `persist`, `keepalive` and `timewait`. Further names are `cork`, `ack` (delayed),
/// `finwait2` and `user` (TCP_USER_TIMEOUT).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold sockets web
  toehold sockets web --ss
  toehold sockets web --json | jq '.sockets[] | select(.state == \"ESTAB\") | .tcp.rtt_ns'")]
pub(crate) struct Arguments {
    /// Name of the node
    node: String,

    #[command(flatten)]
    within: Within,

    /// Print the form of `ss -tanope`: columns, processes with their descriptors, users, inodes,
    /// cookies
    #[arg(long, conflicts_with = "json")]
    ss: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    wide: Wide,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    sockets: &'a [SocketStatus],
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let sockets = arguments.within.connect(&arguments.node)?.sockets()?;
    if arguments.json {
        json::print("toehold/sockets/1", &Listing { sockets: &sockets })?;
    } else if arguments.ss {
        write!(std::io::stdout(), "{}", ss::text(&sockets, ss::users_of))?;
    } else {
        write!(
            std::io::stdout(),
            "{}",
            lines::text(&sockets, arguments.wide.columns())
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
