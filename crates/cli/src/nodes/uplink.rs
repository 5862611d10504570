//! `toehold uplink`: joins a fabric with those on other hosts.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::forward::{self, Ends, Hosts, Start};
use super::settings::{Chosen, OfGateways};

/// Joins the fabric with fabrics on other hosts
///
/// Nodes of all of them reach one another then as on one Ethernet; their names and
/// addresses have to differ. Each host has an uplink in its fabric, and names the others'.
/// A host that cannot be reached is tried again for ever; `toehold stat` shows which are.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold uplink wan --udp 0.0.0.0:7005 --peer 192.0.2.2:7005 --key-file /etc/toehold/key
  toehold uplink wan --udp [::]:7005 --peers-file /etc/toehold/hosts
  toehold stat wan
  toehold down wan

Exit status: 0, or 1 if it could not be started.")]
pub(crate) struct Arguments {
    /// Its name in the fabric, different on every host
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    hosts: Hosts,

    #[command(flatten)]
    start: Start,

    #[command(flatten)]
    settings: Chosen<OfGateways>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments {
        name,
        hosts,
        start,
        settings,
    } = arguments;
    if hosts.udp.is_none() {
        bail!("where does this host listen for the others? give --udp ADDRESS:PORT, such as 0.0.0.0:7005");
    }
    let ends = Ends {
        interface: None,
        netns: None,
        bridged: false,
        hosts,
    };
    forward::start(start, &name, &ends, settings.settings)
}
