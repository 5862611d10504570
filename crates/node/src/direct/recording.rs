//! Captures of direct connections: an end's segments become frames on the node's tape.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use toehold_link::capture::SharedTap;
use toehold_shm::direct::{ControlFlag, SegmentRecorder, StreamSegment, ThreadNumber};
use toehold_wire::tcp::{Flags, Options, Seq, set_checksum};
use toehold_wire::{Mac, checksum, ethernet, ipv4, ipv6, protocol, tcp};

use super::table::{Entry, OWN};
use crate::clock;

/// What the first segments say of the largest that may come: what fits in a packet of IPv4.
const MOST_SEGMENT: u16 = 65_495;

/// The window of every segment, and its shift: a gigabyte. Direct connections have no such bound.
const WINDOW: (u16, u8) = (u16::MAX, 14);

const MOST_HEADERS: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + tcp::MAX_HEADER_LEN;

/// The tape of a node's direct connections.
#[derive(Debug, Clone)]
pub(crate) struct DirectTape {
    pub(crate) tap: Arc<SharedTap>,
    /// The node's hardware address.
    pub(crate) mac: [u8; 6],
}

/// Records for the ends of one bank.
pub(super) struct BankRecorder {
    tape: DirectTape,
    peer_mac: [u8; 6],
    is_own: bool,
}

impl BankRecorder {
    pub(super) fn new(tape: DirectTape, entry: &Entry) -> BankRecorder {
        BankRecorder {
            tape,
            peer_mac: entry.addresses.mac,
            is_own: OWN.contains(&entry.slot),
        }
    }
}

impl SegmentRecorder for BankRecorder {
    #[inline]
    fn is_on(&self) -> bool {
        self.tape.tap.is_open()
    }

    fn records_peer(&self) -> bool {
        !self.is_own
    }

    fn record(&self, thread: ThreadNumber, segment: &StreamSegment<'_>) {
        let mut macs = [self.tape.mac, self.peer_mac];
        let mut ends = [segment.local, segment.remote];
        if !segment.is_sent {
            macs.reverse();
            ends.reverse();
        }
        let mut headers = [0; MOST_HEADERS];
        let len = emit(&mut headers, macs, ends, segment);
        let frame = (&headers[..len], segment.payload);
        let tap = &self.tape.tap;
        tap.record(thread.get().into(), clock::now().0, segment.is_sent, frame);
    }
}

/// Writes the headers of a segment from one end to the other, and returns their length.
fn emit(headers: &mut [u8], macs: [[u8; 6]; 2], ends: [SocketAddr; 2], segment: &StreamSegment<'_>) -> usize {
    let [from, to] = ends;
    let is_first = segment.control == ControlFlag::Open;
    let options = Options {
        mss: is_first.then_some(MOST_SEGMENT),
        window_scale: is_first.then_some(WINDOW.1),
        ..Options::NONE
    };
    let header = tcp::Header {
        src_port: from.port(),
        dst_port: to.port(),
        seq: Seq(segment.sequence),
        ack: Seq(segment.acknowledgement.unwrap_or(0)),
        flags: flags(segment),
        window: WINDOW.0,
        urgent: 0,
        options,
    };
    let transport_len = (header.len() + segment.payload.len()) as u16;
    let (ethertype, at) = match (from.ip(), to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let packet = ipv4::Header {
                protocol: protocol::TCP,
                payload_len: transport_len,
                ..ipv4::Header::new(src, dst)
            };
            let len = packet.emit(&mut headers[ethernet::HEADER_LEN..]);
            (ethernet::EtherType::IPV4, ethernet::HEADER_LEN + len)
        }
        (src, dst) => {
            let packet = ipv6::Header {
                next_header: protocol::TCP,
                payload_len: transport_len,
                ..ipv6::Header::new(to_v6(src), to_v6(dst))
            };
            let len = packet.emit(&mut headers[ethernet::HEADER_LEN..]);
            (ethernet::EtherType::IPV6, ethernet::HEADER_LEN + len)
        }
    };
    let frame = ethernet::Header {
        dst: Mac(macs[1]),
        src: Mac(macs[0]),
        vlan: None,
        ethertype,
    };
    frame.emit(headers);
    let len = header.emit(&mut headers[at..]);
    let pseudo = checksum::pseudo_header(from.ip(), to.ip(), protocol::TCP, transport_len.into());
    set_checksum(&mut headers[at..at + len], pseudo, checksum::sum(segment.payload));
    at + len
}

fn to_v6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn flags(segment: &StreamSegment<'_>) -> Flags {
    let acknowledges = match segment.acknowledgement {
        Some(_) => Flags::ACK,
        None => Flags::NONE,
    };
    let data = match segment.payload {
        [] => Flags::NONE,
        _ => Flags::PSH,
    };
    let control = match segment.control {
        ControlFlag::None => Flags::NONE,
        ControlFlag::Open => Flags::SYN,
        ControlFlag::End => Flags::FIN,
        ControlFlag::Reset => Flags::RST,
    };
    acknowledges | data | control
}
