use proptest::prelude::*;

use super::*;

const MSS: u32 = 1000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A connection that always has more to send than the window allows.
struct Flow {
    window: Congestion,
    now: Instant,
    rtt_ns: u64,
    /// Bytes that an acknowledgement covers.
    stride: u32,
}

impl Flow {
    fn new(algorithm: CongestionAlgorithm, rtt_ns: u64) -> Self {
        Self {
            window: Congestion::new(algorithm, 10 * MSS, MSS),
            now: Instant(SECOND),
            rtt_ns,
            stride: MSS,
        }
    }

    fn ack(&self, acked_bytes: u32) -> Ack {
        Ack {
            now: self.now,
            acked_bytes,
            rtt_ns: self.rtt_ns,
            min_rtt_ns: self.rtt_ns,
            cwnd_limited: true,
            mss: MSS,
            in_recovery: false,
        }
    }

    /// A round trip that acknowledges a window's worth of data.
    fn round(&mut self) {
        let (mut left, strides) = (self.window.cwnd(), self.window.cwnd().div_ceil(self.stride));
        for _ in 0..strides {
            self.now = self.now.plus_nanos(self.rtt_ns / u64::from(strides));
            let acked = left.min(self.stride);
            self.window.on_ack(self.ack(acked));
            left -= acked;
        }
    }

    /// Loss, and a recovery that lasts a round trip.
    fn lose(&mut self) {
        self.window.on_loss_event(self.now, MSS, self.window.cwnd());
        self.now = self.now.plus_nanos(self.rtt_ns);
        self.window.on_recovery_exit(self.now, MSS, self.window.cwnd());
    }

    /// As if the window had grown to this many segments.
    fn jump(&mut self, segments: u32) {
        self.window.set_cwnd(segments * MSS);
    }

    fn segments(&self) -> f64 {
        f64::from(self.window.cwnd()) / f64::from(MSS)
    }
}

fn both() -> [Flow; 2] {
    [CongestionAlgorithm::Reno, CongestionAlgorithm::Cubic].map(|algorithm| Flow::new(algorithm, 50 * MS))
}

#[test]
fn slow_start_doubles_window_every_round_trip() {
    //= RFC 5681 §3.1
    //= RFC 3465 §2.2
    for mut flow in both() {
        for round in 1..8 {
            flow.round();
            assert!(flow.window.in_slow_start());
            assert_eq!(flow.window.cwnd(), (10 * MSS) << round);
        }
    }
}

#[test]
fn super_frame_acknowledgement_counts_in_full() {
    //= RFC 9406 §4.3
    for mut flow in both() {
        flow.jump(128);
        flow.stride = 65_000;
        flow.round();
        assert_eq!(flow.window.cwnd(), 256 * MSS);
        // A late acknowledgement after lost ones does not open the window without bound.
        flow.window.on_ack(flow.ack(1 << 28));
        assert_eq!(flow.window.cwnd(), 256 * MSS + STRETCH_BYTES);
    }
}

#[test]
fn unused_window_does_not_grow() {
    //= RFC 7661 §4.3
    //= RFC 9438 §5.8
    for mut flow in both() {
        for lost in [false, true] {
            if lost {
                flow.lose();
            }
            let before = flow.window.cwnd();
            for _ in 0..100 {
                flow.window.on_ack(Ack {
                    cwnd_limited: false,
                    ..flow.ack(MSS)
                });
                flow.now = flow.now.plus_nanos(SECOND);
            }
            assert_eq!(flow.window.cwnd(), before);
        }
    }
}

#[test]
fn window_in_fast_recovery_ignores_acknowledgements() {
    for mut flow in both() {
        flow.window.on_loss_event(flow.now, MSS, 10 * MSS);
        let before = flow.window.cwnd();
        flow.window.on_ack(Ack {
            in_recovery: true,
            ..flow.ack(5 * MSS)
        });
        assert_eq!(flow.window.cwnd(), before);
        // Proportional rate reduction sets the window, which ends at the threshold.
        flow.window.set_cwnd(3 * MSS);
        flow.window.on_recovery_exit(flow.now, MSS, MSS);
        //= RFC 9937 §6
        assert_eq!(flow.window.cwnd(), flow.window.ssthresh());
    }
}

#[test]
fn loss_halves_reno_window_and_cuts_cubic_by_three_tenths() {
    let [mut reno, mut cubic] = both();
    for flow in [&mut reno, &mut cubic] {
        flow.jump(100);
        flow.lose();
        assert!(!flow.window.in_slow_start());
    }
    //= RFC 5681 §3.1
    assert_eq!(reno.window.cwnd(), 50 * MSS);
    //= RFC 9438 §4.6
    assert_eq!(cubic.window.cwnd(), 70 * MSS);
    for mut flow in both() {
        flow.window.on_loss_event(flow.now, MSS, MSS);
        assert_eq!(flow.window.ssthresh(), 2 * MSS, "two segments at least");
    }
}

#[test]
fn mark_reduces_window_like_loss_and_is_not_undone() {
    //= RFC 3168 §6.1.2
    for mut flow in both() {
        flow.jump(100);
        let mut by_loss = flow.window;
        by_loss.on_loss_event(flow.now, MSS, 100 * MSS);
        flow.window.on_ecn(flow.now, MSS, 100 * MSS);
        assert_eq!(flow.window.cwnd(), by_loss.cwnd());
        flow.window.undo();
        assert_eq!(flow.window.cwnd(), by_loss.cwnd());
        // A loss and a mark in one window of data are one event.
        let before = by_loss.cwnd();
        by_loss.on_ecn(flow.now, MSS, 100 * MSS);
        assert_eq!(by_loss.cwnd(), before);
    }
}

#[test]
fn timeout_leaves_one_segment_and_series_counts_once() {
    //= RFC 5681 §3.1
    for mut flow in both() {
        flow.jump(100);
        flow.window.on_timeout(flow.now, MSS, 100 * MSS, true);
        let ssthresh = flow.window.ssthresh();
        assert_eq!(flow.window.cwnd(), MSS);
        assert!((50 * MSS..=70 * MSS).contains(&ssthresh));
        flow.window.on_timeout(flow.now, MSS, MSS, false);
        assert_eq!((flow.window.cwnd(), flow.window.ssthresh()), (MSS, ssthresh));
    }
}

#[test]
fn old_acknowledgement_after_timeout_counts_as_one_segment() {
    //= RFC 3465 §2.3
    for mut flow in both() {
        flow.jump(100);
        flow.window.on_timeout(flow.now, MSS, 100 * MSS, true);
        flow.window.on_ack(flow.ack(60 * MSS));
        assert_eq!(flow.window.cwnd(), 2 * MSS);
        flow.window.on_ack(flow.ack(40 * MSS));
        assert_eq!(flow.window.cwnd(), 3 * MSS);
        // This acknowledges all data that were in flight then.
        flow.window.on_ack(flow.ack(5 * MSS));
        assert_eq!(flow.window.cwnd(), 8 * MSS);
    }
}

#[test]
fn spurious_reduction_is_undone() {
    //= RFC 9438 §4.9.1
    //= RFC 4015 §3
    for mut flow in both() {
        flow.jump(100);
        for timeout in [false, true] {
            let before = (flow.window.cwnd(), flow.window.ssthresh());
            if timeout {
                flow.window.on_timeout(flow.now, MSS, 100 * MSS, true);
                flow.window.on_timeout(flow.now, MSS, 100 * MSS, false);
            } else {
                flow.window.on_loss_event(flow.now, MSS, 100 * MSS);
                flow.window.set_cwnd(20 * MSS);
            }
            assert_ne!(before, (flow.window.cwnd(), flow.window.ssthresh()));
            flow.window.undo();
            assert_eq!(before, (flow.window.cwnd(), flow.window.ssthresh()));
            flow.window.undo();
            assert_eq!(before, (flow.window.cwnd(), flow.window.ssthresh()), "only once");
        }
    }
}

#[test]
fn window_after_idle_time_restarts() {
    //= RFC 5681 §4.1
    for mut flow in both() {
        flow.jump(100);
        flow.window.restart_after_idle(10 * MSS);
        assert_eq!(flow.window.cwnd(), 10 * MSS);
        flow.jump(4);
        flow.window.restart_after_idle(10 * MSS);
        assert_eq!(flow.window.cwnd(), 4 * MSS);
    }
}

#[test]
fn smaller_segment_size_keeps_window() {
    //= RFC 8201 §5.4
    for mut flow in both() {
        flow.window.set_mss(500);
        assert_eq!(flow.window.cwnd(), 10 * MSS);
        flow.window.set_cwnd(500);
        flow.window.set_mss(9000);
        assert_eq!(flow.window.cwnd(), 9000);
    }
}

#[test]
fn reno_adds_one_segment_per_round_trip() {
    //= RFC 5681 §3.1
    //= RFC 3465 §2.1
    for stride in [MSS, 2 * MSS, 30 * MSS] {
        let mut flow = Flow::new(CongestionAlgorithm::Reno, 50 * MS);
        flow.jump(120);
        flow.lose();
        flow.stride = stride;
        for round in 1..50 {
            flow.round();
            let expected = 60 + round;
            assert!(
                (flow.segments() - f64::from(expected)).abs() <= 1.0,
                "{} {expected}",
                flow.segments()
            );
        }
    }
}

/// RFC 9438's curve in floating point, in segments and seconds.
fn curve(w_max: f64, cwnd_epoch: f64, t: f64) -> f64 {
    let k = ((w_max - cwnd_epoch) / 0.4).cbrt();
    0.4 * (t - k).powi(3) + w_max
}

#[test]
fn cubic_window_follows_curve() {
    //= RFC 9438 §4.2
    //= RFC 9438 §4.4
    //= RFC 9438 §4.5
    for stride in [MSS, 64 * MSS] {
        let mut flow = Flow::new(CongestionAlgorithm::Cubic, 100 * MS);
        flow.jump(1000);
        flow.lose();
        flow.stride = stride;
        let start = flow.now;
        for _ in 0..250 {
            flow.round();
            let t = flow.now.nanos_since(start) as f64 / 1e9;
            let expected = curve(1000.0, 700.0, t);
            let off = (flow.segments() - expected).abs() / expected;
            // The window follows the target of the last round trip.
            assert!(off < 0.03, "at {t} s: {} instead of {expected}", flow.segments());
        }
        // K is 9.09 s: there the window is back at W_max.
        assert!(flow.segments() > 2000.0);
    }
}

#[test]
fn cubic_grows_by_at_most_half_per_round_trip() {
    //= RFC 9438 §4.2
    let mut flow = Flow::new(CongestionAlgorithm::Cubic, 100 * MS);
    flow.jump(100);
    flow.lose();
    flow.round();
    // The curve has run far ahead of the window.
    flow.now = flow.now.plus_nanos(60 * SECOND);
    let before = flow.segments();
    flow.round();
    assert!(
        flow.segments() > 1.4 * before && flow.segments() < 1.7 * before,
        "{}",
        flow.segments()
    );
}

#[test]
fn cubic_on_short_path_is_as_fast_as_reno() {
    //= RFC 9438 §4.3
    let mut flow = Flow::new(CongestionAlgorithm::Cubic, MS);
    flow.jump(100);
    flow.lose();
    // 30 segments to make up at 9/17 of a segment a round trip.
    for _ in 0..57 {
        flow.round();
    }
    assert!((flow.segments() - 100.0).abs() < 2.0, "{}", flow.segments());
    // From there on like Reno.
    for _ in 0..50 {
        flow.round();
    }
    assert!((flow.segments() - 150.0).abs() < 3.0, "{}", flow.segments());
}

#[test]
fn cubic_with_fast_convergence_yields_to_newcomers() {
    //= RFC 9438 §4.7
    let mut flow = Flow::new(CongestionAlgorithm::Cubic, 100 * MS);
    flow.jump(1000);
    flow.lose();
    assert_eq!(flow.window.w_max, 1000 * MSS);
    flow.jump(900);
    flow.lose();
    assert_eq!(flow.window.w_max, 765 * MSS, "0.85 of the window");
    flow.jump(1200);
    flow.lose();
    assert_eq!(flow.window.w_max, 1200 * MSS);
}

#[test]
fn app_limited_time_is_excluded_from_curve() {
    //= RFC 9438 §4.2
    //= RFC 9438 §5.8
    let mut flow = Flow::new(CongestionAlgorithm::Cubic, 100 * MS);
    flow.jump(1000);
    flow.lose();
    for _ in 0..20 {
        flow.round();
    }
    let mut undisturbed = Flow {
        window: flow.window,
        ..flow
    };
    for _ in 0..60 {
        flow.window.on_ack(Ack {
            cwnd_limited: false,
            ..flow.ack(MSS)
        });
        flow.now = flow.now.plus_nanos(SECOND);
    }
    for _ in 0..50 {
        flow.round();
        undisturbed.round();
        assert!((flow.segments() - undisturbed.segments()).abs() < 5.0);
    }
}

#[test]
fn curve_after_timeout_begins_at_plateau() {
    //= RFC 9438 §4.8
    let mut flow = Flow::new(CongestionAlgorithm::Cubic, 100 * MS);
    flow.jump(100);
    flow.window.on_timeout(flow.now, MSS, 100 * MSS, true);
    while flow.window.in_slow_start() {
        flow.round();
    }
    let (start, from) = (flow.now, flow.segments());
    assert!((70.0..75.0).contains(&from));
    for _ in 0..50 {
        flow.round();
    }
    let t = flow.now.nanos_since(start) as f64 / 1e9;
    let expected = (from + 0.4 * t.powi(3)).max(from + 50.0 * 9.0 / 17.0);
    assert!(
        (flow.segments() - expected).abs() < 0.05 * expected,
        "{} {expected}",
        flow.segments()
    );
}

#[test]
fn undo_resumes_curve() {
    //= RFC 9438 §4.9.1
    // In the concave region after 30 round trips, in the convex one after 150.
    for rounds in [30, 150] {
        let mut flow = Flow::new(CongestionAlgorithm::Cubic, 100 * MS);
        flow.jump(1000);
        flow.lose();
        for _ in 0..rounds {
            flow.round();
        }
        let mut undisturbed = Flow {
            window: flow.window,
            ..flow
        };
        flow.window.on_loss_event(flow.now, MSS, flow.window.cwnd());
        flow.window.undo();
        for _ in 0..40 {
            flow.round();
            undisturbed.round();
        }
        let off = (flow.segments() - undisturbed.segments()).abs() / undisturbed.segments();
        assert!(off < 0.02, "{} {}", flow.segments(), undisturbed.segments());
    }
}

#[test]
fn growing_round_trips_end_first_slow_start() {
    //= RFC 9406 §4.2
    let mut flow = Flow::new(CongestionAlgorithm::Cubic, 50 * MS);
    for _ in 0..4 {
        flow.round();
    }
    assert_eq!(flow.window.cwnd(), 160 * MSS);
    // A queue begins to build: more than an eighth is added to the round trip.
    flow.rtt_ns = 60 * MS;
    flow.round();
    let entered = flow.segments();
    assert!((160.0..321.0).contains(&entered), "{entered}");
    assert!(flow.window.in_slow_start(), "conservatively at first");
    let mut rounds = 0;
    while flow.window.in_slow_start() {
        let before = flow.segments();
        flow.round();
        assert!(flow.segments() < 1.3 * before, "a quarter of slow start's growth");
        rounds += 1;
    }
    //= RFC 9406 §4.3
    assert!((4..=6).contains(&rounds), "{rounds} conservative rounds");
    assert_eq!(
        flow.window.ssthresh(),
        flow.window.ssthresh().min(flow.window.cwnd())
    );
}

#[test]
fn shrinking_round_trip_resumes_slow_start() {
    //= RFC 9406 §4.2
    let mut flow = Flow::new(CongestionAlgorithm::Cubic, 50 * MS);
    for _ in 0..3 {
        flow.round();
    }
    flow.rtt_ns = 60 * MS;
    flow.round();
    flow.rtt_ns = 50 * MS;
    flow.round();
    let before = flow.segments();
    flow.round();
    assert!(flow.segments() > 1.9 * before, "{before} {}", flow.segments());
}

#[test]
fn jitter_on_local_link_does_not_end_slow_start() {
    //= RFC 9406 §4.3
    let mut flow = Flow::new(CongestionAlgorithm::Cubic, 2_000);
    for round in 0..12 {
        flow.rtt_ns = if round % 2 == 0 { 2_000 } else { 900_000 };
        flow.round();
    }
    assert_eq!(flow.window.cwnd(), (10 * MSS) << 12);
}

#[derive(Debug, Clone)]
enum Call {
    Ack(u32, u64, bool, bool),
    Loss(u32),
    Exit,
    Timeout(u32, bool),
    Ecn(u32),
    Undo,
    Idle,
    Set(u32),
    Mss(u32),
}

fn call() -> impl Strategy<Value = Call> {
    let bytes = || prop_oneof![0..100_000_u32, any::<u32>()];
    prop_oneof![
        8 => (bytes(), any::<u64>(), any::<bool>(), any::<bool>()).prop_map(|(b, r, l, n)| Call::Ack(b, r, l, n)),
        1 => bytes().prop_map(Call::Loss),
        1 => Just(Call::Exit),
        1 => (bytes(), any::<bool>()).prop_map(|(b, first)| Call::Timeout(b, first)),
        1 => bytes().prop_map(Call::Ecn),
        1 => Just(Call::Undo),
        1 => Just(Call::Idle),
        1 => bytes().prop_map(Call::Set),
        1 => (1..65_536_u32).prop_map(Call::Mss),
    ]
}

proptest! {
    /// Windows stay within their bounds for any calls in any order.
    #[test]
    fn any_sequence_of_calls_keeps_window_in_bounds(
        cubic: bool,
        steps in prop::collection::vec((call(), prop_oneof![0..SECOND, any::<u64>()]), 1..200),
    ) {
        let algorithm = if cubic { CongestionAlgorithm::Cubic } else { CongestionAlgorithm::Reno };
        let mut window = Congestion::new(algorithm, 10 * MSS, MSS);
        let (mut now, mut mss) = (Instant(0), MSS);
        for (step, later) in steps {
            now = now.plus_nanos(later);
            match step {
                Call::Ack(acked_bytes, rtt_ns, cwnd_limited, in_recovery) => window.on_ack(Ack {
                    now, acked_bytes, rtt_ns, min_rtt_ns: rtt_ns / 2, cwnd_limited, mss, in_recovery,
                }),
                Call::Loss(flight) => window.on_loss_event(now, mss, flight),
                Call::Exit => window.on_recovery_exit(now, mss, 0),
                Call::Timeout(flight, first) => window.on_timeout(now, mss, flight, first),
                Call::Ecn(flight) => window.on_ecn(now, mss, flight),
                Call::Undo => window.undo(),
                Call::Idle => window.restart_after_idle(10 * mss),
                Call::Set(bytes) => window.set_cwnd(bytes.max(1)),
                Call::Mss(bytes) => {
                    mss = bytes;
                    window.set_mss(mss);
                }
            }
            prop_assert!((1..=MAX_WINDOW).contains(&window.cwnd()));
            prop_assert!(window.ssthresh() > 0);
        }
    }
}
