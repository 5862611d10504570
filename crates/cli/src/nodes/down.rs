//! `toehold down`: ends nodes.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use toehold_node::control::Connection;
use toehold_node::fabric::Fabric;

use super::{Within, span};

/// End nodes
///
/// Data that programs have written and closed are delivered first, within the time of the setting
/// `drain`. All other connections are reset.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold down web
  toehold down --fabric lab --all

Exit status: 0, or 1 if a node could not be ended.")]
pub(crate) struct Arguments {
    /// Names of the nodes
    #[arg(value_name = "NODE", required_unless_present = "all")]
    nodes: Vec<String>,

    #[command(flatten)]
    within: Within,

    /// All nodes of the fabric
    #[arg(long, conflicts_with = "nodes")]
    all: bool,

    /// Time to wait for the end of each node
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = span)]
    wait: Duration,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let fabric = arguments.within.existing()?;
    let all = || fabric.nodes().iter().map(|node| node.name.to_string()).collect();
    let nodes: Vec<String> = if arguments.all {
        all()
    } else {
        arguments.nodes.clone()
    };
    let mut status = ExitCode::SUCCESS;
    for node in &nodes {
        if let Err(error) = end(&fabric, node, arguments.wait) {
            eprintln!("toehold: {error:#}");
            status = ExitCode::FAILURE;
        }
    }
    if arguments.all {
        // Nodes started in the meantime stay.
        fabric.remove_if_empty()?;
    }
    Ok(status)
}

fn end(fabric: &Fabric, node: &str, wait: Duration) -> Result<()> {
    Ok(Connection::open(fabric, node)?.down(wait)?)
}
