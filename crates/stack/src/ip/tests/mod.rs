//! Tests of the IP layer as a whole: frames in, frames out.

mod egress;
mod fast;
mod fragmented;
mod full_link;
mod hostile;
mod kernel;
mod membership;
mod messages;
mod neighbors;

use super::ingress::IcmpOrigin;
use super::*;
use crate::config::Config;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use toehold_link::{Checksum, Offload, Transmit, TransmitError};
use toehold_shm::{Gather, Region};
use toehold_wire::ethernet::EtherType;
use toehold_wire::{Mac, arp, icmpv4, icmpv6, ipv4, ipv6, ndisc, protocol};

const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const FAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);

fn config() -> Config {
    Config {
        mac: OWN_MAC,
        ipv4: Some((OWN, 24)),
        ipv4_gateway: Some(GATEWAY),
        ipv6: Some((OWN6, 64)),
        ipv6_gateway: Some(GATEWAY6),
        neighbors: 8,
        seed: 7,
        ..Config::default()
    }
}

/// An IP layer in its environment.
struct Bench {
    ip: Ip,
    now: Instant,
    counters: Counters,
    wire: Wire,
}

/// Keeps what is transmitted.
#[derive(Default)]
struct Wire {
    frames: Vec<Vec<u8>>,
    /// Frames that fit; `None` means no bound.
    room: Option<usize>,
    /// Hardware address for which there is no room.
    full_for: Option<[u8; 6]>,
}

impl Transmitter for Wire {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        if self.room.is_some_and(|room| self.frames.len() >= room) {
            return Err(TransmitError::Full);
        }
        if self.full_for.is_some_and(|mac| frame.headers.starts_with(&mac)) {
            return Err(TransmitError::Full);
        }
        assert!(frame.payload.is_empty());
        self.frames.push(frame.headers.to_vec());
        Ok(())
    }
}

/// Stands for the sender of an error, which other tests check.
const NO_ORIGIN: IcmpOrigin = IcmpOrigin {
    from: Address::UNSPECIFIED,
    kind: 0,
    code: 0,
};

/// The result of a frame, in a form that outlives the frame.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Came {
    Tcp {
        source: Address,
        destination: Address,
        ecn: u8,
        bytes: Vec<u8>,
    },
    Error(IcmpError),
    Reassembled(Vec<u8>),
    Whole(Vec<u8>),
    Kernel,
    Nothing,
}

impl Bench {
    fn new(config: &Config) -> Self {
        let mut carver = Carver::new(Region::private(Ip::bytes_needed(config)).unwrap()).unwrap();
        let ip = Ip::create(&mut carver, config).unwrap();
        Self {
            ip,
            now: Instant(1_000_000_000),
            counters: Counters::default(),
            wire: Wire::default(),
        }
    }

    fn usual() -> Self {
        Self::new(&config())
    }

    /// Gives the frame to the IP layer, all of it in private memory.
    fn receive(&mut self, bytes: &[u8]) -> Came {
        self.receive_split(bytes, bytes.len())
    }

    /// Gives the frame to the IP layer, all but the first `private` bytes elsewhere.
    fn receive_split(&mut self, bytes: &[u8], private: usize) -> Came {
        let (private, rest) = bytes.split_at(private);
        let frame = Received {
            private,
            rest: Gather::from_slice(rest),
            offload: Offload::default(),
        };
        came(self.ip.receive(self.now, &frame, &mut self.counters))
    }

    /// The frames that the IP layer sends now.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        self.ip
            .poll_transmit(self.now, &mut self.wire, &mut self.counters);
        core::mem::take(&mut self.wire.frames)
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        // As a driver does: every deadline is met in time.
        while let Some(deadline) = self.ip.poll_timeout().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.ip.handle_timeout(self.now, &mut self.counters);
            assert!(
                self.ip.poll_timeout().is_none_or(|next| next > deadline),
                "time stands still"
            );
        }
        self.now = end;
    }

    fn path(&mut self, remote: impl Into<IpAddr>) -> PathState {
        self.ip.path(self.now, Address::from(remote.into()))
    }

    fn ready(&mut self, remote: impl Into<IpAddr>) -> Path {
        match self.path(remote) {
            PathState::Ready(path) => path,
            other => panic!("{other:?}"),
        }
    }

    /// Makes the peer known, over IPv4 and IPv6.
    fn meet_peer(&mut self) {
        for peer in [IpAddr::from(PEER), IpAddr::from(PEER6)] {
            self.path(peer);
        }
        self.sent();
        self.receive(&arp_frame(arp::Operation::Reply, PEER_MAC, PEER, OWN_MAC, OWN));
        self.receive(&advertisement(PEER6, PEER_MAC, true, true, OWN6));
        while self.ip.next_event().is_some() {}
    }

    fn path_mtu(&self, remote: Address) -> u16 {
        self.ip.packet_limit(&remote).0
    }

    fn counted(&self, name: &str) -> u64 {
        self.counters
            .iter()
            .find(|(counter, _)| *counter == name)
            .map(|(_, count)| count)
            .unwrap()
    }
}

fn came(ingress: Ingress<'_>) -> Came {
    match ingress {
        Ingress::Tcp(packet) => {
            let mut bytes = packet.header.to_vec();
            // There may be padding behind the segment.
            let mut rest = vec![0; packet.transport_len - bytes.len()];
            assert_eq!(packet.rest.copy_to(0, &mut rest), rest.len());
            bytes.extend(rest);
            Came::Tcp {
                source: packet.source,
                destination: packet.destination,
                ecn: packet.ecn,
                bytes,
            }
        }
        Ingress::IcmpError(error) => Came::Error(IcmpError {
            origin: NO_ORIGIN,
            ..error
        }),
        Ingress::Reassembled(frame) => Came::Reassembled(frame.into_vec()),
        Ingress::Whole(frame) => Came::Whole(frame.into_vec()),
        Ingress::Kernel => Came::Kernel,
        Ingress::Done => Came::Nothing,
    }
}

fn ethernet_frame(to: [u8; 6], from: [u8; 6], ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    let header = toehold_wire::ethernet::Header {
        dst: Mac(to),
        src: Mac(from),
        vlan: None,
        ethertype,
    };
    header.emit(&mut frame);
    frame.extend(payload);
    frame
}

fn arp_frame(
    operation: arp::Operation,
    from: [u8; 6],
    sender: Ipv4Addr,
    to: [u8; 6],
    target: Ipv4Addr,
) -> Vec<u8> {
    let packet = arp::Packet {
        operation,
        sender_mac: Mac(from),
        sender_ip: sender,
        target_mac: Mac(to),
        target_ip: target,
    };
    let mut bytes = [0; arp::PACKET_LEN];
    packet.emit(&mut bytes);
    // The sender of a request does not know its target's address.
    ethernet_frame(
        if to == [0; 6] { [0xff; 6] } else { to },
        from,
        EtherType::ARP,
        &bytes,
    )
}

/// An IPv4 packet with the usual header.
fn packet_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        protocol,
        payload_len: payload.len() as u16,
        ..ipv4::Header::new(src, dst)
    };
    let mut bytes = vec![0; ipv4::HEADER_LEN];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn packet_v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        next_header,
        hop_limit,
        payload_len: payload.len() as u16,
        ..ipv6::Header::new(src, dst)
    };
    let mut bytes = vec![0; ipv6::HEADER_LEN];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn frame_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    ethernet_frame(
        OWN_MAC,
        PEER_MAC,
        EtherType::IPV4,
        &packet_v4(src, dst, protocol, payload),
    )
}

fn frame_v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    ethernet_frame(
        OWN_MAC,
        PEER_MAC,
        EtherType::IPV6,
        &packet_v6(src, dst, next_header, 64, payload),
    )
}

fn icmp_v4(message: &icmpv4::Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(&mut bytes);
    bytes
}

fn icmp_v6(src: Ipv6Addr, dst: Ipv6Addr, message: &icmpv6::Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(src, dst, &mut bytes);
    bytes
}

fn discovery_frame(src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, message: &ndisc::Message) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(src, dst, &mut bytes);
    let to = Mac::for_multicast(dst.into()).unwrap_or(Mac(OWN_MAC)).0;
    ethernet_frame(
        to,
        PEER_MAC,
        EtherType::IPV6,
        &packet_v6(src, dst, protocol::ICMPV6, hop_limit, &bytes),
    )
}

/// An advertisement by the target itself.
fn advertisement(target: Ipv6Addr, mac: [u8; 6], solicited: bool, overrides: bool, to: Ipv6Addr) -> Vec<u8> {
    let message = ndisc::Message::NeighborAdvertisement {
        router: false,
        solicited,
        overrides,
        target,
        target_link: Some(Mac(mac)),
    };
    discovery_frame(target, to, 255, &message)
}

/// A TCP header of 20 bytes and some payload; the IP layer does not look at it.
fn segment(payload_len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..20 + payload_len).map(|at| at as u8).collect();
    bytes[12] = 5 << 4;
    bytes
}
