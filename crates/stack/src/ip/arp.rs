//! Address resolution for IPv4.

use super::addresses;
use super::ethernet::{Arrival, dropped};
use super::neighbor::Evidence;
use super::state::Context;
use super::{Ingress, Ip};
use crate::counters::Counters;
use core::net::Ipv4Addr;
use toehold_wire::arp::{Operation, PACKET_LEN, Packet};
use toehold_wire::ethernet::{self, EtherType};
use toehold_wire::{Mac, WireError};

const FRAME_LEN: usize = ethernet::HEADER_LEN + PACKET_LEN;

impl Ip {
    //= RFC 826
    pub(super) fn receive_arp<'a>(&mut self, arrival: &Arrival<'a>, counters: &mut Counters) -> Ingress<'a> {
        let packet = match Packet::parse(arrival.private()) {
            Ok(packet) => packet,
            Err(WireError::Truncated) => return dropped(&mut counters.drop_malformed),
            Err(_) => return dropped(&mut counters.drop_neighbor),
        };
        let Some(own) = self.own.ipv4 else {
            return dropped(&mut counters.drop_not_local);
        };
        let to_own = packet.target_ip == own.address;
        //= RFC 5227 §2.1.1
        // A probe's sender has no address yet.
        let is_probe = packet.operation == Operation::Request && packet.sender_ip.is_unspecified();
        if !is_probe {
            if !self.own.is_possible_neighbor_v4(packet.sender_ip) {
                return dropped(&mut counters.drop_neighbor);
            }
            self.learn_from_arp(arrival, &packet, to_own);
        }
        if to_own && packet.operation == Operation::Request {
            if !self.speaks {
                return dropped(&mut counters.left_to_first_shard);
            }
            let reply = Packet {
                operation: Operation::Reply,
                sender_mac: Mac(self.own.mac),
                sender_ip: own.address,
                target_mac: packet.sender_mac,
                target_ip: packet.sender_ip,
            };
            let mut frame = [0; FRAME_LEN];
            self.write_arp(&reply, packet.sender_mac, &mut frame);
            self.send_frame(&frame, counters);
        }
        Ingress::Done
    }

    /// Learns the sender's hardware address from the packet.
    fn learn_from_arp(&mut self, arrival: &Arrival<'_>, packet: &Packet, to_own: bool) {
        let address = addresses::from_v4(packet.sender_ip);
        let answers = packet.operation == Operation::Reply && to_own && self.neighbors.is_asked(&address);
        //= RFC 826
        // Any packet of a known sender updates its record. A new record is made only if the packet
        // is addressed to this stack.
        let evidence = if answers {
            Evidence::Answered
        } else {
            Evidence::Spoke { create: to_own }
        };
        self.learn(arrival.now, &address, packet.sender_mac.0, evidence);
    }

    /// Learns a hardware address, and sends the frames that waited for it.
    pub(super) fn learn(
        &mut self,
        now: crate::time::Instant,
        address: &crate::tuple::Address,
        mac: [u8; 6],
        evidence: Evidence,
    ) {
        let mut cx = Context {
            now,
            state: &mut self.state[0],
            packets: &mut self.packets,
        };
        if let Some(neighbor) = self.neighbors.learn(&mut cx, address, mac, evidence)
            && self.packets.is_waited_for(neighbor)
        {
            let mut cx = Context {
                now,
                state: &mut self.state[0],
                packets: &mut self.packets,
            };
            // Like any packet sent, these start the delay of RFC 4861 §7.3.3.
            self.neighbors.resolve(&mut cx, address);
            self.release_waiting(neighbor, mac);
        }
    }

    /// Writes the request for the hardware address of `target`, to all nodes or to the node that
    /// had the address.
    pub(super) fn write_arp_request(
        &self,
        target: Ipv4Addr,
        mac: Option<[u8; 6]>,
        frame: &mut [u8],
    ) -> usize {
        let Some(own) = self.own.ipv4 else { return 0 };
        let request = Packet {
            operation: Operation::Request,
            sender_mac: Mac(self.own.mac),
            sender_ip: own.address,
            target_mac: Mac::UNSPECIFIED,
            target_ip: target,
        };
        //= RFC 1122 §2.3.2.1
        self.write_arp(&request, mac.map_or(Mac::BROADCAST, Mac), frame)
    }

    //= RFC 5227 §2.3
    pub(super) fn announce_v4(&mut self, counters: &mut Counters) {
        let Some(own) = self.own.ipv4.filter(|_| self.link.ethernet) else {
            return;
        };
        let mut frame = [0; FRAME_LEN];
        self.write_arp_request(own.address, None, &mut frame);
        self.send_frame(&frame, counters);
    }

    fn write_arp(&self, packet: &Packet, destination: Mac, frame: &mut [u8]) -> usize {
        let header = ethernet::Header {
            dst: destination,
            src: Mac(self.own.mac),
            vlan: None,
            ethertype: EtherType::ARP,
        };
        let len = header.emit(frame);
        len + packet.emit(&mut frame[len..])
    }
}
