//! `toehold ps`: lists running nodes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use toehold_node::control::{Connection, ControlError, NodeStatus};
use toehold_node::fabric::{self, Fabric, NodeRecord, Role};

use super::{address, short, table, unaccelerated, uplink_status};
use crate::json;

/// The longest time for the status of a node.
const TIMEOUT: Duration = Duration::from_secs(2);

/// List the running nodes
///
/// Files of killed nodes are removed at the same time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold ps
  toehold ps --wide
  toehold ps --fabric lab --json | jq '.nodes[].node.ipv4'")]
pub(crate) struct Arguments {
    /// Only this fabric: a name, or a directory with a `/` in it [default: all named fabrics]
    #[arg(long, value_name = "FABRIC", env = fabric::VARIABLE)]
    fabric: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    wide: table::Wide,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    nodes: &'a [Line],
}

/// A line of the list.
#[derive(Debug, Serialize)]
struct Line {
    fabric: String,
    directory: PathBuf,
    node: NodeRecord,
    /// The node's status, if it answered.
    status: Option<NodeStatus>,
    /// The reason why it did not answer.
    error: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let fabrics = match &arguments.fabric {
        Some(name) => vec![Fabric::existing(name)?],
        None => Fabric::all(),
    };
    let mut lines = Vec::new();
    for fabric in fabrics {
        if let Err(error) = fabric.sweep() {
            eprintln!("toehold: what killed nodes have left stays there: {error:#}");
        }
        lines.extend(fabric.nodes().into_iter().filter_map(|node| line(&fabric, node)));
    }
    if arguments.json {
        json::print("toehold/ps/1", &Listing { nodes: &lines })?;
    } else if lines.is_empty() {
        eprintln!("no node runs; start one with `toehold up NODE`");
    } else {
        show(&lines, arguments.wide)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of the list. `None` if the node has just ended.
fn line(fabric: &Fabric, node: NodeRecord) -> Option<Line> {
    let connection = Connection::open(fabric, node.name.as_str());
    let status = connection.and_then(|connection| connection.timeout(TIMEOUT).status());
    let status = status.map(unaccelerated::with_those_seen);
    let (status, error) = match status {
        Ok(status) => (Some(status), None),
        Err(ControlError::HungUp(_) | ControlError::Unknown { .. }) => return None,
        Err(error) => (None, Some(error.to_string())),
    };
    Some(Line {
        fabric: fabric.name().to_owned(),
        directory: fabric.path().to_owned(),
        node,
        status,
        error,
    })
}

fn show(lines: &[Line], wide: table::Wide) -> std::io::Result<()> {
    let columns = [
        "fabric",
        "node",
        "IPv4",
        "IPv6",
        "placement",
        "device",
        "shards",
        "process",
        "up",
        "programs",
        "connections",
        "peers",
    ];
    let optional = &[
        "IPv6",
        "shards",
        "device",
        "placement",
        "process",
        "peers",
        "connections",
        "up",
        "fabric",
    ];
    let mut table = table::new(&columns, 6).optional(optional).wide(wide);
    for line in lines {
        let of = |say: fn(&NodeStatus) -> String| line.status.as_ref().map_or_else(|| "?".to_owned(), say);
        table.add_row([
            line.fabric.clone(),
            line.node.name.to_string(),
            address(line.node.ipv4),
            address(line.node.ipv6),
            of(placement),
            of(|status| {
                status
                    .stack
                    .kernel
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), ToString::to_string)
            }),
            of(shards),
            line.node.pid.to_string(),
            of(|status| short(status.uptime)),
            of(|status| status.processes.len().to_string()),
            of(|status| status.stack.connections.to_string()),
            of(peers),
        ]);
    }
    writeln!(std::io::stdout(), "{table}")?;
    for line in lines {
        if let Some(error) = &line.error {
            eprintln!("toehold: {error}");
        }
        for remark in line.status.iter().flat_map(unaccelerated::remarks) {
            writeln!(std::io::stdout(), "{}: {remark}", line.node.name)?;
        }
        for warning in line.status.iter().flat_map(uplink_status::warnings) {
            eprintln!("toehold: {}: {warning}", line.node.name);
        }
    }
    Ok(())
}

/// The placement of the stack, if there is one; otherwise the role of the member.
fn placement(status: &NodeStatus) -> String {
    match status.node.role {
        Role::Node => status.stack.placement.to_string(),
        role => format!("({role})"),
    }
}

fn shards(status: &NodeStatus) -> String {
    match status.node.role {
        Role::Node => status.stack.shards.to_string(),
        Role::Device | Role::Uplink => "-".to_owned(),
    }
}

/// The number of reached members of the fabric, and the interface or other hosts of an uplink.
fn peers(status: &NodeStatus) -> String {
    if let Some(interface) = &status.stack.interface {
        let remark = interface.state.remark();
        return format!("{} and {}{remark}", status.stack.peers, interface.name);
    }
    let remotes = &status.stack.remotes;
    if remotes.is_empty() {
        return status.stack.peers.to_string();
    }
    let reached = remotes.iter().filter(|remote| remote.connected).count();
    format!("{} and {reached} of {} hosts", status.stack.peers, remotes.len())
}
