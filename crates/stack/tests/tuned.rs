//! Settings that programs change for single connections, as visible in sent segments.

#[allow(dead_code, reason = "other tests use the rest of it")]
mod support;

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use toehold_shm::{Carver, Region};
use toehold_stack::{
    Config, ConnectionId, Instant, SendFlags, Settings, SocketError, SocketOption, Stack, State,
};
use toehold_wire::{checksum, icmpv4, protocol};

use support::{HOSTS, LINK, Wire};

const PORT: u16 = 80;
const MS: u64 = 1_000_000;
const ETHERNET: usize = 14;

fn ipv6(host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host as u16 + 1)
}

fn stack(host: usize) -> Stack {
    let mut config = Config {
        mac: [2, 0, 0, 0, 0, host as u8 + 1],
        ipv4: Some((HOSTS[host], 24)),
        ipv6: Some((ipv6(host), 64)),
        connections: 16,
        listeners: 4,
        time_wait_records: 16,
        neighbors: 16,
        payload_blocks: 1024,
        link: LINK,
        ..Config::default()
    };
    config.tcp.rto_initial = Duration::from_secs(1);
    config.tcp.rto_min = Duration::from_millis(200);
    let mut carver = Carver::new(Region::private(Stack::region_len(&config)).unwrap()).unwrap();
    Stack::create(&mut carver, &config).unwrap()
}

/// Two hosts, and the packets that the first one has sent.
struct Pair {
    stacks: [Stack; 2],
    now: Instant,
    packets: Vec<Vec<u8>>,
    /// No segments arrive.
    cut: bool,
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            stacks: [stack(0), stack(1)],
            now: Instant(3_600_000 * MS),
            packets: Vec::new(),
            cut: false,
        };
        // Both have checked that their addresses are unique.
        for _ in 0..40 {
            pair.pass(100);
        }
        pair
    }

    /// Delivers all frames in flight, and their answers.
    fn exchange(&mut self) {
        for _ in 0..200 {
            let mut any = false;
            for from in 0..2 {
                let mut wire = Wire::default();
                self.stacks[from].poll_transmit(self.now, &mut wire);
                any |= !wire.0.is_empty();
                if from == 0 {
                    let packets = wire.0.iter().map(|(bytes, _)| bytes[ETHERNET..].to_vec());
                    self.packets.extend(packets.filter(|packet| is_tcp(packet)));
                }
                if self.cut {
                    wire.0.retain(|(bytes, _)| !is_tcp(&bytes[ETHERNET..]));
                }
                wire.deliver(&mut self.stacks[1 - from], self.now);
            }
            if !any {
                return;
            }
        }
    }

    /// Advances time by milliseconds, and runs the timers.
    fn pass(&mut self, ms: u64) {
        let end = Instant(self.now.0 + ms * MS);
        loop {
            self.exchange();
            let due = self.stacks.iter().filter_map(Stack::poll_timeout).min();
            let Some(due) = due.filter(|due| *due <= end) else {
                break;
            };
            self.now = self.now.max(due);
            for stack in &mut self.stacks {
                stack.handle_timeout(self.now);
            }
        }
        self.now = end;
        self.exchange();
    }

    fn settings(&self, options: &[SocketOption]) -> Settings {
        let mut settings = self.stacks[0].default_settings();
        for option in options {
            settings.apply(*option).unwrap();
        }
        settings
    }

    fn listen(&mut self, options: &[SocketOption]) -> toehold_stack::ListenerId {
        let (settings, now) = (self.settings(options), self.now);
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
        self.stacks[1].listen(now, any, 16, &settings).unwrap()
    }

    fn connect(&mut self, to: impl Into<IpAddr>, options: &[SocketOption]) -> ConnectionId {
        let (settings, now) = (self.settings(options), self.now);
        let to = SocketAddr::new(to.into(), PORT);
        self.packets.clear();
        let id = self.stacks[0].connect(now, None, to, &settings).unwrap();
        self.exchange();
        id
    }

    /// Both ends of a connection.
    fn connected(&mut self, options: &[SocketOption]) -> (ConnectionId, ConnectionId) {
        let listener = self.listen(&[]);
        let near = self.connect(HOSTS[1], options);
        (near, self.stacks[1].accept(listener).unwrap())
    }

    /// Connections in FIN-WAIT-2 that their program has closed.
    fn waiting(&self) -> usize {
        let released = self.stacks[0].released();
        released
            .filter(|(_, _, info)| info.state == State::FinWait2)
            .count()
    }

    fn set(&mut self, id: ConnectionId, option: SocketOption) {
        let now = self.now;
        self.stacks[0].set_option(now, id, option).unwrap();
    }

    fn send(&mut self, id: ConnectionId, len: usize) -> Vec<Vec<u8>> {
        self.packets.clear();
        let _ = self.stacks[0].send(id, &vec![7; len], SendFlags::default());
        self.exchange();
        self.packets.clone()
    }
}

fn is_tcp(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        4 => packet[9] == protocol::TCP,
        6 => packet[6] == protocol::TCP,
        _ => false,
    }
}

/// The hop limit of a packet, and its class.
fn hops_and_class(packet: &[u8]) -> (u8, u8) {
    match packet[0] >> 4 {
        4 => (packet[8], packet[1]),
        _ => (packet[7], packet[0] << 4 | packet[1] >> 4),
    }
}

#[test]
fn hop_limit_follows_option() {
    let mut pair = Pair::new();
    pair.listen(&[]);
    for (to, option, hops) in [
        (IpAddr::from(HOSTS[1]), SocketOption::TimeToLive(5), 5),
        (IpAddr::from(HOSTS[1]), SocketOption::HopLimit(5), 64),
        (IpAddr::from(ipv6(1)), SocketOption::HopLimit(5), 5),
        (IpAddr::from(ipv6(1)), SocketOption::TimeToLive(5), 64),
    ] {
        let id = pair.connect(to, &[option]);
        assert_eq!(
            pair.stacks[0].state(id),
            Ok(State::Established),
            "{to} {option:?}"
        );
        assert!(pair.packets.iter().all(|packet| hops_and_class(packet).0 == hops));
    }
    let id = pair.connect(HOSTS[1], &[]);
    pair.set(id, SocketOption::TimeToLive(255));
    assert_eq!(hops_and_class(&pair.send(id, 1)[0]).0, 255);
    pair.set(id, SocketOption::TimeToLive(0));
    assert_eq!(hops_and_class(&pair.send(id, 1)[0]).0, 64);
}

#[test]
fn packets_with_too_few_hops_are_dropped() {
    let least = [
        SocketOption::LeastTimeToLive(255),
        SocketOption::LeastHopLimit(255),
    ];
    for (to, most) in [
        (IpAddr::from(HOSTS[1]), SocketOption::TimeToLive(255)),
        (IpAddr::from(ipv6(1)), SocketOption::HopLimit(255)),
    ] {
        let mut pair = Pair::new();
        let listener = pair.listen(&least);
        let refused = pair.connect(to, &[]);
        assert_eq!(pair.stacks[0].state(refused), Ok(State::SynSent));
        assert_eq!(pair.stacks[1].counters().tcp_too_few_hops, 1);
        let id = pair.connect(to, &[most]);
        assert_eq!(pair.stacks[0].state(id), Ok(State::Established));
        let accepted = pair.stacks[1].accept(listener).unwrap();
        pair.send(id, 3);
        assert_eq!(pair.stacks[1].readable_bytes(accepted), Ok(3));
        // Accepted connections inherit that from the listener.
        for option in [SocketOption::TimeToLive(64), SocketOption::HopLimit(64)] {
            pair.set(id, option);
        }
        pair.send(id, 3);
        assert_eq!(pair.stacks[1].readable_bytes(accepted), Ok(3));
    }
}

#[test]
fn traffic_classes_of_families_are_separate() {
    let mut pair = Pair::new();
    pair.listen(&[]);
    let both = [
        SocketOption::TypeOfService(0x13),
        SocketOption::TrafficClassIpv6(0x20),
    ];
    for (to, class) in [(IpAddr::from(HOSTS[1]), 0x10), (IpAddr::from(ipv6(1)), 0x20)] {
        let id = pair.connect(to, &both);
        let sent = pair.send(id, 1);
        assert_eq!(hops_and_class(&sent[0]).1 & !3, class);
        let settings = pair.stacks[0].settings(id).unwrap();
        assert_eq!(
            (settings.type_of_service(), settings.traffic_class_ipv6()),
            (0x10, 0x20)
        );
        pair.set(id, SocketOption::TrafficClass(0x40));
        assert_eq!(hops_and_class(&pair.send(id, 1)[0]).1 & !3, 0x40);
    }
}

#[test]
fn syn_retransmissions_follow_option() {
    // As Linux counts: after this many retries, or after the time that they take when each waits
    // twice as long.
    for (option, syns) in [(None, 11), (Some(2), 6), (Some(1), 3), (Some(12), 17)] {
        let mut pair = Pair::new();
        pair.cut = true;
        let option = option.map(SocketOption::SynRetries);
        let id = pair.connect(HOSTS[1], option.as_slice());
        pair.pass(3_600_000);
        assert_eq!(pair.packets.len(), syns, "{option:?}");
        assert_eq!(pair.stacks[0].take_error(id), Ok(Some(SocketError::TimedOut)));
    }
}

#[test]
fn fin_wait_2_duration_follows_option() {
    for (option, ms) in [(0, 60_000), (5, 5000), (-1, 0), (1000, 120_000)] {
        let mut pair = Pair::new();
        let (near, far) = pair.connected(&[SocketOption::FinWait2(option)]);
        let now = pair.now;
        pair.stacks[0].close(now, near).unwrap();
        pair.exchange();
        assert_eq!(pair.stacks[1].state(far), Ok(State::CloseWait));
        if ms > 0 {
            pair.pass(ms - 1);
            assert_eq!(pair.waiting(), 1, "{option}");
        }
        pair.pass(2);
        assert_eq!(
            (pair.waiting(), pair.stacks[0].time_waits().count()),
            (0, 1),
            "{option}"
        );
    }
}

#[test]
fn advertised_window_is_within_clamp() {
    let window = |packet: &[u8]| u16::from_be_bytes([packet[20 + 14], packet[20 + 15]]);
    let mut pair = Pair::new();
    let (near, _) = pair.connected(&[SocketOption::WindowClamp(5000)]);
    let sent = pair.send(near, 100);
    // The first is the SYN's, which is never scaled.
    assert!(sent.iter().all(|packet| window(packet) <= 5000), "{sent:?}");
    let details = pair.stacks[0].details(pair.now, near).unwrap();
    assert!((1..=5000).contains(&details.receive_window), "{details:?}");
}

#[test]
fn timeouts_are_within_bounds_of_option() {
    // For a peer that is gone: how many times one segment leaves in twenty seconds.
    let repeats = |options: &[SocketOption]| {
        let mut pair = Pair::new();
        let (near, _) = pair.connected(options);
        pair.send(near, 1);
        pair.pass(1000);
        pair.cut = true;
        pair.send(near, 1);
        pair.pass(20_000);
        pair.packets.len()
    };
    let ordinary = repeats(&[]);
    assert!(repeats(&[SocketOption::LongestTimeout(1000)]) > ordinary);
    assert!(repeats(&[SocketOption::ShortestTimeout(1000)]) > ordinary);
    assert!(repeats(&[SocketOption::ThinLinearTimeouts(true)]) > ordinary);
    let mut pair = Pair::new();
    let (near, far) = pair.connected(&[]);
    pair.set(near, SocketOption::LongestAckDelay(1000));
    assert_eq!(pair.stacks[0].details(pair.now, near).unwrap().ack_delay_ns, MS);
    let ordinary = pair.stacks[1].details(pair.now, far).unwrap().ack_delay_ns;
    assert!(ordinary > MS);
}

#[test]
fn paced_data_do_not_exceed_rate() {
    const RATE: u64 = 1_000_000;
    let mut pair = Pair::new();
    let (near, far) = pair.connected(&[]);
    pair.set(near, SocketOption::MaxPacingRate(Some(RATE)));
    let (began, mut queued, mut came) = (pair.now, 0, 0_u64);
    let mut buffer = vec![0; 1 << 16];
    while came < RATE / 2 {
        queued += pair.stacks[0]
            .send(near, &buffer, SendFlags::default())
            .unwrap_or(0);
        pair.pass(1);
        while let Ok(len @ 1..) = pair.stacks[1].receive(far, &mut buffer, Default::default()) {
            came += len as u64;
        }
        let elapsed_ms = (pair.now - began).as_millis() as u64;
        // A burst of some milliseconds may be ahead.
        assert!(
            came <= (elapsed_ms + 10) * RATE / 1000,
            "{came} bytes in {elapsed_ms} ms"
        );
        assert!(elapsed_ms < 1000, "{came} of {queued} bytes have come");
    }
    // Without a limit, queued data do not wait.
    pair.set(near, SocketOption::MaxPacingRate(None));
    pair.pass(1);
    assert_eq!(pair.stacks[0].info(near).unwrap().unsent, 0);
}

/// A segment takes many retransmission timeouts: the stack neither probes nor retransmits
/// meanwhile.
#[test]
fn slow_paced_stream_probes_nothing() {
    let mut pair = Pair::new();
    let (near, far) = pair.connected(&[SocketOption::MaxPacingRate(Some(100))]);
    pair.send(near, 5000);
    pair.pass(40_000);
    // One leaves at once, and the others 14 s apart.
    assert_eq!(pair.packets.len(), 3, "{:?}", pair.stacks[0].info(near));
    assert_eq!(pair.stacks[1].readable_bytes(far), Ok(3 * 1448));
    assert_eq!(pair.stacks[0].info(near).unwrap().retransmits, 0);
}

#[test]
fn soft_error_is_reported_if_enabled() {
    for reports in [false, true] {
        let mut pair = Pair::new();
        let (near, _) = pair.connected(&[SocketOption::ReportErrors(reports)]);
        pair.cut = true;
        let about = pair.send(near, 5).remove(0);
        let message = icmpv4::Message::DestinationUnreachable {
            code: 1,
            mtu: 0,
            original: &about[..about.len().min(28)],
        };
        let mut packet = vec![0; 20 + message.len()];
        packet[0] = 0x45;
        let total = packet.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        (packet[8], packet[9]) = (64, protocol::ICMPV4);
        packet[12..16].copy_from_slice(&HOSTS[1].octets());
        packet[16..20].copy_from_slice(&HOSTS[0].octets());
        let sum = checksum::finish(checksum::sum(&packet[..20]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        message.emit(&mut packet[20..]);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend_from_slice(&packet);
        let mut wire = Wire::default();
        wire.0.push_back((frame, Default::default()));
        let now = pair.now;
        wire.deliver(&mut pair.stacks[0], now);
        // Without the option, only a query returns it.
        assert_eq!(pair.stacks[0].readiness(near).error, reports);
        let error = pair.stacks[0].take_error(near);
        assert_eq!(error, Ok(Some(SocketError::HostUnreachable)));
        // The connection continues.
        assert_eq!(pair.stacks[0].state(near), Ok(State::Established));
    }
}

#[test]
fn counts_match_traffic() {
    let mut pair = Pair::new();
    let (near, far) = pair.connected(&[]);
    let before = pair.stacks[0].details(pair.now, near).unwrap();
    assert_eq!((before.segments_sent, before.segments_received), (2, 1));
    assert_eq!(before.data_segments_sent, 0);
    pair.send(near, 10_000);
    pair.pass(5);
    let (sent, came) = (
        pair.stacks[0].details(pair.now, near).unwrap(),
        pair.stacks[1].details(pair.now, far).unwrap(),
    );
    let mss = u32::from(sent.info.segment_size);
    let segments = 10_000_u32.div_ceil(mss);
    assert_eq!(sent.data_segments_sent, segments);
    assert_eq!(came.data_segments_received, segments);
    assert_eq!(sent.bytes_sent, 10_000);
    assert_eq!((sent.bytes_retransmitted, sent.delivered), (0, segments + 1));
    assert!(sent.segments_received > 1 && came.segments_sent > 1);
    assert_eq!(came.last_data_received, Some(Instant(pair.now.0 - 5 * MS)));
    // Another connection in its slot starts with zero counts.
    let now = pair.now;
    pair.stacks[0].abort(near).unwrap();
    pair.stacks[1].abort(far).unwrap();
    pair.exchange();
    let (near, _) = (pair.connect(HOSTS[1], &[]), now);
    assert_eq!(
        pair.stacks[0].details(pair.now, near).unwrap().data_segments_sent,
        0
    );
}
