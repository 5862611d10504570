//! Streams over networks with faults.

use core::time::Duration;

use toehold_link::impair::Impairments;
use toehold_sim::endpoint::Outcome;
use toehold_sim::network::{Network, NodeSettings};
use toehold_sim::seed::{DEFAULT_SEEDS, for_each_seed};
use toehold_stack::{CongestionAlgorithm, SocketError};

/// Most bytes a direction.
const MOST_BYTES: u64 = 200_000;

/// Longest virtual time that a connection may take.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Draws one direction's faults, from none to a fifth of all frames lost.
fn impairments(random: &mut fastrand::Rng) -> Impairments {
    let some = |random: &mut fastrand::Rng, most: f64| if random.bool() { 0.0 } else { random.f64() * most };
    Impairments {
        loss: some(random, 0.2),
        duplicate: some(random, 0.1),
        corrupt: some(random, 0.05),
        reorder: some(random, 0.2),
        reorder_delay_ns: random.u64(..20_000_000),
        delay_ns: random.u64(..50_000_000),
        jitter_ns: if random.bool() {
            0
        } else {
            random.u64(..10_000_000)
        },
        rate_bps: if random.bool() {
            0
        } else {
            random.u64(2_000_000..1_000_000_000)
        },
        limit: if random.bool() { 4096 } else { random.usize(8..200) },
    }
}

fn settings(random: &mut fastrand::Rng) -> NodeSettings {
    let mut settings = NodeSettings {
        transmit: impairments(random),
        receive: Impairments::default(),
        mtu: if random.u32(..4) == 0 {
            random.u16(576..9000).max(1280)
        } else {
            1500
        },
        ..NodeSettings::default()
    };
    let tcp = &mut settings.config.tcp;
    tcp.sack = random.u32(..4) > 0;
    tcp.timestamps = random.u32(..4) > 0;
    tcp.window_scaling = random.u32(..4) > 0;
    tcp.ecn = random.bool();
    tcp.congestion = if random.bool() {
        CongestionAlgorithm::Reno
    } else {
        CongestionAlgorithm::Cubic
    };
    tcp.receive_buffer = 1 << random.u32(11..20);
    tcp.send_buffer = 1 << random.u32(12..20);
    settings
}

fn run_seed(seed: u64) -> (u64, Vec<Outcome>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut network = Network::new(seed);
    for _ in 0..2 {
        network.add(&settings(&mut random));
    }
    let ipv6 = random.bool();
    network.serve(1, 80, ipv6, MOST_BYTES);
    for _ in 0..random.u32(1..4) {
        network.connect(0, 1, 80, ipv6, MOST_BYTES);
    }
    network.run(PATIENCE);
    let outcomes = network
        .nodes
        .iter()
        .flat_map(|node| node.endpoints.iter().map(|e| e.outcome))
        .collect();
    network.settle();
    (network.fingerprint(), outcomes)
}

#[test]
fn every_stream_is_intact_or_fails() {
    //= RFC 9293 §3.8.1
    for_each_seed(DEFAULT_SEEDS, |seed| {
        for outcome in run_seed(seed).1 {
            // Too few packets of an attempt to connect may get through.
            let failed = [SocketError::TimedOut, SocketError::HostUnreachable].map(Outcome::Failed);
            assert!(
                outcome == Outcome::Complete || failed.contains(&outcome),
                "{outcome:?}"
            );
        }
    });
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 0..5 {
        assert_eq!(run_seed(seed), run_seed(seed), "seed {seed}");
    }
    assert_ne!(run_seed(1).0, run_seed(2).0);
}

#[test]
fn streams_without_faults_complete_without_retransmission() {
    for seed in 0..20 {
        for (local, in_place) in [(false, false), (true, false), (true, true)] {
            let mut network = Network::new(seed);
            for _ in 0..2 {
                network.add(&NodeSettings {
                    local,
                    in_place,
                    ..NodeSettings::default()
                });
            }
            network.serve(1, 80, false, 20 * MOST_BYTES);
            network.connect(0, 1, 80, false, 20 * MOST_BYTES);
            network.run(Duration::from_secs(48 * 3600));
            for node in &network.nodes {
                let counters = node.stack.counters();
                assert!(
                    node.endpoints
                        .iter()
                        .all(|endpoint| endpoint.outcome == Outcome::Complete)
                );
                assert_eq!(counters.tcp_retransmits, 0);
                assert_eq!(counters.tcp_timeouts, 0);
                assert_eq!(counters.drop_checksum, 0);
            }
            network.settle();
        }
    }
}

#[test]
fn streams_with_scarce_memory_all_complete() {
    for_each_seed(30, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut network = Network::new(seed);
        for _ in 0..2 {
            let mut settings = settings(&mut random);
            settings.config.payload_blocks = random.u32(24..64);
            settings.config.payload_block_len = 4096;
            network.add(&settings);
        }
        network.serve(1, 80, false, MOST_BYTES / 4);
        for _ in 0..8 {
            network.connect(0, 1, 80, false, MOST_BYTES / 4);
        }
        network.run(PATIENCE);
        network.settle();
    });
}

#[test]
fn aborted_connections_leave_nothing() {
    //= RFC 9293 §3.10.5
    for_each_seed(60, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut network = Network::new(seed);
        let local = random.bool();
        for _ in 0..2 {
            let mut settings = settings(&mut random);
            if local {
                settings.transmit = Impairments::default();
            }
            settings.local = local;
            settings.in_place = local;
            network.add(&settings);
        }
        network.serve(1, 80, false, MOST_BYTES);
        for _ in 0..20 {
            network.connect(0, 1, 80, false, MOST_BYTES);
            network.run_for(Duration::from_micros(random.u64(..200_000)));
            for node in &mut network.nodes {
                let Some(victim) = random.choice(0..node.endpoints.len()) else {
                    continue;
                };
                if random.bool() && node.endpoints[victim].outcome == Outcome::Running {
                    node.abort_endpoint(victim);
                }
            }
        }
        network.run_for(Duration::from_secs(1));
        for node in &mut network.nodes {
            (0..node.endpoints.len()).for_each(|index| node.abort_endpoint(index));
        }
        network.settle();
    });
}
