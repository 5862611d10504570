//! Results of the IP layer for received frames, one for each.

use crate::tuple::{Address, FourTuple};
use toehold_link::Offload;
use toehold_shm::Gather;
use toehold_wire::tcp::Seq;

/// The result of a received frame.
#[derive(Debug)]
pub(crate) enum Ingress<'a> {
    /// A TCP segment for one of this stack's addresses.
    Tcp(TcpPacket<'a>),
    /// An ICMP error about a TCP segment this stack may have sent.
    IcmpError(IcmpError),
    /// The frame completed a fragmented datagram. The bytes are a whole frame in private memory.
    /// The caller passes them to the receive function that returned this value. The result is never
    /// `Reassembled` again.
    Reassembled(Box<[u8]>),
    /// The frame in one piece of private memory, because its headers exceeded the private bytes.
    /// The caller passes it to the same receive function. The result is never `Whole` again.
    Whole(Box<[u8]>),
    /// The frame is for the kernel's stack, which has the same addresses, or for both stacks.
    Kernel,
    /// The frame was consumed, answered or dropped, and all counters are updated.
    Done,
}

/// A TCP segment, or a super-frame of several, with its IP header checked.
///
/// The TCP checksum has not been verified.
#[derive(Debug)]
pub(crate) struct TcpPacket<'a> {
    /// The sender: a unicast address that is not one of this stack's.
    pub(crate) source: Address,
    /// The address of this stack to which the segment was sent; never a multicast or broadcast
    /// address.
    pub(crate) destination: Address,
    /// The ECN field of the IP header (RFC 3168 §5): 0 Not-ECT, 1 ECT(1),
    /// 2 ECT(0), 3 CE.
    pub(crate) ecn: u8,
    /// The hops that the packet had left: the TTL, or the hop limit.
    pub(crate) hops: u8,
    /// Private bytes from the TCP header on, without Ethernet padding. May be
    /// shorter than a TCP header.
    pub(crate) header: &'a [u8],
    /// The bytes behind `header`, possibly in memory that the sender can write, and possibly with
    /// padding at the end. `transport_len` tells where the segment ends.
    pub(crate) rest: &'a Gather<'a>,
    /// Bytes of TCP header and payload: of `header` and `rest` together.
    pub(crate) transport_len: usize,
    /// The link's knowledge of the frame.
    pub(crate) offload: Offload,
}

/// An ICMP error that quotes a TCP segment from one of this stack's addresses.
///
/// Any host can forge one: the receiver must check [`IcmpError::seq`] against the outstanding data
/// (RFC 5927 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IcmpError {
    /// The connection, seen from this stack.
    pub(crate) tuple: FourTuple,
    /// Sequence number of the quoted segment.
    pub(crate) seq: Seq,
    /// The kind of error.
    pub(crate) kind: IcmpErrorKind,
    /// The message itself.
    pub(crate) origin: IcmpOrigin,
}

/// Source and type of an ICMP error, unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IcmpOrigin {
    /// The sender of the message: any host on the way.
    pub(crate) from: Address,
    /// The message's type.
    pub(crate) kind: u8,
    /// The message's code.
    pub(crate) code: u8,
}

/// Kinds of ICMP errors that TCP handles.
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
    /// The network exists and refuses the packet (IPv4).
    NetRefused,
    /// The host exists, and it or a router refuses the packet (IPv4).
    HostRefused,
    /// The router knows no such host.
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
    /// An unknown reason (IPv6).
    Unknown,
    /// The hop limit or the time for reassembly ran out: a soft error.
    TimeExceeded,
    /// The receiver found an invalid header field.
    ParameterProblem,
}
