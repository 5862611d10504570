//! `toehold placement`: changes which process runs a node's stack.

use std::process::ExitCode;

use anyhow::Result;
use toehold_node::Placement;

use super::Within;

/// Change which process runs a node's stack, while traffic flows
///
/// inline: the programs' threads, during their calls. engine: the engine process. adaptive: the
/// programs' threads while any is in a call, and the engine process otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold placement web engine
  toehold placement --fabric lab web adaptive")]
pub(crate) struct Arguments {
    /// Name of the node
    node: String,

    /// inline, engine or adaptive
    placement: Placement,

    #[command(flatten)]
    within: Within,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut node = arguments.within.connect(&arguments.node)?;
    node.set_placement(arguments.placement)?;
    Ok(ExitCode::SUCCESS)
}
