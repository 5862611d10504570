//! Streams continue when sequence numbers wrap around.

use core::time::Duration;

use toehold_link::impair::Impairments;
use toehold_sim::endpoint::{Outcome, Plan, Service};
use toehold_sim::network::{Network, NodeSettings};
use toehold_stack::CongestionAlgorithm;
use toehold_wire::tcp::Seq;

/// Nanoseconds of a tick of the clock that initial sequence numbers follow.
const ISN_TICK_NS: u64 = 4_000;

/// Most bytes a direction.
const MOST_BYTES: u64 = 400_000;

fn network(seed: u64) -> Network {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut network = Network::new(seed);
    for _ in 0..2 {
        let mut settings = NodeSettings {
            transmit: Impairments {
                loss: random.f64() * 0.1,
                reorder: random.f64() * 0.1,
                duplicate: random.f64() * 0.05,
                delay_ns: 5_000_000,
                ..Impairments::default()
            },
            ..NodeSettings::default()
        };
        settings.config.tcp.sack = random.bool();
        settings.config.tcp.congestion = CongestionAlgorithm::Reno;
        network.add(&settings);
    }
    network
}

/// Connects after a pause. Returns the initial sequence number of one end.
fn connect_after(seed: u64, pause: Duration, end: usize) -> (Network, Seq) {
    let mut network = network(seed);
    network.serve(1, 80, false, MOST_BYTES);
    network.run_for(pause);
    let id = network.connect(0, 1, 80, false, MOST_BYTES);
    let port = network.nodes[0].stack.local_addr(id).expect("connecting").port();
    let ports = if end == 0 { (port, 80) } else { (80, port) };
    let limit = network.now() + Duration::from_secs(600);
    loop {
        if let Some(behind_syn) = network.nodes[end].sequence_end(ports.0, ports.1) {
            return (network, behind_syn - 1);
        }
        assert!(network.step(limit), "the SYN is sent");
    }
}

#[test]
fn streams_cross_end_of_sequence_space() {
    //= RFC 9293 §3.4
    for seed in 0..10 {
        for end in 0..2 {
            let (_, isn) = connect_after(seed, Duration::ZERO, end);
            // The wrap comes within the stream.
            let wanted = Seq(0) - 1000 * (seed as u32 + 1);
            let ticks = u64::from(wanted.distance(isn));
            let (mut network, isn) = connect_after(seed, Duration::from_nanos(ticks * ISN_TICK_NS), end);
            assert!(
                wanted.distance(isn) < 100 || isn.distance(wanted) < 100,
                "{isn} instead of {wanted}"
            );
            network.run(Duration::from_secs(24 * 3600));
            let endpoints = network.nodes.iter().flat_map(|node| &node.endpoints);
            assert!(
                endpoints
                    .clone()
                    .all(|endpoint| endpoint.outcome == Outcome::Complete),
                "seed {seed}"
            );
            network.settle();
        }
    }
}

/// Sends more in one direction than there are sequence numbers.
fn send_more_than_the_sequence_space(bytes: u64) {
    let settings = NodeSettings {
        local: true,
        in_place: true,
        ..NodeSettings::default()
    };
    let mut network = Network::new(1);
    network.add(&settings);
    network.add(&settings);
    let [mut client, mut server] = Plan::pair(1, 0);
    for plan in [&mut client, &mut server] {
        plan.read_len = 1 << 18;
        plan.write_len = 1 << 18;
        plan.read_pause = Duration::ZERO;
        plan.write_pause = Duration::ZERO;
    }
    client.send = bytes;
    server.receive = bytes;
    network.serve_as(1, 80, false, Service::Fixed(server));
    network.connect_as(0, 1, 80, false, |_| client);
    network.run(Duration::from_secs(3600));
    for node in &network.nodes {
        assert!(
            node.endpoints
                .iter()
                .all(|endpoint| endpoint.outcome == Outcome::Complete)
        );
        assert_eq!(node.stack.counters().tcp_retransmits, 0);
    }
    network.settle();
}

#[test]
fn super_frames_carry_long_stream() {
    //= RFC 9293 §3.4
    send_more_than_the_sequence_space(200_000_000);
}

#[test]
#[ignore = "slow: checks every byte of five gigabytes"]
fn stream_longer_than_sequence_space_is_intact() {
    //= RFC 9293 §3.4
    send_more_than_the_sequence_space(5_000_000_000);
}
