//! Links that take nothing, for a while or for ever, or nothing for one of many
//! peers: no timer is lost, none fires for nothing, what was not sent is not
//! counted, and whoever can be served is.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use toehold_link::{Checksum, Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Gather, Region};
use toehold_sim::packet::Packet;
use toehold_stack::{Config, ConnectionId, Instant, SendFlags, SocketError, SocketOption, Stack, State};
use toehold_wire::ethernet::{self, EtherType};
use toehold_wire::tcp::{Flags, Seq};
use toehold_wire::{Mac, arp};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const HOUR: Duration = Duration::from_secs(3600);

/// What the link does with frames.
#[derive(Default)]
struct Wire {
    sent: Vec<Packet>,
    /// It has no room.
    full: bool,
    /// It has no room for this peer.
    full_for: Option<Mac>,
    ethernet: bool,
}

impl Transmitter for Wire {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut bytes = frame.headers.to_vec();
        let at = bytes.len();
        bytes.resize(frame.len(), 0);
        frame.payload.copy_to(0, &mut bytes[at..]);
        if self.full || (self.ethernet && self.full_for.is_some_and(|mac| bytes.starts_with(&mac.0))) {
            return Err(TransmitError::Full);
        }
        let packet = if self.ethernet {
            &bytes[ethernet::HEADER_LEN..]
        } else {
            &bytes
        };
        // Questions for hardware addresses are no packets.
        if let Ok(packet) = Packet::parse(packet, frame.offload.checksum != Checksum::Complete) {
            self.sent.push(packet);
        }
        Ok(())
    }
}

struct Bench {
    stack: Stack,
    wire: Wire,
    now: Instant,
}

fn peer(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), 4000))
}

fn peer_mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

impl Bench {
    fn new(ethernet: bool, adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            mac: OWN_MAC.0,
            ipv4: Some((OWN, 24)),
            ethernet,
            connections: 64,
            listeners: 4,
            time_wait_records: 16,
            neighbors: 16,
            payload_blocks: 64,
            payload_block_len: 4096,
            ..Config::default()
        };
        adjust(&mut config);
        let region = Region::private(Stack::region_len(&config)).expect("memory");
        let mut carver = Carver::new(region).expect("fresh");
        let mut stack = Stack::create(&mut carver, &config).expect("room");
        let now = Instant(3_600_000_000_000);
        let settings = stack.default_settings();
        stack
            .listen(now, SocketAddr::from((OWN, 80)), 16, &settings)
            .expect("a free port");
        let wire = Wire {
            ethernet,
            ..Wire::default()
        };
        Self { stack, wire, now }
    }

    fn send_out(&mut self) {
        self.stack.poll_transmit(self.now, &mut self.wire);
        while self.stack.next_event().is_some() {}
    }

    fn take_in(&mut self, bytes: &[u8]) {
        let frame = Received {
            private: bytes,
            rest: Gather::EMPTY,
            offload: Offload::default(),
        };
        self.stack.handle_frame(self.now, &frame);
    }

    /// A packet of a peer, without an answer yet.
    fn packet(&mut self, number: u8, packet: &Packet) {
        let mut bytes = Vec::new();
        if self.wire.ethernet {
            bytes = frame(number, EtherType::IPV4);
        }
        bytes.extend(packet.bytes());
        self.take_in(&bytes);
    }

    /// Runs every timer of a span, each when it is due.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.stack.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.stack.handle_timeout(self.now);
            self.send_out();
            let next = self.stack.poll_timeout();
            assert!(
                next.is_none_or(|next| next > self.now),
                "what fired is due again at once"
            );
        }
        self.now = end;
    }

    fn connect(&mut self, number: u8) -> ConnectionId {
        let settings = self.stack.default_settings();
        self.stack
            .connect(self.now, None, peer(number), &settings)
            .expect("room for a connection")
    }

    /// A connection with a peer that offers this window. Returns the peer's next
    /// packet, an acknowledgement of what it got so far.
    fn established(&mut self, number: u8, window: u16) -> (ConnectionId, Packet) {
        let id = self.connect(number);
        self.send_out();
        let syn = self.wire.sent.pop().expect("a SYN");
        let local = SocketAddr::from((OWN, syn.header.src_port));
        let mut answer = Packet::new(
            peer(number),
            local,
            Flags::SYN | Flags::ACK,
            Seq(100),
            syn.header.seq + 1,
        );
        answer.header.options.mss = Some(1460);
        answer.header.options.sack_permitted = true;
        answer.header.window = window;
        self.now = self.now.plus_nanos(1_000_000);
        self.packet(number, &answer);
        self.send_out();
        self.wire.sent.clear();
        assert_eq!(self.stack.state(id), Ok(State::Established));
        let mut next = Packet::new(peer(number), local, Flags::ACK, Seq(101), syn.header.seq + 1);
        next.header.window = window;
        (id, next)
    }

    fn send(&mut self, id: ConnectionId, len: usize) {
        let sent = self.stack.send(id, &vec![7; len], SendFlags::default());
        assert_eq!(sent, Ok(len));
        self.send_out();
    }
}

/// A frame's Ethernet header.
fn frame(from: u8, ethertype: EtherType) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    ethernet::Header {
        dst: OWN_MAC,
        src: peer_mac(from),
        vlan: None,
        ethertype,
    }
    .emit(&mut frame);
    frame
}

/// A peer's question for this stack's hardware address, which tells its own.
fn arp_request(from: u8) -> Vec<u8> {
    let mut bytes = frame(from, EtherType::ARP);
    let at = bytes.len();
    bytes.resize(at + arp::PACKET_LEN, 0);
    arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: peer_mac(from),
        sender_ip: Ipv4Addr::new(10, 0, 0, from),
        target_mac: Mac([0; 6]),
        target_ip: OWN,
    }
    .emit(&mut bytes[at..]);
    bytes
}

#[test]
fn an_attempt_whose_syn_the_link_never_takes_ends() {
    let mut bench = Bench::new(false, |_| ());
    bench.wire.full = true;
    let id = bench.connect(2);
    bench.send_out();
    bench.pass(HOUR);
    assert_eq!(bench.stack.state(id), Ok(State::Closed));
    assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::TimedOut)));
    assert_eq!(bench.stack.counters().tcp_timeouts, 0, "no SYN was sent");
}

#[test]
fn a_half_open_connection_whose_answer_the_link_never_takes_ends() {
    let mut bench = Bench::new(false, |_| ());
    bench.wire.full = true;
    let syn = Packet::new(peer(2), SocketAddr::from((OWN, 80)), Flags::SYN, Seq(1), Seq(0));
    bench.packet(2, &syn);
    bench.send_out();
    assert_eq!(bench.stack.connections(), 1);
    bench.pass(HOUR);
    assert_eq!(bench.stack.connections(), 0);
}

#[test]
fn a_first_syn_that_waited_for_the_link_has_the_first_timeout() {
    let mut bench = Bench::new(false, |_| ());
    bench.wire.full = true;
    bench.connect(2);
    bench.send_out();
    bench.pass(Duration::from_secs(20));
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    bench.pass(Duration::from_millis(1100));
    assert_eq!(bench.wire.sent.len(), 2, "it is repeated after a second");
}

#[test]
fn unacknowledged_data_on_a_link_that_stays_full_end_in_a_timeout() {
    let mut bench = Bench::new(false, |_| ());
    let (id, _) = bench.established(2, u16::MAX);
    bench.send(id, 5000);
    bench.wire.sent.clear();
    bench.wire.full = true;
    bench.pass(HOUR);
    assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::TimedOut)));
    let counters = bench.stack.counters();
    assert_eq!(counters.tcp_retransmits + counters.tcp_tail_loss_probes, 0);
}

#[test]
fn a_connection_let_go_with_unsent_data_is_given_up_on_a_link_that_stays_full() {
    let mut bench = Bench::new(false, |_| ());
    let (id, _) = bench.established(2, u16::MAX);
    bench.wire.full = true;
    bench.send(id, 5000);
    bench.stack.close(bench.now, id).expect("it is there");
    bench.pass(HOUR);
    assert_eq!(bench.stack.connections(), 0);
    assert_eq!(bench.stack.payload_blocks_used(), 0);
}

#[test]
fn data_that_waited_for_the_link_have_the_first_timeout() {
    let mut bench = Bench::new(false, |config| config.tcp.sack = false);
    let (id, _) = bench.established(2, u16::MAX);
    bench.wire.full = true;
    bench.send(id, 100);
    bench.pass(Duration::from_secs(20));
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    bench.pass(Duration::from_millis(300));
    assert_eq!(bench.wire.sent.len(), 2, "it is repeated after one timeout");
}

#[test]
fn window_probes_the_link_did_not_take_are_not_counted() {
    let mut bench = Bench::new(false, |_| ());
    let (id, _) = bench.established(2, 0);
    bench.wire.full = true;
    bench.send(id, 100);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.stack.counters().tcp_window_probes, 0);
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    assert_eq!(bench.stack.counters().tcp_window_probes, 1);
}

#[test]
fn keepalive_probes_the_link_did_not_take_end_no_connection() {
    let mut bench = Bench::new(false, |_| ());
    let (id, mut ack) = bench.established(2, u16::MAX);
    for option in [
        SocketOption::KeepaliveIdle(Duration::from_secs(10)),
        SocketOption::KeepaliveInterval(Duration::from_secs(1)),
        SocketOption::KeepaliveProbes(2),
        SocketOption::Keepalive(true),
    ] {
        bench.stack.set_option(bench.now, id, option).expect("in range");
    }
    bench.wire.full = true;
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.stack.state(id), Ok(State::Established));
    assert_eq!(bench.stack.counters().tcp_keepalive_probes, 0);
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.stack.counters().tcp_keepalive_probes, 1);
    ack.header.ack = bench.wire.sent[0].header.seq + 1;
    bench.packet(2, &ack);
    bench.pass(Duration::from_millis(10_500));
    assert_eq!(bench.stack.counters().tcp_keepalive_probes, 2);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::TimedOut)));
}

#[test]
fn a_corked_connection_probes_a_closed_window_ever_more_rarely() {
    //= RFC 9293 §3.8.6.1
    let mut bench = Bench::new(false, |_| ());
    let (id, mut ack) = bench.established(2, u16::MAX);
    bench
        .stack
        .set_option(bench.now, id, SocketOption::Cork(true))
        .expect("in range");
    bench.send(id, 100);
    ack.header.window = 0;
    bench.packet(2, &ack);
    bench.pass(Duration::from_secs(100));
    let probes = bench.wire.sent.len();
    assert!((5..=10).contains(&probes), "{probes} probes in 100 seconds");
}

#[test]
fn a_timeout_that_is_due_is_not_put_off_by_what_arrives_before_it_is_seen_to() {
    //= RFC 6298 §5.4
    let mut bench = Bench::new(false, |config| config.tcp.sack = false);
    let (id, mut data) = bench.established(2, u16::MAX);
    bench.send(id, 100);
    bench.wire.sent.clear();
    data.payload = vec![1; 10];
    // The driver looks at the link more often than at the clock.
    for _ in 0..100 {
        bench.now = bench.now + Duration::from_millis(10);
        bench.packet(2, &data);
        data.header.seq += 10;
        bench.send_out();
        if bench.stack.poll_timeout().is_some_and(|due| due <= bench.now) {
            bench.stack.handle_timeout(bench.now);
            bench.send_out();
        }
    }
    assert!(bench.stack.counters().tcp_timeouts >= 2);
    assert!(
        bench
            .wire
            .sent
            .iter()
            .filter(|packet| !packet.payload.is_empty())
            .count()
            >= 2
    );
}

#[test]
fn a_connection_whose_neighbour_vanished_times_out() {
    //= RFC 1122 §4.2.3.5
    // With data in flight by then, and with data that find no way from the beginning.
    for idle in [Duration::ZERO, HOUR] {
        let mut bench = Bench::new(true, |_| ());
        bench.take_in(&arp_request(2));
        let (id, _) = bench.established(2, u16::MAX);
        bench.pass(idle);
        bench.send(id, 100);
        bench.pass(HOUR);
        assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::TimedOut)));
        bench.stack.close(bench.now, id).expect("it is there");
        bench.pass(HOUR);
        assert_eq!(bench.stack.connections(), 0);
        assert_eq!(bench.stack.payload_blocks_used(), 0);
    }
}

#[test]
fn replies_to_a_peer_that_reads_nothing_do_not_hold_up_others() {
    let mut bench = Bench::new(true, |_| ());
    bench.take_in(&arp_request(2));
    bench.take_in(&arp_request(3));
    bench.send_out();
    bench.wire.full_for = Some(peer_mac(2));
    let stray = |number: u8| {
        let closed = SocketAddr::from((OWN, 81));
        Packet::new(peer(number), closed, Flags::SYN, Seq(1), Seq(0))
    };
    for _ in 0..1000 {
        bench.packet(2, &stray(2));
    }
    bench.packet(3, &stray(3));
    for _ in 0..20 {
        bench.send_out();
    }
    let to_others = bench
        .wire
        .sent
        .iter()
        .filter(|packet| packet.destination == peer(3).ip());
    assert_eq!(to_others.count(), 1);
}

#[test]
fn connections_to_a_peer_that_reads_nothing_do_not_hold_up_others() {
    let mut bench = Bench::new(true, |_| ());
    bench.take_in(&arp_request(2));
    bench.take_in(&arp_request(3));
    let stuck: Vec<_> = (0..10).map(|_| bench.established(2, u16::MAX).0).collect();
    let (id, _) = bench.established(3, u16::MAX);
    bench.wire.full_for = Some(peer_mac(2));
    for stuck in stuck {
        assert_eq!(bench.stack.send(stuck, &[7; 100], SendFlags::default()), Ok(100));
    }
    assert_eq!(bench.stack.send(id, &[7; 100], SendFlags::default()), Ok(100));
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    assert_eq!(bench.wire.sent[0].destination, peer(3).ip());
}
