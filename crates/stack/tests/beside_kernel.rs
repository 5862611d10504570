//! A stack beside the kernel's: a segment belongs to one of the two, and its owner answers.

use core::net::{Ipv4Addr, SocketAddr};

use proptest::prelude::*;
use toehold_link::{Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Gather, Region};
use toehold_stack::{Config, ConnectionId, Event, FromKernel, Instant, SocketError, Stack, State, ToKernel};
use toehold_wire::ethernet::{self, EtherType};
use toehold_wire::tcp::{self, Flags, Seq};
use toehold_wire::{Mac, arp, checksum, icmpv4, ipv4, protocol};

const NOW: Instant = Instant(3_600_000_000_000);
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 80;
const PEER_PORT: u16 = 40_000;

#[derive(Default)]
struct Wire(Vec<Vec<u8>>);

impl Transmitter for Wire {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut bytes = vec![0; frame.len()];
        let (headers, payload) = bytes.split_at_mut(frame.headers.len());
        headers.copy_from_slice(frame.headers);
        frame.payload.copy_to(0, payload);
        self.0.push(bytes);
        Ok(())
    }
}

/// A stack that may know its peer, and the frames that it left to the kernel.
struct Host {
    stack: Stack,
    kernel: Vec<Vec<u8>>,
    /// The kernel's answer to frames.
    says: ToKernel,
}

impl Host {
    /// A host that knows its peer.
    fn new(beside_kernel: bool) -> Host {
        let mut host = Host::unacquainted(beside_kernel);
        host.hear_of_peer(arp::Operation::Request);
        host.sent();
        host.kernel.clear();
        host
    }

    fn unacquainted(beside_kernel: bool) -> Host {
        let config = Config {
            beside_kernel,
            demux_counters: true,
            mac: OWN_MAC,
            ipv4: Some((OWN, 24)),
            connections: 16,
            listeners: 4,
            time_wait_records: 16,
            neighbors: 16,
            payload_blocks: 64,
            ..Config::default()
        };
        let mut carver = Carver::new(Region::private(Stack::region_len(&config)).unwrap()).unwrap();
        Host {
            stack: Stack::create(&mut carver, &config).unwrap(),
            kernel: Vec::new(),
            says: ToKernel::Taken,
        }
    }

    fn hear_of_peer(&mut self, operation: arp::Operation) {
        let mut said = [0; arp::PACKET_LEN];
        arp::Packet {
            operation,
            sender_mac: Mac(PEER_MAC),
            sender_ip: PEER,
            target_mac: Mac(OWN_MAC),
            target_ip: OWN,
        }
        .emit(&mut said);
        self.receive(&framed(EtherType::ARP, &said));
    }

    fn receive(&mut self, bytes: &[u8]) {
        let (private, rest) = bytes.split_at(bytes.len().min(192));
        let frame = Received {
            private,
            rest: Gather::from_slice(rest),
            offload: Offload::default(),
        };
        let Host { stack, kernel, says } = self;
        stack.handle_frame_beside(NOW, &frame, None, &mut |frame| {
            let mut bytes = frame.private.to_vec();
            bytes.resize(frame.len(), 0);
            frame.rest.copy_to(0, &mut bytes[frame.private.len()..]);
            kernel.push(bytes);
            *says
        });
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut wire = Wire::default();
        self.stack.poll_transmit(NOW, &mut wire);
        wire.0
    }

    /// The flags of the segments sent.
    fn said(&mut self) -> Vec<Flags> {
        let sent = self.sent();
        sent.iter().map(|frame| tcp_of(frame).flags()).collect()
    }

    fn listen(&mut self) {
        let settings = self.stack.default_settings();
        let local = SocketAddr::from((OWN, PORT));
        self.stack.listen(NOW, local, 16, &settings).unwrap();
    }

    /// A connection with the peer, opened by the peer.
    fn accept(&mut self) -> ConnectionId {
        self.listen();
        self.receive(&segment(Flags::SYN, 100, 0, b""));
        let answer = self.sent().remove(0);
        let answer = tcp_of(&answer);
        assert_eq!(answer.flags(), Flags::SYN | Flags::ACK);
        self.receive(&segment(Flags::ACK, 101, answer.seq().0 + 1, b""));
        while let Some(event) = self.stack.next_event() {
            if let Event::Listener(listener) = event {
                return self.stack.accept(listener).unwrap();
            }
        }
        panic!("no connection waits");
    }
}

fn framed(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    ethernet::Header {
        dst: Mac(OWN_MAC),
        src: Mac(PEER_MAC),
        vlan: None,
        ethertype,
    }
    .emit(&mut frame);
    frame.extend(payload);
    frame
}

fn packet(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv4::HEADER_LEN];
    ipv4::Header {
        protocol,
        payload_len: payload.len() as u16,
        ..ipv4::Header::new(from, to)
    }
    .emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

/// A segment from the peer to the port.
fn segment(flags: Flags, seq: u32, ack: u32, data: &[u8]) -> Vec<u8> {
    let header = tcp::Header {
        src_port: PEER_PORT,
        dst_port: PORT,
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
        window: 60_000,
        urgent: 0,
        options: tcp::Options::default(),
    };
    let mut bytes = vec![0; 60];
    let len = header.emit(&mut bytes);
    bytes.truncate(len);
    let pseudo = checksum::pseudo_header(PEER.into(), OWN.into(), protocol::TCP, (len + data.len()) as u32);
    tcp::set_checksum(&mut bytes, pseudo, checksum::sum(data));
    bytes.extend(data);
    framed(EtherType::IPV4, &packet(PEER, OWN, protocol::TCP, &bytes))
}

fn tcp_of(frame: &[u8]) -> tcp::View<'_> {
    let bytes = &frame[ethernet::HEADER_LEN + ipv4::HEADER_LEN..];
    tcp::View::new(bytes, bytes.len()).unwrap()
}

#[test]
fn segment_to_unused_port_goes_to_kernel() {
    for (flags, ack) in [(Flags::SYN, 0), (Flags::ACK, 7), (Flags::RST, 0), (Flags::FIN, 0)] {
        let mut host = Host::new(true);
        let stray = segment(flags, 100, ack, b"");
        let looked_up = host.stack.work().lookups;
        host.receive(&stray);
        assert_eq!(host.stack.work().lookups, looked_up + 1, "one look-up decides");
        assert_eq!(host.kernel, [stray], "as it came");
        assert!(host.sent().is_empty(), "no reset beside the kernel's");
        let counters = host.stack.counters();
        assert_eq!((counters.tcp_no_connection, counters.tcp_resets_sent), (0, 0));
    }
    let mut alone = Host::new(false);
    alone.receive(&segment(Flags::SYN, 100, 0, b""));
    assert_eq!(alone.said(), [Flags::RST | Flags::ACK]);
    assert!(alone.kernel.is_empty());
}

/// The reset of a killed process's connection was never sent, since the neighbour had to be
/// resolved first.
#[test]
fn neighbours_are_known_after_kill() {
    let mut host = Host::new(false);
    host.stack.mend(2).unwrap();
    // The stack announces itself to all neighbours.
    host.sent();
    host.receive(&segment(Flags::ACK, 100, 7, b"data"));
    assert_eq!(host.said(), [Flags::RST]);
}

#[test]
fn reset_waits_for_address_resolution() {
    let mut host = Host::unacquainted(false);
    for ack in [7, 8] {
        host.receive(&segment(Flags::ACK, 100, ack, b""));
    }
    let asked = host.sent();
    assert_eq!(asked.len(), 1, "and it asks once");
    assert_eq!(asked[0][..6], Mac::BROADCAST.0);
    host.hear_of_peer(arp::Operation::Reply);
    let sent = host.sent();
    let resets = sent
        .iter()
        .map(|frame| (tcp_of(frame).flags(), tcp_of(frame).seq()));
    assert_eq!(
        resets.collect::<Vec<_>>(),
        [(Flags::RST, Seq(7)), (Flags::RST, Seq(8))]
    );
    for frame in &sent {
        let reset = tcp_of(frame);
        let pseudo = checksum::pseudo_header(OWN.into(), PEER.into(), protocol::TCP, 20);
        assert!(reset.verify(pseudo, 0) && frame[..6] == PEER_MAC);
    }
}

#[test]
fn connection_of_stack_is_hidden_from_kernel() {
    let mut host = Host::new(true);
    let id = host.accept();
    let next = host.stack.info(id).unwrap();
    assert_eq!(next.unread, 0);
    host.receive(&segment(Flags::ACK, 101, 0, b"out of order, odd, and beyond"));
    host.receive(&segment(Flags::SYN, 5000, 0, b""));
    host.receive(&segment(Flags::RST, 9, 0, b""));
    host.receive(&segment(Flags::FIN, 101, 0, b""));
    assert!(host.kernel.is_empty());
    assert_eq!(host.stack.state(id), Ok(State::Established));
}

#[test]
fn listener_takes_only_segments_that_open_connections() {
    let mut host = Host::new(true);
    host.listen();
    // Segments of a connection that the kernel had with the port before.
    for (flags, ack) in [
        (Flags::ACK, 7),
        (Flags::RST, 0),
        (Flags::FIN | Flags::ACK, 7),
        (Flags::SYN | Flags::ACK, 7),
    ] {
        host.receive(&segment(flags, 100, ack, b""));
    }
    assert_eq!(host.kernel.len(), 4);
    assert!(host.sent().is_empty());
    host.receive(&segment(Flags::SYN, 100, 0, b""));
    assert_eq!(host.kernel.len(), 4);
    assert_eq!(host.said(), [Flags::SYN | Flags::ACK]);
    // An invalid segment to a listener belongs to neither stack.
    host.receive(&segment(Flags::SYN | Flags::FIN, 900, 0, b""));
    assert_eq!(host.kernel.len(), 4);
}

#[test]
fn time_wait_record_belongs_to_stack() {
    let mut host = Host::new(true);
    let id = host.accept();
    let answer = host.stack.local_addr(id).unwrap();
    assert_eq!(answer.port(), PORT);
    host.stack.close(NOW, id).unwrap();
    let fin = host.sent().remove(0);
    let fin = tcp_of(&fin).seq().0;
    host.receive(&segment(Flags::FIN | Flags::ACK, 101, fin + 1, b""));
    host.sent();
    assert_eq!(host.stack.time_waits().count(), 1);
    // The last acknowledgement was lost: the peer retransmits its FIN.
    host.receive(&segment(Flags::FIN | Flags::ACK, 101, fin + 1, b""));
    assert_eq!(host.said(), [Flags::ACK]);
    assert!(host.kernel.is_empty());
    // The port is the kernel's now, and the peer opens a new connection to it.
    let listeners: Vec<_> = host.stack.sockets().collect();
    for socket in listeners {
        if let Event::Listener(listener) = socket {
            host.stack.close_listener(listener).unwrap();
        }
    }
    let anew = segment(Flags::SYN, 9000, 0, b"");
    host.receive(&anew);
    assert_eq!(host.kernel, [anew]);
    assert_eq!(host.stack.time_waits().count(), 0);
}

#[test]
fn icmp_errors_reach_owner_of_quoted_segment() {
    let mut host = Host::new(true);
    let settings = host.stack.default_settings();
    let to = SocketAddr::from((PEER, 7));
    let id = host.stack.connect(NOW, None, to, &settings).unwrap();
    let syn = host.sent().remove(0);
    let error_about = |original: &[u8]| {
        let message = icmpv4::Message::DestinationUnreachable {
            code: icmpv4::unreachable::PORT,
            mtu: 0,
            original,
        };
        let mut bytes = vec![0; message.len()];
        message.emit(&mut bytes);
        framed(EtherType::IPV4, &packet(PEER, OWN, protocol::ICMPV4, &bytes))
    };
    let mut of_the_kernel = syn[ethernet::HEADER_LEN..].to_vec();
    of_the_kernel[ipv4::HEADER_LEN + 1] ^= 1; // another port
    let error = error_about(&of_the_kernel);
    host.receive(&error);
    assert_eq!(host.kernel, [error]);
    assert_eq!(host.stack.state(id), Ok(State::SynSent));
    host.receive(&error_about(&syn[ethernet::HEADER_LEN..]));
    assert_eq!(host.kernel.len(), 1);
    assert_eq!(
        host.stack.take_error(id),
        Ok(Some(SocketError::ConnectionRefused))
    );
}

#[test]
fn segments_to_itself_do_not_reach_kernel() {
    let mut host = Host::new(true);
    let settings = host.stack.default_settings();
    let to = SocketAddr::from((OWN, PORT));
    let id = host.stack.connect(NOW, None, to, &settings).unwrap();
    assert!(host.sent().is_empty());
    assert_eq!(
        host.stack.take_error(id),
        Ok(Some(SocketError::ConnectionRefused))
    );
    assert!(host.kernel.is_empty());
}

#[test]
fn frames_refused_by_kernel_are_counted() {
    let mut host = Host::new(true);
    let before = *host.stack.counters();
    let stray = segment(Flags::SYN, 100, 0, b"");
    for says in [
        ToKernel::Taken,
        ToKernel::Down,
        ToKernel::Gone,
        ToKernel::Full,
        ToKernel::Refused,
    ] {
        host.says = says;
        host.receive(&stray);
    }
    let counters = host.stack.counters();
    assert_eq!(counters.to_kernel_frames, before.to_kernel_frames + 1);
    assert_eq!(
        counters.to_kernel_bytes,
        before.to_kernel_bytes + stray.len() as u64
    );
    let drops = [
        counters.drop_to_kernel_down,
        counters.drop_to_kernel_gone,
        counters.drop_to_kernel_full,
        counters.drop_to_kernel_refused,
    ];
    assert_eq!(drops, [1; 4]);
    for what in [
        FromKernel::Sent(100),
        FromKernel::NotSent(TransmitError::Unreachable),
        FromKernel::NotSent(TransmitError::Full),
        FromKernel::Malformed(2),
    ] {
        host.stack.count_from_kernel(what);
    }
    let counters = host.stack.counters();
    let sent = (counters.from_kernel_frames, counters.from_kernel_bytes);
    let drops = [
        counters.drop_from_kernel_unreachable,
        counters.drop_from_kernel_full,
        counters.drop_from_kernel_malformed,
    ];
    assert_eq!((sent, drops), ((1, 100), [1, 1, 2]));
}

proptest! {
    /// For any frame, at most one of the two stacks answers it. The kernel receives it once and
    /// unchanged.
    #[test]
    fn frame_is_handed_to_kernel_at_most_once_and_unchanged(
        kind in 0..5_u8,
        flags in 0..256_u16,
        changes in prop::collection::vec((0..120_usize, any::<u8>()), 0..6),
        len in 0..120_usize,
    ) {
        let mut host = Host::new(true);
        let connected = kind == 0;
        if connected {
            host.accept();
        }
        let mut frame = match kind {
            0 | 1 => segment(Flags(flags), 101, 7, &[7; 40]),
            2 => framed(EtherType::IPV4, &packet(PEER, OWN, protocol::UDP, &[0; 40])),
            3 => framed(EtherType::ARP, &[0; 46]),
            _ => framed(EtherType::IPV6, &[0x60; 100]),
        };
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(len.max(14));
        host.receive(&frame);
        prop_assert!(host.kernel.len() <= 1);
        if let Some(kernels) = host.kernel.first() {
            prop_assert_eq!(kernels, &frame);
            let resets = host.stack.counters().tcp_resets_sent;
            prop_assert_eq!(resets, 0, "both have answered");
        }
    }
}
