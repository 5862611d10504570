//! The ends that an engine process of an uplink or a device joins, on its command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use toehold_link::ivshmem::IvshmemSettings;
use toehold_node::settings::parse_bytes;
use toehold_node::uplink::{EthernetEnd, SegmentEnd, TapEnd, UplinkConfig};

use super::access::Access;
use super::udp_hosts::Hosts;

/// The ends to join, as passed to the engine process.
#[derive(Debug, clap::Args)]
pub(super) struct Ends {
    #[arg(long)]
    pub(super) interface: Option<String>,

    #[arg(long)]
    pub(super) netns: Option<String>,

    #[arg(long)]
    pub(super) bridged: bool,

    /// Queues of the created interface.
    #[arg(long, default_value_t = 1)]
    pub(super) tap_queues: u8,

    /// An existing interface.
    #[arg(long)]
    pub(super) ethernet: Option<String>,

    #[command(flatten)]
    pub(super) access: Access,

    #[command(flatten)]
    pub(super) hosts: Hosts,

    #[command(flatten)]
    pub(super) memory: Memory,
}

/// Memory that other machines map, on the command line.
#[derive(Debug, clap::Args)]
pub(super) struct Memory {
    /// Memory that other machines or processes map: a file, an object in /dev/shm, a DAX device, or
    /// the memory of an ivshmem PCI device (/sys/bus/pci/devices/…/resource2). Every process that
    /// can write it is trusted with the traffic
    #[arg(long, value_name = "PATH", conflicts_with = "udp")]
    pub(super) segment: Option<PathBuf>,

    /// Create a file of this many bytes if there is none; with K, M or G as a suffix
    #[arg(long, value_name = "BYTES", requires = "segment", value_parser = bytes)]
    pub(super) segment_size: Option<u64>,

    /// Members of a fresh segment, from 2 to 64; an existing segment keeps its number
    #[arg(long, value_name = "MEMBERS", requires = "segment", default_value_t = IvshmemSettings::DEFAULT_MEMBERS)]
    pub(super) segment_members: usize,

    /// The member to be, counted from 0 [default: a free one]
    #[arg(long, value_name = "NUMBER", requires = "segment")]
    pub(super) member: Option<usize>,
}

impl Ends {
    /// The ends of an uplink to the network of an interface.
    pub(super) fn onto(interface: &str) -> Self {
        Self {
            interface: None,
            netns: None,
            bridged: false,
            tap_queues: 1,
            ethernet: Some(interface.to_owned()),
            access: Access::default(),
            hosts: Hosts::default(),
            memory: Memory {
                segment: None,
                segment_size: None,
                segment_members: IvshmemSettings::DEFAULT_MEMBERS,
                member: None,
            },
        }
    }

    /// The configuration, with files read and names resolved.
    pub(super) fn config(&self) -> Result<UplinkConfig> {
        Ok(UplinkConfig {
            tap: self.interface.as_ref().map(|interface| TapEnd {
                interface: interface.clone(),
                namespace: self.netns.as_deref().map(namespace),
                bridged: self.bridged,
                queues: self.tap_queues,
            }),
            udp: self.hosts.end()?,
            ethernet: self.ethernet.as_ref().map(|interface| EthernetEnd {
                interface: interface.clone(),
                namespace: self.netns.as_deref().map(namespace),
                access: self.access.xdp.into(),
                queues: self.access.queues,
            }),
            segment: self.memory.end()?,
        })
    }

    /// The arguments of the engine process, the command's name first.
    pub(super) fn arguments(&self, command: &str) -> Vec<OsString> {
        let mut arguments = vec![command.into()];
        let mut add = |name: &str, value: &std::ffi::OsStr| {
            arguments.extend([OsString::from(name), value.to_owned()]);
        };
        if let Some(interface) = &self.interface {
            add("--interface", interface.as_ref());
            add("--tap-queues", self.tap_queues.to_string().as_ref());
        }
        if let Some(interface) = &self.ethernet {
            add("--ethernet", interface.as_ref());
            add("--xdp", self.access.xdp.name().as_ref());
            if let Some(queues) = self.access.queues {
                add("--queues", queues.to_string().as_ref());
            }
        }
        if let Some(netns) = &self.netns {
            add("--netns", netns.as_ref());
        }
        if let Some(udp) = self.hosts.udp {
            add("--udp", udp.to_string().as_ref());
        }
        for peer in &self.hosts.peer {
            add("--peer", peer.as_ref());
        }
        if let Some(file) = &self.hosts.peers_file {
            add("--peers-file", file.as_ref());
        }
        if let Some(file) = &self.hosts.key_file {
            add("--key-file", file.as_ref());
        }
        if let Some(segment) = &self.memory.segment {
            add("--segment", segment.as_ref());
            add(
                "--segment-members",
                self.memory.segment_members.to_string().as_ref(),
            );
        }
        if let Some(size) = self.memory.segment_size {
            add("--segment-size", size.to_string().as_ref());
        }
        if let Some(member) = self.memory.member {
            add("--member", member.to_string().as_ref());
        }
        if self.bridged {
            arguments.push("--bridged".into());
        }
        arguments
    }
}

impl Memory {
    fn end(&self) -> Result<Option<SegmentEnd>> {
        let Some(segment) = &self.segment else {
            return Ok(None);
        };
        Ok(Some(SegmentEnd {
            // The engine process may have another working directory.
            path: std::path::absolute(segment)?,
            size: self.segment_size,
            members: self.segment_members,
            member: self.member,
        }))
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).filter(|&bytes| bytes != 0);
    bytes.ok_or_else(|| "choose a number of bytes, such as 16M".to_owned())
}

/// A namespace's file, by its name or path.
fn namespace(name: &str) -> PathBuf {
    match name.contains('/') {
        true => name.into(),
        false => Path::new("/run/netns").join(name),
    }
}
