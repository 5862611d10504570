//! How well lossy paths are used, in virtual time: a machine's speed has no part
//! in it, so that bounds can be strict.

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
    /// Bits a second; 0: no bound.
    rate_bps: u64,
    /// Most frames on the way.
    limit: usize,
    seed: u64,
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

/// What the sender counted, and its rate in bits a second.
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

/// The window had stayed at half of what it was in the first round trips.
#[test]
fn what_comes_before_it_is_sent_again_was_not_lost() {
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

/// What two ends get of a path of 100 Mb/s and 200 ms a round trip, which holds 2.5 MB.
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

/// With the buffers that are enough for short paths, a long one was never more than half full.
#[test]
fn a_long_path_is_filled_by_buffers_that_grow() {
    let (fixed, growing) = (over_a_long_path(0), over_a_long_path(8 << 20));
    assert!(fixed < 0.5 * RATE_BPS as f64, "{fixed:.0}");
    assert!(growing > 0.6 * RATE_BPS as f64, "{growing:.0}");
}

/// What a sender counts, and how its connection is, after so long a stream that nothing but
/// a delay holds up.
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

/// Of the acknowledgements that came together only the first one made the window grow: two
/// seconds of slow start got nowhere near what the buffers allow.
#[test]
fn acknowledgements_that_come_together_all_make_the_window_grow() {
    //= RFC 5681 §3.1
    let (counters, info) = delayed(100, Duration::from_secs(2), &TcpConfig::default());
    assert_eq!((counters.tcp_timeouts, counters.tcp_recoveries), (0, 0));
    assert!(info.bytes_acked > 1_000_000, "{}", info.bytes_acked);
}

/// What stopped the sender was taken for the congestion window whenever a segment, which is
/// shorter, was sent: the window grew for ever, and nothing would have held back a burst.
#[test]
fn a_window_that_is_not_used_does_not_grow() {
    //= RFC 9438 §5.8
    let (_, info) = delayed(100, Duration::from_secs(20), &TcpConfig::default());
    // The buffers hold a MiB. Slow start goes on to twice what is used, and an acknowledgement beyond.
    assert!(
        info.congestion_window < (2 << 20) + (1 << 17),
        "{}",
        info.congestion_window
    );
}

/// A timeout shorter than the round trip had every segment sent again, so that none was ever
/// measured: a hundred kilobytes came through in five seconds.
#[test]
fn a_timeout_shorter_than_the_path_is_corrected() {
    //= RFC 7323 §4.1
    //= RFC 3522 §3.2
    for (timestamps, least) in [(true, 1_000_000), (false, 500_000)] {
        // Those that nodes have for links within a machine, over a path that leaves it.
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
        // The SYN, and what is needed to find out.
        assert!(counters.tcp_timeouts <= 2, "{}", counters.tcp_timeouts);
        assert!(acked > least, "timestamps {timestamps}: {acked}");
    }
}

/// The acknowledgements of a burst come together and are answered together. When one of them
/// told of a loss, the threshold was computed of what those before it had left in flight: often
/// a fifth of the window instead of seven tenths.
#[test]
fn a_loss_that_is_found_amid_acknowledgements_costs_no_more_of_the_window() {
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
