//! How frames are taken from an interface of the kernel, as the command line says it.

use clap::ValueEnum;
use toehold_node::uplink;

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Access {
    /// How frames are taken from the interface
    #[arg(long, value_name = "HOW", default_value = "best", conflicts_with = "udp")]
    pub(super) xdp: Xdp,

    /// Queues of the interface that AF_XDP is used for, from the first one on; what comes to
    /// others takes the way of --xdp off [default: all, 16 at most]
    #[arg(long, value_name = "NUMBER", conflicts_with = "udp",
        value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(super) queues: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(super) enum Xdp {
    /// As zero-copy, or else as off: with copies, streams are faster over a packet socket
    #[default]
    Best,
    /// AF_XDP, where the interface reads and writes frames where they lie
    ZeroCopy,
    /// AF_XDP, where its driver copies them
    Copy,
    /// AF_XDP, where the kernel copies them, whatever the driver
    Generic,
    /// A packet socket
    Off,
}

impl Xdp {
    pub(super) fn name(self) -> &'static str {
        match self {
            Xdp::Best => "best",
            Xdp::ZeroCopy => "zero-copy",
            Xdp::Copy => "copy",
            Xdp::Generic => "generic",
            Xdp::Off => "off",
        }
    }
}

impl From<Xdp> for uplink::Access {
    fn from(xdp: Xdp) -> uplink::Access {
        match xdp {
            Xdp::Best => uplink::Access::Best,
            Xdp::ZeroCopy => uplink::Access::ZeroCopy,
            Xdp::Copy => uplink::Access::Copy,
            Xdp::Generic => uplink::Access::Generic,
            Xdp::Off => uplink::Access::Packet,
        }
    }
}
