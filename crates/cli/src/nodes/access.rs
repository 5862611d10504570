//! Access to frames of a kernel interface, as chosen on the command line.

use clap::ValueEnum;
use toehold_node::uplink;

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Access {
    /// Access to the frames of the interface
    #[arg(long, value_name = "HOW", default_value = "best", conflicts_with = "udp")]
    pub(super) xdp: Xdp,

    /// Number of the interface's queues that use AF_XDP, from the first one on. Other queues use a
    /// packet socket, as with --xdp off [default: all, 16 at most]
    #[arg(long, value_name = "NUMBER", conflicts_with = "udp",
        value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(super) queues: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(super) enum Xdp {
    /// Zero-copy if possible, otherwise off: with copies, streams are faster over a packet socket
    #[default]
    Best,
    /// AF_XDP, if the interface reads and writes frames in place
    ZeroCopy,
    /// AF_XDP, if its driver copies frames
    Copy,
    /// AF_XDP with copies by the kernel, for any driver
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
