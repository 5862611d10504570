//! The IP layer: everything between Ethernet frames and TCP segments.
//!
//! [`Ip`] owns the stack's addresses, its neighbours (ARP and neighbour
//! discovery), path MTUs, fragments being put together, and the few packets it
//! sends on its own account: ARP, neighbour discovery, echo replies, ICMP
//! errors. It answers those itself. TCP segments and ICMP errors about them go
//! up as [`Ingress`]; TCP asks for a [`Path`] and has the headers of its own
//! frames written by [`Ip::emit_headers`].
//!
//! It never forwards, never configures itself from the network (no DHCP, no
//! router advertisements, no redirects: addresses and routers are settings),
//! and never queues a TCP segment: what waits for a hardware address waits in a
//! list of TCP's own, whose head is kept in the neighbour's record.
//!
//! The order of calls in a driver's round: [`Ip::handle_timeout`];
//! [`Ip::receive`] for every frame; [`Ip::next_event`] until it is `None`;
//! [`Ip::poll_transmit`]; sleep until [`Ip::poll_timeout`].

mod addresses;
mod arp;
mod discovery;
mod ethernet;
mod fragments;
mod icmp;
mod icmp_error;
mod index;
mod ingress;
mod ipv4;
mod ipv6;
mod list;
mod neighbor;
mod path;
mod path_mtu;
mod state;
mod waiting;

#[cfg(test)]
mod tests;

pub use ingress::{IcmpError, IcmpErrorKind, Ingress, TcpPacket};
pub use path::{NeighborEvent, Path, PathState};

use crate::config::Config;
use crate::counters::Counters;
use crate::time::Instant;
use crate::tuple::Address;
use toehold_link::{Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Gather, NONE, OutOfMemory, Table};

/// Longest headers [`Ip::emit_headers`] writes, in bytes: Ethernet and IPv6.
pub const MAX_HEADERS: usize = 54;

/// The IP layer of one stack: handles to its state, and its settings.
pub struct Ip {
    own: addresses::Addresses,
    link: ethernet::LinkShape,
    state: Table<state::State>,
    neighbors: neighbor::Neighbors,
    packets: waiting::Packets,
    path_mtus: path_mtu::PathMtus,
    fragments: fragments::Fragments,
    /// Private copy of what is looked at beyond its headers. Holds nothing
    /// between two calls.
    scratch: Vec<u8>,
}

// What follows is the interface TCP is written against.
//
//   pub fn bytes_needed(config: &Config) -> usize
//   pub fn create(carver: &mut Carver, config: &Config) -> Result<Ip, OutOfMemory>
//   pub fn receive<'a>(&mut self, now: Instant, frame: &'a Received<'a>, counters: &mut Counters) -> Ingress<'a>
//       counts frames_received; Ingress::Reassembled(frame) is given to receive again:
//       Received { private: &frame, rest: Gather::EMPTY, offload: Offload::default() }
//   pub fn receive_looped<'a>(…same…) -> Ingress<'a>
//       for frames of a loopback path: own addresses and 127.0.0.0/8, ::1 are accepted as source and destination
//   pub fn path(&mut self, now: Instant, remote: Address) -> PathState
//   pub fn path_is_current(&self, path: &Path) -> bool            // one load and compare
//   pub fn emit_headers(&mut self, buf: &mut [u8], path: &Path, local: Address, remote: Address,
//                       protocol: u8, tos: u8, transport_len: usize) -> usize
//   pub fn source_for(&self, remote: Address) -> Option<Address>
//   pub fn is_local(&self, address: Address) -> bool              // own addresses, 127.0.0.0/8, ::1
//   pub fn poll_transmit(&mut self, now: Instant, out: &mut dyn Transmitter, counters: &mut Counters)
//   pub fn handle_timeout(&mut self, now: Instant, counters: &mut Counters)
//   pub fn poll_timeout(&self) -> Option<Instant>
//   pub fn next_event(&mut self) -> Option<NeighborEvent>
//   pub fn waiting_head(&self, neighbor: u32) -> u32
//   pub fn set_waiting_head(&mut self, neighbor: u32, head: u32)
//   pub fn confirm(&mut self, now: Instant, path: &Path)
//   pub fn update_path_mtu(&mut self, now: Instant, remote: Address, mtu: u16)
//   pub fn path_mtu(&self, remote: Address) -> u16
//   pub fn announce(&mut self)                                    // gratuitous ARP, unsolicited advertisement
