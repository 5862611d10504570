//! What the IP layer hands up, one per received frame.

use crate::tuple::{Address, FourTuple};
use toehold_link::Offload;
use toehold_shm::Gather;
use toehold_wire::tcp::Seq;

/// What came of a received frame.
#[derive(Debug)]
pub(crate) enum Ingress<'a> {
    /// A TCP segment for one of this stack's addresses.
    Tcp(TcpPacket<'a>),
    /// An ICMP error about a TCP segment this stack may have sent.
    IcmpError(IcmpError),
    /// The frame completed a fragmented datagram. The bytes are a whole frame
    /// in private memory, to be given to the same receive function that
    /// returned this. It never comes back as `Reassembled` again.
    Reassembled(Box<[u8]>),
    /// The frame in one piece of private memory, because its headers went on behind the private
    /// bytes. To be given to the same receive function; it never comes back as `Whole` again.
    Whole(Box<[u8]>),
    /// For the kernel's stack, which has the same addresses, or for that as well.
    Kernel,
    /// Consumed, answered or dropped; whatever had to be counted has been.
    Done,
}

/// A TCP segment, or a super-frame of several, with its IP header checked.
///
/// The TCP checksum has not been verified.
#[derive(Debug)]
pub(crate) struct TcpPacket<'a> {
    /// The sender: a unicast address that is not one of this stack's.
    pub(crate) source: Address,
    /// The one of this stack's addresses the segment was sent to; never a
    /// multicast or broadcast address.
    pub(crate) destination: Address,
    /// The ECN field of the IP header (RFC 3168 §5): 0 Not-ECT, 1 ECT(1),
    /// 2 ECT(0), 3 CE.
    pub(crate) ecn: u8,
    /// The hops that the packet had left: the TTL, or the hop limit.
    pub(crate) hops: u8,
    /// Private bytes from the TCP header on, without Ethernet padding. May be
    /// shorter than a TCP header.
    pub(crate) header: &'a [u8],
    /// What follows `header`, possibly in memory that the sender can write, and
    /// possibly with padding behind it: `transport_len` says where it ends.
    pub(crate) rest: &'a Gather<'a>,
    /// Bytes of TCP header and payload: of `header` and `rest` together.
    pub(crate) transport_len: usize,
    /// What the link knows of the frame.
    pub(crate) offload: Offload,
}

/// An ICMP error that quotes a TCP segment from one of this stack's addresses.
///
/// Anybody can forge one: the receiver has to check [`IcmpError::seq`] against
/// what is outstanding (RFC 5927 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IcmpError {
    /// The connection, seen from this stack.
    pub(crate) tuple: FourTuple,
    /// Sequence number of the quoted segment.
    pub(crate) seq: Seq,
    /// What happened to it.
    pub(crate) kind: IcmpErrorKind,
    /// The message itself.
    pub(crate) origin: IcmpOrigin,
}

/// An ICMP error as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IcmpOrigin {
    /// The sender of the message: any host on the way.
    pub(crate) from: Address,
    /// The message's type.
    pub(crate) kind: u8,
    /// The message's code.
    pub(crate) code: u8,
}

/// Kinds of ICMP errors TCP hears of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IcmpErrorKind {
    /// IPv4 "fragmentation needed and DF set" (RFC 1191) or IPv6 "packet too
    /// big" (RFC 8201). If the segment was outstanding, TCP calls
    /// [`update_path_mtu`](super::Ip::update_path_mtu).
    FragmentationNeeded {
        /// Largest IP packet the next hop takes, in bytes; below the quoted
        /// packet's length, and no less than any path takes.
        mtu: u16,
    },
    /// No route to the network: a soft error (RFC 1122 §4.2.3.9).
    NetUnreachable,
    /// The host does not answer its router: a soft error.
    HostUnreachable,
    /// The network is there, and refuses what was sent (IPv4).
    NetRefused,
    /// The host is there, and it or a router on the way refuses what was sent (IPv4).
    HostRefused,
    /// The router knows of no such host.
    HostUnknown,
    /// The host that sent the segment is cut off.
    HostIsolated,
    /// A source route failed.
    SourceRouteFailed,
    /// The host does not speak TCP: a hard error.
    ProtocolUnreachable,
    /// The host sends ICMP where RFC 9293 has it send RST: a hard error.
    PortUnreachable,
    /// Forbidden by a filter, over IPv6: a hard error while connecting.
    Prohibited,
    /// A reason that is not known here (IPv6).
    Unknown,
    /// The hop limit or the time for reassembly ran out: a soft error.
    TimeExceeded,
    /// A field of the header makes no sense to the receiver.
    ParameterProblem,
}
