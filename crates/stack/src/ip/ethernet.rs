//! Entry of frames: checks the Ethernet header and passes the contents on.

use super::headers::EthernetTail;
use super::{Ingress, Ip, TcpPacket};
use crate::config::Config;
use crate::counters::Counters;
use crate::time::Instant;
use crate::tuple::Address;
use toehold_link::Received;
use toehold_link::steering::Flow;
use toehold_wire::Mac;
use toehold_wire::ethernet::{EtherType, Frame};

/// Bytes of the headers this stack writes.
pub(super) const HEADER_LEN: usize = toehold_wire::ethernet::HEADER_LEN;

/// The layout of frames on the link. Fixed when the stack is created.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkShape {
    /// Largest IP packet in a plain frame, in bytes.
    pub(super) mtu: u16,
    /// Largest IP packet in a super-frame, in bytes.
    pub(super) super_frame: u16,
    /// Whether frames begin with an Ethernet header.
    pub(super) ethernet: bool,
    /// Where the IP header begins in frames that this stack sends.
    pub(super) header_len: usize,
    /// This stack's hardware address as the low bytes of a number.
    pub(super) own_front: u64,
    pub(super) tail: EthernetTail,
}

impl LinkShape {
    pub(super) fn new(config: &Config) -> Self {
        let mtu = config.link.mtu;
        Self {
            mtu,
            //= RFC 791 §3.1
            super_frame: u16::try_from(config.link.super_frame)
                .unwrap_or(u16::MAX)
                .max(mtu),
            ethernet: config.ethernet,
            header_len: if config.ethernet { HEADER_LEN } else { 0 },
            own_front: config
                .mac
                .iter()
                .rev()
                .fold(0, |front, byte| front << 8 | u64::from(*byte)),
            tail: EthernetTail::new(config.mac),
        }
    }
}

/// A frame whose Ethernet header has been read.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) now: Instant,
    pub(super) frame: &'a Received<'a>,
    /// Offset of the Ethernet payload.
    pub(super) start: usize,
    /// Whether the frame also went to other nodes.
    pub(super) to_group: bool,
}

impl<'a> Arrival<'a> {
    /// Private bytes behind the Ethernet header.
    pub(super) fn private(&self) -> &'a [u8] {
        self.frame.private.get(self.start..).unwrap_or(&[])
    }

    /// All bytes behind the Ethernet header, padding included.
    pub(super) fn len(&self) -> usize {
        self.frame.len().saturating_sub(self.start)
    }

    /// The frame in one piece.
    #[cold]
    pub(super) fn whole(&self) -> Box<[u8]> {
        let private = self.frame.private;
        let mut whole = vec![0; self.frame.len()];
        whole[..private.len()].copy_from_slice(private);
        self.frame.rest.copy_to(0, &mut whole[private.len()..]);
        whole.into()
    }

    /// Copies the Ethernet payload, as much as fits, and returns the number of bytes copied.
    pub(super) fn copy_to(&self, into: &mut [u8]) -> usize {
        let private = self.private();
        let head = private.len().min(into.len());
        into[..head].copy_from_slice(&private[..head]);
        head + self.frame.rest.copy_to(0, &mut into[head..])
    }
}

impl Ip {
    /// Handles any frame, step by step, and counts the reason for a drop.
    #[inline(never)]
    pub(super) fn receive_any<'a>(
        &mut self,
        now: Instant,
        frame: &'a Received<'a>,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        let mut arrival = Arrival {
            now,
            frame,
            start: 0,
            to_group: false,
        };
        if self.steering.count > 1 {
            let flow = Flow::of_frame(frame.private);
            self.answers = flow.map_or(self.speaks, |flow| self.steering.is_own(&flow));
        }
        if !self.link.ethernet {
            return match frame.private.first().map(|byte| byte >> 4) {
                Some(4) => self.receive_ipv4(&arrival, counters),
                Some(6) => self.receive_ipv6(&arrival, counters),
                _ => dropped(&mut counters.drop_malformed),
            };
        }
        let Ok(header) = Frame::new(frame.private) else {
            return dropped(&mut counters.drop_malformed);
        };
        // A tag may tell a priority; this stack is on no VLAN.
        let other_vlan = header.vlan().is_some_and(|tag| tag.vlan() != 0);
        if header.dst() != Mac(self.own.mac) && !header.dst().is_multicast() {
            return dropped(&mut counters.drop_other_host);
        }
        if other_vlan {
            return self.elsewhere(counters, |counters| &mut counters.drop_other_host);
        }
        if header.src().is_multicast() {
            return dropped(&mut counters.drop_bad_source);
        }
        arrival.start = header.header_len();
        arrival.to_group = header.dst().is_multicast();
        match header.ethertype() {
            EtherType::IPV4 => self.receive_ipv4(&arrival, counters),
            EtherType::IPV6 => self.receive_ipv6(&arrival, counters),
            EtherType::ARP => {
                let taken = self.receive_arp(&arrival, counters);
                self.for_both(taken)
            }
            _ => self.elsewhere(counters, |counters| &mut counters.drop_ethertype),
        }
    }
}

/// Counts a drop.
#[inline]
pub(super) fn dropped<'a>(counter: &mut u64) -> Ingress<'a> {
    *counter += 1;
    Ingress::Done
}

/// A TCP segment of `len` bytes that begins at byte `start` of the frame.
#[inline]
pub(super) fn tcp_packet<'a>(
    frame: &'a Received<'a>,
    start: usize,
    len: usize,
    ends: (Address, Address),
    (ecn, hops): (u8, u8),
) -> TcpPacket<'a> {
    let private = frame.private.get(start..).unwrap_or(&[]);
    let header = private.get(..len).unwrap_or(private);
    TcpPacket {
        source: ends.0,
        destination: ends.1,
        ecn,
        hops,
        header,
        rest: &frame.rest,
        transport_len: len,
        offload: frame.offload,
    }
}
