//! The hidden command that is a node's engine process.

use std::process::ExitCode;

use anyhow::Result;
use ipnet::IpNet;
use toehold_node::engine::{self, Seat};
use toehold_node::fabric::Fabric;

/// What makes the node that an engine process serves.
pub(super) use toehold_node::engine::StackHost as Node;

use super::Within;
use super::settings::Settings;

/// Its name on the command line.
pub(crate) const NAME: &str = "engine";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    node: String,

    #[command(flatten)]
    within: Within,

    #[arg(long)]
    network: Vec<IpNet>,

    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let seat = || {
        Ok(Seat {
            fabric: Fabric::open(&arguments.within.fabric)?,
            node: arguments.node,
            settings: arguments.settings.0,
            networks: arguments.network,
        })
    };
    Ok(engine::main(seat, Node::host))
}
