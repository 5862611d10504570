//! Neighbour discovery: address resolution for IPv6. The stack learns nothing from routers: they
//! are settings.

use super::addresses::{self, ALL_NODES};
use super::egress::Message as Outgoing;
use super::ethernet::{Arrival, dropped};
use super::neighbor::{Evidence, Question};
use super::{Ingress, Ip};
use crate::counters::Counters;
use core::net::{IpAddr, Ipv6Addr};
use toehold_wire::icmpv6::View;
use toehold_wire::ndisc::{Delivery, HOP_LIMIT, MAX_LEN, Message, solicited_node};
use toehold_wire::{Mac, ethernet, ipv6, protocol};

/// Bytes of the longest frame that asks for a hardware address.
pub(super) const MAX_QUESTION: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + MAX_LEN;

impl Ip {
    /// Handles a message whose checksum has been verified.
    pub(super) fn receive_discovery<'a>(
        &mut self,
        arrival: &Arrival<'_>,
        view: &View<'_>,
        delivery: &Delivery,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        match Message::parse(view, delivery) {
            Ok(Message::NeighborSolicitation { target, source_link }) => {
                self.receive_solicitation(arrival, delivery.src, target, source_link, counters)
            }
            Ok(Message::NeighborAdvertisement {
                solicited,
                overrides,
                target,
                target_link,
                ..
            }) => self.receive_advertisement(arrival, target, target_link, (solicited, overrides), counters),
            Ok(Message::RouterSolicitation { .. } | Message::RouterAdvertisement { .. }) => Ingress::Done,
            Err(_) => dropped(&mut counters.drop_neighbor),
        }
    }

    //= RFC 4861 §7.2.3
    fn receive_solicitation<'a>(
        &mut self,
        arrival: &Arrival<'_>,
        source: Ipv6Addr,
        target: Ipv6Addr,
        source_link: Option<Mac>,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        // Other nodes share this stack's groups, so this message is no fault.
        if !self.own.is_own_v6(target) {
            return Ingress::Done;
        }
        let asker = addresses::from_v6(source);
        if source.is_unspecified() && self.speaks {
            //= RFC 4861 §7.2.4
            // Another node claims this address: the answer to all nodes says that it is taken.
            self.advertise(arrival.now, target, ALL_NODES, false, counters);
        }
        if source.is_unspecified() {
            return Ingress::Done;
        }
        if !self.own.is_on_link(&asker) {
            return dropped(&mut counters.drop_neighbor);
        }
        if let Some(mac) = source_link {
            self.learn(arrival.now, &asker, mac.0, Evidence::Spoke { create: true });
        }
        if !self.speaks {
            return dropped(&mut counters.left_to_first_shard);
        }
        //= RFC 4861 §7.2.4
        self.advertise(arrival.now, target, source, true, counters);
        Ingress::Done
    }

    //= RFC 4861 §7.2.5
    fn receive_advertisement<'a>(
        &mut self,
        arrival: &Arrival<'_>,
        target: Ipv6Addr,
        target_link: Option<Mac>,
        (solicited, overrides): (bool, bool),
        counters: &mut Counters,
    ) -> Ingress<'a> {
        if self.own.is_own_v6(target) {
            return dropped(&mut counters.drop_neighbor);
        }
        let address = addresses::from_v6(target);
        // Without an address in the message, it is about the address on record.
        let known = || self.neighbors.hardware_address(&address);
        let Some(mac) = target_link.map(|mac| mac.0).or_else(known) else {
            return Ingress::Done;
        };
        if !overrides
            && !self
                .neighbors
                .may_replace(arrival.now, &address, mac, &mut self.state[0])
        {
            return Ingress::Done;
        }
        let evidence = if solicited {
            Evidence::Answered
        } else {
            Evidence::Spoke { create: false }
        };
        self.learn(arrival.now, &address, mac, evidence);
        Ingress::Done
    }

    /// Sends an advertisement for one of this stack's addresses.
    fn advertise(
        &mut self,
        now: crate::time::Instant,
        target: Ipv6Addr,
        to: Ipv6Addr,
        solicited: bool,
        counters: &mut Counters,
    ) {
        let message = Message::NeighborAdvertisement {
            router: false,
            solicited,
            overrides: true,
            target,
            target_link: Some(Mac(self.own.mac)),
        };
        let mut payload = [0; MAX_LEN];
        let len = message.emit(target, to, &mut payload);
        let outgoing = Outgoing {
            source: addresses::from_v6(target),
            destination: addresses::from_v6(to),
            protocol: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            tos: 0,
            payload: &payload[..len],
        };
        self.send_message(now, &outgoing, counters);
    }

    //= RFC 4861 §7.2.6
    pub(super) fn announce_v6(&mut self, now: crate::time::Instant, counters: &mut Counters) {
        let Some(own) = self.own.ipv6.filter(|_| self.link.ethernet) else {
            return;
        };
        self.advertise(now, own.address, ALL_NODES, false, counters);
        self.advertise(now, own.link_local, ALL_NODES, false, counters);
    }

    /// Writes the frame that asks for a hardware address and returns its length. Returns 0 if this
    /// stack has no source address for it.
    pub(super) fn write_question(&self, question: &Question, frame: &mut [u8; MAX_QUESTION]) -> usize {
        match IpAddr::from(question.target) {
            IpAddr::V4(target) => self.write_arp_request(target, question.mac, frame),
            IpAddr::V6(target) => self.write_solicitation(target, question.mac, frame),
        }
    }

    //= RFC 4861 §7.2.2
    fn write_solicitation(
        &self,
        target: Ipv6Addr,
        mac: Option<[u8; 6]>,
        frame: &mut [u8; MAX_QUESTION],
    ) -> usize {
        let Some(source) = self.own.source_for(&addresses::from_v6(target)) else {
            return 0;
        };
        let src = addresses::to_v6(&source);
        //= RFC 4861 §7.3.3
        // A probe goes to the neighbour itself, a first request to its group.
        let dst = if mac.is_some() {
            target
        } else {
            solicited_node(target)
        };
        let link = mac
            .map(Mac)
            .or_else(|| Mac::for_multicast(dst.into()))
            .unwrap_or(Mac::BROADCAST);
        let message = Message::NeighborSolicitation {
            target,
            source_link: Some(Mac(self.own.mac)),
        };
        self.write_message(&message, (src, dst), link.0, frame)
    }

    /// Writes the frame that announces an address of this stack to one neighbour.
    //= RFC 4861 §7.2.6
    pub(super) fn write_announcement(
        &self,
        target: Ipv6Addr,
        mac: [u8; 6],
        frame: &mut [u8; MAX_QUESTION],
    ) -> usize {
        let message = Message::NeighborAdvertisement {
            router: false,
            solicited: false,
            overrides: true,
            target,
            target_link: Some(Mac(self.own.mac)),
        };
        self.write_message(&message, (target, ALL_NODES), mac, frame)
    }

    fn write_message(
        &self,
        message: &Message,
        (src, dst): (Ipv6Addr, Ipv6Addr),
        link: [u8; 6],
        frame: &mut [u8; MAX_QUESTION],
    ) -> usize {
        let start = self.emit_ethernet(frame, link, false);
        let header = ipv6::Header {
            payload_len: message.len() as u16,
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            ..ipv6::Header::new(src, dst)
        };
        let start = start + header.emit(&mut frame[start..]);
        start + message.emit(src, dst, &mut frame[start..])
    }
}
