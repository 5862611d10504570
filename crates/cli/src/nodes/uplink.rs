//! `toehold uplink`: joins a fabric with fabrics on other hosts or in other machines, or with an
//! Ethernet.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::builder::NonEmptyStringValueParser;

use super::access::Access;
use super::bridge_args::{Ends, Memory};
use super::bridge_engine::{self, Start};
use super::settings::{Chosen, OfGateways};
use super::udp_hosts::Hosts;

/// Join the fabric with other fabrics, or with an Ethernet
///
/// With --udp, nodes of all hosts reach one another as on one Ethernet. Each host has an uplink in
/// its fabric, under a name of its own, and names the others'. An unreachable host is retried
/// forever. Uplinks exchange the members of their fabrics: a new node cannot take the name or
/// address of a node on another host. `toehold ps` and `toehold stat` report conflicts between older
/// nodes.
///
/// With --segment, the fabrics are joined through memory that virtual machines and their host, or
/// several hosts, map.
///
/// With --interface, the nodes join the network of that interface, real or virtual, under their own
/// hardware and IP addresses. Give them addresses of that network. The interface keeps its
/// addresses, and the kernel all traffic that is not for the nodes. The nodes and the kernel do not
/// reach each other over it. A node cannot have an address that is in use on that network. The
/// command needs CAP_NET_RAW and CAP_NET_ADMIN.
///
/// `toehold stat` shows the hosts that an uplink reaches and how, and its drops.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold uplink wan --udp 0.0.0.0:7005 --peer 192.0.2.2:7005 --key-file /etc/toehold/key
  toehold uplink wan --udp [::]:7005 --peers-file /etc/toehold/hosts
  toehold up web --ipv4 192.0.2.50/24 && toehold uplink lan --interface eth0
  toehold uplink vms --segment /dev/shm/toehold --segment-size 64M --segment-members 4
  toehold stat wan
  toehold down wan

Exit status: 0, or 1 if it could not be started.")]
pub(crate) struct Arguments {
    /// Name in the fabric, different on every host
    #[arg(value_name = "NAME")]
    name: String,

    /// A kernel network interface that carries Ethernet frames and is up
    #[arg(long, value_name = "INTERFACE", conflicts_with = "udp")]
    interface: Option<String>,

    /// The network namespace of the interface: a name of `ip netns`, or a file
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "udp", value_parser = NonEmptyStringValueParser::new())]
    netns: Option<String>,

    #[command(flatten)]
    access: Access,

    #[command(flatten)]
    hosts: Hosts,

    #[command(flatten)]
    memory: Memory,

    #[command(flatten)]
    start: Start,

    #[command(flatten)]
    settings: Chosen<OfGateways>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments {
        name,
        interface,
        netns,
        access,
        hosts,
        memory,
        start,
        settings,
    } = arguments;
    if hosts.udp.is_none() && interface.is_none() && memory.segment.is_none() {
        bail!(
            "where does it lead? give --udp ADDRESS:PORT, such as 0.0.0.0:7005, where this host listens for \
             others, --interface NAME, or --segment PATH"
        );
    }
    let ends = Ends {
        interface: None,
        ethernet: interface,
        access,
        netns,
        bridged: false,
        tap_queues: 1,
        hosts,
        memory,
    };
    bridge_engine::start(start, &name, &ends, settings.settings)
}
