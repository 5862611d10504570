//! `toehold device`: a kernel interface on a fabric, or connected directly to other hosts or
//! machines.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::NonEmptyStringValueParser;

use super::access::Access;
use super::bridge_args::{Ends, Memory};
use super::bridge_engine::{self, Start};
use super::settings::{Chosen, OfDevices};
use super::udp_hosts::Hosts;

/// Create a kernel interface, on the fabric or connected directly to other hosts
///
/// Without --udp and --segment the interface is a member of the fabric: the kernel's programs and
/// the fabric's nodes reach one another. With --udp it leads to the same interface on other hosts.
/// With --segment it leads to those in other machines that map the same memory. In both cases it
/// does not lead to the fabric, which only gives it its name and addresses. It lasts until `toehold
/// down`. The command needs CAP_NET_ADMIN.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold device toe0
  toehold device toe0 --ipv4 10.77.9.1/16 --netns blue
  toehold device toe0 --queues 4
  toehold device toe0 --udp 0.0.0.0:7006 --peer 192.0.2.2:7006 --ipv4 10.78.0.1/24
  toehold device toe0 --segment /sys/bus/pci/devices/0000:00:04.0/resource2 --ipv4 10.79.0.1/24
  toehold device toe0 --udp 0.0.0.0:7006 --peer 192.0.2.2:7006 --queues 4
  toehold device toe0 --bridged && ip link set toe0 master br0
  toehold down toe0

Exit status: 0, or 1 if it could not be started.")]
pub(crate) struct Arguments {
    /// The interface's name, which is also its name in the fabric
    #[arg(value_name = "INTERFACE")]
    interface: String,

    /// The network namespace for it: a name of `ip netns`, or a file
    #[arg(long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    netns: Option<String>,

    /// The interface is a port of a bridge, with other hosts behind it. It has no address, and is a
    /// gateway of the fabric. Several such ports pass all frames between them, so that their
    /// bridges form one network. If there is another path, use a spanning tree
    #[arg(long)]
    bridged: bool,

    /// Queues of the interface, each served by a thread of its own; flows are distributed among
    /// them. With --udp each queue has a port, from the given one on. With --segment each has a
    /// part of the memory. All ends must then have the same number
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=16))]
    queues: u8,

    #[command(flatten)]
    hosts: Hosts,

    #[command(flatten)]
    memory: Memory,

    #[command(flatten)]
    start: Start,

    #[command(flatten)]
    settings: Chosen<OfDevices>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let ends = Ends {
        interface: Some(arguments.interface.clone()),
        ethernet: None,
        access: Access::default(),
        netns: arguments.netns,
        bridged: arguments.bridged,
        tap_queues: arguments.queues,
        hosts: arguments.hosts,
        memory: arguments.memory,
    };
    bridge_engine::start(
        arguments.start,
        &arguments.interface,
        &ends,
        arguments.settings.settings,
    )
}
