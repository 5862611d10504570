//! Asking an Ethernet whether a host has an address already, before it is used there.
//!
//! Addresses that stand neither in a fabric's files nor in its uplinks' pages have to be asked for,
//! as on any Ethernet. Probes of ARP and of neighbour discovery ask, and hosts learn nothing from
//! them but that the address is wanted. A host that has the address says so, and so does a host
//! that wants it, too.
//!
//! A fabric's interface, and all that is beyond it, answers within a fraction of a second or is
//! asleep. So the pauses are shorter than those of the RFC, which are for links on which a machine
//! takes seconds until its first frame crosses. The address is not watched afterwards (RFC 5227
//! §2.4): a host that takes it then has to probe, and is answered.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_link::{Checksum, Link, Offload, Received, Transmit};
use toehold_shm::Gather;
use toehold_wire::ethernet::{self, EtherType};
use toehold_wire::{Mac, arp, icmpv6, ipv6, ndisc, protocol};

/// How often each address is asked for, RFC 5227's PROBE_NUM.
const PROBES: u32 = 3;
/// Time between two probes.
const PAUSE: Duration = Duration::from_millis(250);
/// Time to wait after the last probe.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a sleep lasts at most, for links that wake no thread.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Another host has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} is in use on the network that an uplink of this fabric leads to, by {by}; choose another address, \
     or stop that one"
)]
pub struct AddressTaken {
    /// The address.
    pub address: IpAddr,
    /// The hardware address of the host that has it.
    pub by: Mac,
}

/// The addresses that are asked for, and the host that asks.
struct Probe<'a> {
    own: Mac,
    addresses: &'a [IpAddr],
}

/// Asks for all the addresses that are any, which takes a second. The first one that a host has is
/// the error.
pub(crate) fn probe(link: &mut impl Link, addresses: &[IpAddr]) -> Result<(), AddressTaken> {
    let own = Mac(link.address());
    let probe = Probe { own, addresses };
    let begun = Instant::now();
    for number in 1..=PROBES {
        probe.send(link);
        let pause = if number == PROBES { PATIENCE } else { PAUSE };
        let until = begun + PAUSE * (number - 1) + pause;
        while Instant::now() < until {
            let mut taken = None;
            let now_ns = || begun.elapsed().as_nanos() as u64;
            let frames = link.receive(now_ns(), 64, &mut |frame| {
                taken = taken.or_else(|| probe.judge(frame));
            });
            link.flush();
            if let Some(taken) = taken {
                return Err(taken);
            }
            if frames == 0 && link.prepare_sleep() {
                sleep(link, until);
            }
            link.finish_sleep(now_ns());
        }
    }
    Ok(())
}

fn sleep(link: &impl Link, until: Instant) {
    let left = until.saturating_duration_since(Instant::now()).min(LONGEST_SLEEP);
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let descriptor = link.descriptor();
    let mut waits = descriptor.map(|descriptor| [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)]);
    let waits = waits.as_mut().map_or(&mut [][..], |waits| &mut waits[..]);
    // A signal ends it early, which does no harm.
    let _ = poll(waits, Some(&timeout));
}

impl Probe<'_> {
    fn send(&self, link: &mut impl Link) {
        for &address in self.addresses {
            let frame = match address {
                address if address.is_unspecified() => continue,
                IpAddr::V4(target) => self.probe_v4(target),
                IpAddr::V6(target) => self.probe_v6(target),
            };
            // A frame that finds no room, or no receiver, is repeated.
            let _ = link.transmit(&Transmit {
                headers: &frame,
                payload: &Gather::EMPTY,
                offload: Offload::default(),
            });
        }
        link.flush();
    }

    fn ethernet(&self, dst: Mac, ethertype: EtherType) -> Vec<u8> {
        let header = ethernet::Header {
            dst,
            src: self.own,
            vlan: None,
            ethertype,
        };
        let mut frame = vec![0; ethernet::HEADER_LEN];
        header.emit(&mut frame);
        frame
    }

    //= RFC 5227 §2.1.1
    fn probe_v4(&self, target: Ipv4Addr) -> Vec<u8> {
        let mut frame = self.ethernet(Mac::BROADCAST, EtherType::ARP);
        let packet = arp::Packet {
            operation: arp::Operation::Request,
            sender_mac: self.own,
            sender_ip: Ipv4Addr::UNSPECIFIED,
            target_mac: Mac::UNSPECIFIED,
            target_ip: target,
        };
        let mut bytes = [0; arp::PACKET_LEN];
        packet.emit(&mut bytes);
        frame.extend(bytes);
        frame
    }

    //= RFC 4862 §5.4.2
    fn probe_v6(&self, target: Ipv6Addr) -> Vec<u8> {
        let (src, dst) = (Ipv6Addr::UNSPECIFIED, ndisc::solicited_node(target));
        let group = Mac::for_multicast(dst.into()).unwrap_or(Mac::BROADCAST);
        let message = ndisc::Message::NeighborSolicitation {
            target,
            source_link: None,
        };
        let mut payload = [0; ndisc::MAX_LEN];
        let len = message.emit(src, dst, &mut payload);
        let header = ipv6::Header {
            payload_len: len as u16,
            next_header: protocol::ICMPV6,
            hop_limit: ndisc::HOP_LIMIT,
            ..ipv6::Header::new(src, dst)
        };
        let mut packet = [0; ipv6::HEADER_LEN];
        header.emit(&mut packet);
        let mut frame = self.ethernet(group, EtherType::IPV6);
        frame.extend(packet);
        frame.extend(&payload[..len]);
        frame
    }

    /// Judges whether a frame claims one of the addresses.
    fn judge(&self, frame: &Received<'_>) -> Option<AddressTaken> {
        let view = ethernet::Frame::new(frame.private).ok()?;
        let (address, by) = match (view.ethertype(), view.vlan()) {
            (EtherType::ARP, None) => holder_v4(view.payload())?,
            (EtherType::IPV6, None) => {
                let unsure = frame.offload.checksum == Checksum::Complete;
                holder_v6(view.payload(), view.src(), unsure)?
            }
            _ => return None,
        };
        let is_wanted = !address.is_unspecified() && self.addresses.contains(&address);
        (is_wanted && by != self.own).then_some(AddressTaken { address, by })
    }
}

/// The host that says that it has an address, or asks for it as this one does, with the address.
fn holder_v4(packet: &[u8]) -> Option<(IpAddr, Mac)> {
    let packet = arp::Packet::parse(packet).ok()?;
    let is_probe = packet.operation == arp::Operation::Request && packet.sender_ip.is_unspecified();
    let address = if is_probe {
        packet.target_ip
    } else {
        packet.sender_ip
    };
    Some((address.into(), packet.sender_mac))
}

//= RFC 4862 §5.4.3
//= RFC 4862 §5.4.4
fn holder_v6(packet: &[u8], source: Mac, unsure: bool) -> Option<(IpAddr, Mac)> {
    let packet = ipv6::View::new(packet, packet.len()).ok()?;
    if packet.next_header() != protocol::ICMPV6 {
        return None;
    }
    let (src, dst) = (packet.src(), packet.dst());
    let view = icmpv6::View::new(packet.payload()).ok()?;
    let len = packet.payload().len();
    if unsure && !view.verify(icmpv6::pseudo_header(src, dst, len), 0) {
        return None;
    }
    let hop_limit = packet.hop_limit();
    match ndisc::Message::parse(&view, &ndisc::Delivery { src, dst, hop_limit }).ok()? {
        ndisc::Message::NeighborAdvertisement {
            target, target_link, ..
        } => Some((target.into(), target_link.unwrap_or(source))),
        // Another host that has not got it yet.
        ndisc::Message::NeighborSolicitation { target, .. } if src.is_unspecified() => {
            Some((target.into(), source))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
