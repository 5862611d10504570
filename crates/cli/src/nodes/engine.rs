//! The hidden command that runs a node's engine process.

use std::process::ExitCode;

use anyhow::Result;
use ipnet::IpNet;
use toehold_node::engine::{self, Lifetime, Seat};
use toehold_node::fabric::Fabric;
use toehold_node::kernel;

/// The node that an engine process serves.
pub(super) use toehold_node::engine::StackHost as Node;

use super::Within;
use super::settings::Settings;

/// The command's name on the command line.
pub(crate) const NAME: &str = "engine";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    node: String,

    #[command(flatten)]
    within: Within,

    #[arg(long)]
    network: Vec<IpNet>,

    /// End when no process uses the node any more.
    #[arg(long)]
    while_used: bool,

    /// Standard input is the node's end of its first keeper; the inode of the other end.
    #[arg(long)]
    kept: Option<u64>,

    /// Create a network namespace first.
    #[arg(long)]
    own_network: bool,

    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let seat = || {
        if arguments.own_network {
            kernel::enter_own_network()?;
        }
        let lifetime = match arguments.while_used {
            true => Lifetime::WhileUsed,
            false => Lifetime::UntilTold,
        };
        Ok(Seat {
            fabric: Fabric::open(&arguments.within.fabric)?,
            node: arguments.node,
            settings: arguments.settings.0,
            networks: arguments.network,
            lifetime,
        })
    };
    Ok(engine::main(arguments.kept, seat, Node::host))
}
