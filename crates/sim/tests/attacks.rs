//! Attacks by an attacker that cannot see a connection's packets. None
//! succeeds.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use toehold_link::Capabilities;
use toehold_sim::endpoint::Outcome;
use toehold_sim::host::{BEGINNING, Host};
use toehold_sim::network::{Network, NodeSettings};
use toehold_sim::packet::Packet;
use toehold_sim::seed::for_each_seed;
use toehold_stack::{Config, Instant, State};
use toehold_wire::tcp::{Flags, Seq, Timestamps};

/// Bytes a direction.
const MOST_BYTES: u64 = 3_000_000;

/// Number of forged packets in a network.
const FORGERIES: u32 = 20_000;

/// Distance from the right acknowledgement number from which none may be
/// accepted.
const FAR: u32 = 1 << 25;

/// Builds a forged segment that a connection must survive. The attacker knows
/// addresses and ports and guesses the rest. The guesses are as close as
/// possible without being right.
fn forgery(
    random: &mut fastrand::Rng,
    from: SocketAddr,
    to: SocketAddr,
    seq_end: Seq,
    ack_end: Seq,
) -> Packet {
    let near = seq_end + 1 + random.u32(..40_000);
    let seq = if random.bool() { near } else { Seq(random.u32(..)) };
    let wrong_ack = ack_end + FAR + random.u32(..u32::MAX - 2 * FAR);
    let (flags, len) = match random.u32(..6) {
        0 => (Flags::RST, 0),
        1 => (Flags::RST | Flags::ACK, 0),
        2 => (Flags::SYN, 0),
        3 => (Flags::SYN | Flags::ACK, 0),
        4 => (Flags::ACK | Flags::PSH, random.usize(1..1400)),
        _ => (Flags::ACK | Flags::FIN, random.usize(..10)),
    };
    let mut packet = Packet::new(from, to, flags, seq, wrong_ack);
    if random.bool() {
        let (value, echo) = (random.u32(..), random.u32(..));
        packet.header.options.timestamps = Some(Timestamps { value, echo });
    }
    packet.header.window = random.u16(..);
    packet.payload = vec![0xee; len];
    packet
}

#[test]
fn blind_attackers_break_no_connection() {
    //= RFC 5961 §3.2
    //= RFC 5961 §4.2
    //= RFC 5961 §5.2
    for_each_seed(8, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut network = Network::new(seed);
        for _ in 0..2 {
            let mut settings = NodeSettings::default();
            settings.config.tcp.timestamps = seed % 2 == 0;
            settings.transmit.delay_ns = 1_000_000;
            settings.transmit.rate_bps = 50_000_000;
            network.add(&settings);
        }
        network.serve(1, 80, false, MOST_BYTES);
        let id = network.connect(0, 1, 80, false, MOST_BYTES);
        let client = network.nodes[0].stack.local_addr(id).expect("connecting");
        let server = SocketAddr::new(network.address(1, false), 80);
        network.run_for(Duration::from_millis(50));
        for _ in 0..FORGERIES {
            // After the end, a forged SYN would open another connection, which the
            // other side rightly resets.
            if network.nodes.iter().any(|node| node.is_done()) {
                break;
            }
            network.run_for(Duration::from_micros(random.u64(..100)));
            let ends = [
                network.nodes[0]
                    .sequence_end(client.port(), 80)
                    .expect("the client has sent a SYN"),
                network.nodes[1]
                    .sequence_end(80, client.port())
                    .expect("the server has answered"),
            ];
            let [from, to] = if random.bool() {
                [client, server]
            } else {
                [server, client]
            };
            let victim = usize::from(to == server);
            let packet = forgery(&mut random, from, to, ends[1 - victim], ends[victim]);
            network.forge(victim, &packet);
        }
        network.run(Duration::from_secs(24 * 3600));
        for node in &network.nodes {
            assert!(
                node.endpoints
                    .iter()
                    .all(|endpoint| endpoint.outcome == Outcome::Complete),
                "{:?}",
                node.endpoints
            );
            assert_eq!(node.stack.counters().tcp_resets_received, 0);
        }
        network.settle();
    });
}

fn config() -> Config {
    Config {
        ipv4: Some((Ipv4Addr::new(10, 0, 0, 1), 8)),
        ethernet: false,
        link: Capabilities {
            mtu: 1500,
            super_frame: 1500,
            checksum_offload: false,
            local: false,
            any_thread: true,
        },
        connections: 4096,
        listeners: 16,
        payload_blocks: 256,
        ..Config::default()
    }
}

/// Builds a client's connection to the host's port 80 and sends a request of
/// `len` bytes.
fn honest_client(host: &mut Host, client: SocketAddr, len: usize) -> bool {
    let server = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
    let mut syn = Packet::new(client, server, Flags::SYN, Seq(7), Seq(0));
    syn.header.options.mss = Some(1460);
    host.sent.clear();
    host.inject(&syn).expect("well-behaved");
    let Some(answer) = host
        .sent
        .drain(..)
        .find(|sent| sent.packet.header.dst_port == client.port())
    else {
        return false;
    };
    assert_eq!(answer.packet.header.flags, Flags::SYN | Flags::ACK);
    let isn = answer.packet.header.seq;
    let mut request = Packet::new(client, server, Flags::ACK | Flags::PSH, Seq(8), isn + 1);
    request.payload = vec![1; len];
    host.inject(&request).expect("well-behaved");
    host.sent
        .drain(..)
        .any(|sent| sent.packet.header.ack == Seq(8) + len as u32)
}

#[test]
fn million_syns_leave_room_for_honest_clients() {
    //= RFC 4987 §3.6
    let mut host = Host::new(&config(), BEGINNING).expect("memory");
    let settings = host.stack.default_settings();
    let now = host.now();
    let listener = host
        .stack
        .listen(now, "0.0.0.0:80".parse().unwrap(), 64, &settings)
        .expect("a free port");
    let server = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
    let mut random = fastrand::Rng::with_seed(1);
    let mut syn = Packet::new("10.9.0.1:1".parse().unwrap(), server, Flags::SYN, Seq(0), Seq(0));
    let mut served = 0;
    for i in 0..1_000_000u32 {
        syn.source = IpAddr::V4(Ipv4Addr::from(
            0x0a09_0000 | random.u32(..0x00ff_ffff) & 0x00f6_ffff,
        ));
        syn.header.src_port = random.u16(1..);
        syn.header.seq = Seq(random.u32(..));
        syn.header.options.mss = Some(1460);
        host.inject(&syn).expect("well-behaved");
        host.sent.clear();
        if i % 10_000 == 5_000 {
            let later = Instant(host.now().0 + 20_000_000);
            host.advance(later).expect("well-behaved");
            let client = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 8, 0, 1)), 1000 + (i / 10_000) as u16);
            assert!(honest_client(&mut host, client, 100), "after {i} SYNs");
            let connection = host
                .stack
                .accept(listener)
                .expect("the connection is established");
            assert_eq!(host.stack.state(connection), Ok(State::Established));
            assert_eq!(host.stack.readable_bytes(connection), Ok(100));
            host.stack.abort(connection).expect("the connection is there");
            host.settle().expect("well-behaved");
            served += 1;
        }
        assert!(
            host.stack.connections() <= 80,
            "half-open connections are bounded by the backlog"
        );
        assert!(host.stack.payload_blocks_used() <= 1);
    }
    assert_eq!(served, 100);
    let counters = *host.stack.counters();
    assert!(counters.tcp_syn_cookies_sent > 990_000);
    assert!(counters.tcp_syn_cookies_accepted >= 95);
    // After the flood no connection and no timer remains.
    let later = Instant(host.now().0 + 600_000_000_000);
    host.advance(later).expect("well-behaved");
    assert_eq!(host.stack.connections(), 0);
    assert_eq!(host.stack.payload_blocks_used(), 0);
}

#[test]
fn guessed_cookies_open_no_connections() {
    //= RFC 4987 §3.6
    let mut host = Host::new(&config(), BEGINNING).expect("memory");
    let settings = host.stack.default_settings();
    let now = host.now();
    host.stack
        .listen(now, "0.0.0.0:80".parse().unwrap(), 1, &settings)
        .expect("a free port");
    let server = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
    let mut random = fastrand::Rng::with_seed(2);
    for port in 1..100 {
        let client = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), port);
        host.inject(&Packet::new(client, server, Flags::SYN, Seq(0), Seq(0)))
            .expect("well-behaved");
    }
    let before = host.stack.connections();
    for _ in 0..200_000 {
        let client = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)), random.u16(1..));
        let ack = Packet::new(
            client,
            server,
            Flags::ACK,
            Seq(random.u32(..)),
            Seq(random.u32(..)),
        );
        host.inject(&ack).expect("well-behaved");
        host.sent.clear();
    }
    let counters = host.stack.counters();
    // One guess in two million is right: eight segment sizes in 2^24, for two periods.
    assert!(
        counters.tcp_syn_cookies_accepted <= 2,
        "{}",
        counters.tcp_syn_cookies_accepted
    );
    assert!(host.stack.connections() <= before + 2);
}
