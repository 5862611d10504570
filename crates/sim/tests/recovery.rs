//! Throughput over lossy paths in virtual time. It does not depend on the
//! machine's speed, so bounds can be strict.

use core::time::Duration;

use toehold_link::impair::Impairments;
use toehold_sim::endpoint::{Outcome, Plan, Service};
use toehold_sim::network::{Network, NodeSettings};
use toehold_stack::{CongestionAlgorithm, Counters, Info, TcpConfig};

const BYTES: u64 = 10_000_000;
const MSS: f64 = 1448.0;
const DELAY_NS: u64 = 10_000_000;
const RATE_BPS: u64 = 100_000_000;

struct Path {
    loss: f64,
    reorder: f64,
    jitter_ns: u64,
    /// Rate in bits per second; 0 for no limit.
    rate_bps: u64,
    /// Most frames in flight.
    limit: usize,
    seed: u64,
    sack: bool,
    timestamps: bool,
    congestion: CongestionAlgorithm,
    /// Whether data flow in both directions.
    both: bool,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            loss: 0.0,
            reorder: 0.0,
            jitter_ns: 0,
            rate_bps: RATE_BPS,
            limit: 400,
            seed: 3,
            sack: true,
            timestamps: true,
            congestion: CongestionAlgorithm::Cubic,
            both: false,
        }
    }
}

/// Returns the sender's counters and its rate in bits per second.
fn transfer(path: &Path) -> (Counters, f64) {
    let mut network = Network::new(path.seed);
    for node in 0..2 {
        let mut settings = NodeSettings::default();
        let impaired = node == 0 || path.both;
        settings.transmit = Impairments {
            loss: if impaired { path.loss } else { 0.0 },
            reorder: if impaired { path.reorder } else { 0.0 },
            reorder_delay_ns: 3_000_000,
            delay_ns: DELAY_NS,
            jitter_ns: path.jitter_ns,
            rate_bps: path.rate_bps,
            limit: path.limit,
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

/// Returns Reno's rate in bits per second at a rate of loss (Mathis et al., "The
/// macroscopic behavior of the TCP congestion avoidance algorithm", 1997).
fn formula(loss: f64) -> f64 {
    let round_trip = 2.0 * DELAY_NS as f64 / 1e9;
    MSS * 8.0 / round_trip * (1.5f64 / loss).sqrt()
}

const BOTH: [CongestionAlgorithm; 2] = [CongestionAlgorithm::Reno, CongestionAlgorithm::Cubic];

#[test]
fn path_without_loss_is_filled() {
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
fn losses_are_found_with_data_in_both_directions() {
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

/// Regression: the window stayed at half of its size in the first round trips.
#[test]
fn spurious_loss_detection_is_undone() {
    for congestion in BOTH {
        for seed in 0..30 {
            let (counters, rate) = transfer(&Path {
                congestion,
                reorder: 0.05,
                jitter_ns: 3_000_000,
                rate_bps: 0,
                limit: 8192,
                seed,
                ..Path::default()
            });
            let (recoveries, spurious) = (counters.tcp_recoveries, counters.tcp_spurious_recoveries);
            assert_eq!(recoveries, spurious, "{congestion:?}, {seed}");
            assert!(rate > 50e6, "{congestion:?}, {seed}: {rate:.0}");
        }
    }
}

#[test]
fn losses_without_sack_are_repaired() {
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

/// Returns the rate over a path of 100 Mb/s, a round trip of 200 ms and a queue
/// of 2.5 MB.
fn over_a_long_path(buffer_max: u32) -> f64 {
    const BYTES: u64 = 100_000_000;
    let mut network = Network::new(5);
    for _ in 0..2 {
        let mut settings = NodeSettings {
            transmit: Impairments {
                delay_ns: 100_000_000,
                rate_bps: RATE_BPS,
                limit: 4000,
                ..Impairments::default()
            },
            ..NodeSettings::default()
        };
        settings.config.payload_blocks = 1 << 13;
        let tcp = &mut settings.config.tcp;
        (tcp.send_buffer_max, tcp.receive_buffer_max) = (buffer_max, buffer_max);
        network.add(&settings);
    }
    let [mut client, mut server] = Plan::pair(1, 0);
    for plan in [&mut client, &mut server] {
        (plan.read_len, plan.write_len) = (1 << 18, 1 << 18);
        (plan.read_pause, plan.write_pause) = (Duration::ZERO, Duration::ZERO);
    }
    (client.send, server.receive) = (BYTES, BYTES);
    let start = network.now();
    network.serve_as(1, 80, false, Service::Fixed(server));
    network.connect_as(0, 1, 80, false, |_| client);
    network.run(Duration::from_secs(3600));
    BYTES as f64 * 8.0 / network.now().since(start).as_secs_f64()
}

/// Buffers of the default size for short paths fill a long one to less than
/// half.
#[test]
fn growing_buffers_fill_long_path() {
    let (fixed, growing) = (over_a_long_path(0), over_a_long_path(8 << 20));
    assert!(fixed < 0.5 * RATE_BPS as f64, "{fixed:.0}");
    assert!(growing > 0.6 * RATE_BPS as f64, "{growing:.0}");
}

/// Returns the sender's counters and its connection's state after a stream of the
/// given span over a path that only delays.
fn delayed(delay_ms: u64, span: Duration, tcp: &TcpConfig) -> (Counters, Info) {
    let mut network = Network::new(6);
    for _ in 0..2 {
        let mut settings = NodeSettings::default();
        settings.transmit.delay_ns = delay_ms * 1_000_000;
        settings.config.tcp = tcp.clone();
        network.add(&settings);
    }
    let [mut client, mut server] = Plan::pair(1, 0);
    for plan in [&mut client, &mut server] {
        (plan.read_len, plan.write_len) = (1 << 18, 1 << 18);
        (plan.read_pause, plan.write_pause) = (Duration::ZERO, Duration::ZERO);
    }
    (client.send, server.receive) = (1 << 30, 1 << 30);
    network.serve_as(1, 80, false, Service::Fixed(server));
    let connection = network.connect_as(0, 1, 80, false, |_| client);
    network.run_for(span);
    let stack = &network.nodes[0].stack;
    let info = stack.info(connection).expect("it is there");
    (*stack.counters(), info)
}

/// Regression: of acknowledgements that arrived together only the first made the
/// window grow. Two seconds of slow start stayed far below the size of the buffers.
#[test]
fn all_acknowledgements_of_burst_grow_window() {
    //= RFC 5681 §3.1
    let (counters, info) = delayed(100, Duration::from_secs(2), &TcpConfig::default());
    assert_eq!((counters.tcp_timeouts, counters.tcp_recoveries), (0, 0));
    assert!(info.bytes_acked > 1_000_000, "{}", info.bytes_acked);
}

/// Regression: a segment shorter than the maximum counted as limited by the
/// congestion window. The window grew without end and could not have held back a
/// burst.
#[test]
fn unused_window_does_not_grow() {
    //= RFC 9438 §5.8
    let (_, info) = delayed(100, Duration::from_secs(20), &TcpConfig::default());
    // The buffers hold a MiB. Slow start goes to twice the used window, plus
    // one acknowledgement.
    assert!(
        info.congestion_window < (2 << 20) + (1 << 17),
        "{}",
        info.congestion_window
    );
}

/// Regression: a timeout shorter than the round trip caused every segment to be
/// sent again, so that none was measured. A hundred kilobytes took five seconds.
#[test]
fn timeout_shorter_than_round_trip_is_corrected() {
    //= RFC 7323 §4.1
    //= RFC 3522 §3.2
    for (timestamps, least) in [(true, 1_000_000), (false, 500_000)] {
        // A node's settings for links within a machine, over a path that leaves
        // it.
        let local = TcpConfig {
            timestamps,
            rto_min: Duration::from_millis(10),
            rto_initial: Duration::from_millis(200),
            delayed_ack: Duration::from_micros(500),
            ack_every: 8,
            ..TcpConfig::default()
        };
        let (counters, info) = delayed(200, Duration::from_secs(5), &local);
        let acked = info.bytes_acked;
        // One timeout for the SYN, and one to learn the round trip.
        assert!(counters.tcp_timeouts <= 2, "{}", counters.tcp_timeouts);
        assert!(acked > least, "timestamps {timestamps}: {acked}");
    }
}

/// Regression: acknowledgements of a burst arrive together and are processed
/// together. If one reported a loss, the threshold followed from the flight that
/// earlier ones had left. Often that was a fifth of the window instead of seven
/// tenths.
#[test]
fn loss_found_in_burst_of_acknowledgements_sets_right_threshold() {
    for congestion in BOTH {
        let mut seconds = 0.0;
        for seed in 0..4 {
            let mut network = Network::new(seed);
            for _ in 0..2 {
                let transmit = Impairments {
                    loss: 0.01,
                    delay_ns: DELAY_NS,
                    limit: 10_000,
                    ..Impairments::default()
                };
                let mut settings = NodeSettings {
                    transmit,
                    ..NodeSettings::default()
                };
                settings.config.tcp.congestion = congestion;
                network.add(&settings);
            }
            let [mut client, mut server] = Plan::pair(1, 0);
            for plan in [&mut client, &mut server] {
                (plan.read_len, plan.write_len) = (1 << 18, 1 << 18);
                (plan.read_pause, plan.write_pause) = (Duration::ZERO, Duration::ZERO);
            }
            (client.send, server.receive) = (BYTES, BYTES);
            network.serve_as(1, 80, false, Service::Fixed(server));
            let connection = network.connect_as(0, 1, 80, false, |_| client);
            let start = network.now();
            let stack = |network: &Network| network.nodes[0].stack.info(connection).ok();
            while stack(&network).is_some_and(|info| info.bytes_acked < BYTES) {
                network.run_for(Duration::from_millis(100));
            }
            seconds += network.now().since(start).as_secs_f64();
        }
        let rate = 4.0 * BYTES as f64 * 8.0 / seconds;
        let fair = formula(0.01);
        assert!(rate > 0.85 * fair, "{congestion:?}: {rate:.0} of {fair:.0}");
    }
}
