//! How well lossy paths are used, in virtual time: a machine's speed has no part
//! in it, so that bounds can be strict.

use core::time::Duration;

use toehold_link::impair::Impairments;
use toehold_sim::endpoint::{Outcome, Plan, Service};
use toehold_sim::network::{Network, NodeSettings};
use toehold_stack::{CongestionAlgorithm, Counters};

const BYTES: u64 = 10_000_000;
const MSS: f64 = 1448.0;
const DELAY_NS: u64 = 10_000_000;
const RATE_BPS: u64 = 100_000_000;

struct Path {
    loss: f64,
    reorder: f64,
    sack: bool,
    timestamps: bool,
    congestion: CongestionAlgorithm,
    /// Data flow in both directions.
    both: bool,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            loss: 0.0,
            reorder: 0.0,
            sack: true,
            timestamps: true,
            congestion: CongestionAlgorithm::Cubic,
            both: false,
        }
    }
}

/// What the sender counted, and its rate in bits a second.
fn transfer(path: &Path) -> (Counters, f64) {
    let mut network = Network::new(3);
    for node in 0..2 {
        let mut settings = NodeSettings::default();
        let impaired = node == 0 || path.both;
        settings.transmit = Impairments {
            loss: if impaired { path.loss } else { 0.0 },
            reorder: if impaired { path.reorder } else { 0.0 },
            reorder_delay_ns: 3_000_000,
            delay_ns: DELAY_NS,
            rate_bps: RATE_BPS,
            limit: 400,
            ..Impairments::default()
        };
        settings.config.tcp.sack = path.sack;
        settings.config.tcp.timestamps = path.timestamps;
        settings.config.tcp.congestion = path.congestion;
        network.add(&settings);
    }
    let [mut client, mut server] = Plan::pair(1, 0);
    for plan in [&mut client, &mut server] {
        plan.read_len = 1 << 18;
        plan.write_len = 1 << 18;
        plan.read_pause = Duration::ZERO;
        plan.write_pause = Duration::ZERO;
    }
    client.send = BYTES;
    server.receive = BYTES;
    if path.both {
        server.send = BYTES;
        client.receive = BYTES;
    }
    let start = network.now();
    network.serve_as(1, 80, false, Service::Fixed(server));
    network.connect_as(0, 1, 80, false, |_| client);
    network.run(Duration::from_secs(24 * 3600));
    let seconds = network.now().since(start).as_secs_f64();
    assert!(
        network
            .nodes
            .iter()
            .flat_map(|node| &node.endpoints)
            .all(|e| e.outcome == Outcome::Complete)
    );
    (*network.nodes[0].stack.counters(), BYTES as f64 * 8.0 / seconds)
}

/// What Reno reaches at such a rate of loss (Mathis et al., "The macroscopic
/// behavior of the TCP congestion avoidance algorithm", 1997), bits a second.
fn formula(loss: f64) -> f64 {
    let round_trip = 2.0 * DELAY_NS as f64 / 1e9;
    MSS * 8.0 / round_trip * (1.5f64 / loss).sqrt()
}

const BOTH: [CongestionAlgorithm; 2] = [CongestionAlgorithm::Reno, CongestionAlgorithm::Cubic];

#[test]
fn a_path_without_loss_is_filled() {
    for congestion in BOTH {
        for both in [false, true] {
            let (counters, rate) = transfer(&Path {
                congestion,
                both,
                ..Path::default()
            });
            assert!(
                rate > 0.7 * RATE_BPS as f64,
                "{congestion:?} both {both}: {rate:.0}"
            );
            // Slow start overshoots the queue once.
            assert!(counters.tcp_recoveries <= 3, "{}", counters.tcp_recoveries);
            assert_eq!((counters.tcp_timeouts, counters.tcp_spurious_recoveries), (0, 0));
        }
    }
}

#[test]
fn random_loss_is_repaired_without_timeouts() {
    //= RFC 8985 §6.2
    //= RFC 5681 §3.2
    for congestion in BOTH {
        for timestamps in [false, true] {
            for loss in [0.001, 0.01] {
                let (counters, rate) = transfer(&Path {
                    congestion,
                    timestamps,
                    loss,
                    ..Path::default()
                });
                let fair = formula(loss).min(RATE_BPS as f64);
                assert!(
                    rate > 0.6 * fair,
                    "{congestion:?} loss {loss}: {rate:.0} of {fair:.0}"
                );
                assert_eq!((counters.tcp_timeouts, counters.tcp_spurious_recoveries), (0, 0));
                let lost = counters.tcp_segments_sent as f64 * loss;
                assert!(
                    (counters.tcp_retransmits as f64) < 250.0 + 2.0 * lost,
                    "{}",
                    counters.tcp_retransmits
                );
            }
        }
    }
}

#[test]
fn losses_are_found_although_data_flow_both_ways() {
    //= RFC 2018 §4
    for congestion in BOTH {
        let (counters, rate) = transfer(&Path {
            congestion,
            loss: 0.01,
            both: true,
            ..Path::default()
        });
        assert!(rate > 0.6 * formula(0.01), "{congestion:?}: {rate:.0}");
        assert!(counters.tcp_timeouts <= 1, "{}", counters.tcp_timeouts);
    }
}

#[test]
fn reordering_is_learned() {
    //= RFC 8985 §6.2
    for congestion in BOTH {
        for timestamps in [false, true] {
            let path = Path {
                congestion,
                timestamps,
                reorder: 0.02,
                ..Path::default()
            };
            let (counters, rate) = transfer(&path);
            assert!(rate > 0.2 * RATE_BPS as f64, "{congestion:?}: {rate:.0}");
            assert!(counters.tcp_recoveries <= 10, "{}", counters.tcp_recoveries);
            assert_eq!(counters.tcp_timeouts, 0);
        }
    }
}

#[test]
fn losses_are_repaired_without_sack_too() {
    //= RFC 6582 §3.2
    for congestion in BOTH {
        let path = Path {
            congestion,
            sack: false,
            loss: 0.01,
            ..Path::default()
        };
        let (counters, rate) = transfer(&path);
        assert!(rate > 0.5 * formula(0.01), "{congestion:?}: {rate:.0}");
        assert!(counters.tcp_timeouts <= 3, "{}", counters.tcp_timeouts);
    }
}
