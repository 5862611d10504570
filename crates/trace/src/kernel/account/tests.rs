use super::*;
use crate::kernel::measure::KernelBlocks;

const TICKS_PER_NS: f64 = 2.6;

/// A simulated kernel: the stages of a message, the cost of tracepoints, and a clock.
#[derive(Clone)]
struct Machine {
    stages_ns: [f64; KernelStage::COUNT],
    /// Nanoseconds that one recording of an event takes, by its edge.
    event_ns: [f64; KernelEdge::COUNT],
    offset: u64,
    /// Parts of a million by which the trace's clock is too fast.
    drift_ppm: f64,
    /// What tracing does beside its events, in nanoseconds.
    disturbance_ns: f64,
    /// One message in so many is slow; 0 for none.
    slow: u64,
    rounds: u32,
}

impl Default for Machine {
    fn default() -> Self {
        let mut stages_ns = [0.0; KernelStage::COUNT];
        for stage in KernelStage::ALL {
            stages_ns[stage.index()] = match stage {
                KernelStage::Busy => 0.0,
                KernelStage::Turn | KernelStage::Send => 3000.0,
                _ => 400.0 + 30.0 * stage.index() as f64,
            };
        }
        let mut event_ns = [0.0; KernelEdge::COUNT];
        let events = event_ns.iter_mut().enumerate();
        events.for_each(|(index, ns)| *ns = 90.0 + 11.0 * index as f64);
        Self {
            stages_ns,
            event_ns,
            offset: 1 << 40,
            drift_ppm: 0.0,
            disturbance_ns: 0.0,
            slow: 0,
            rounds: 16,
        }
    }
}

impl Machine {
    fn rate(&self) -> f64 {
        TICKS_PER_NS * (1.0 + self.drift_ppm / 1e6)
    }

    fn blocks(&self) -> Vec<KernelBlock> {
        let mut now = 1e6;
        let mut number = 0_u64;
        let blocks = (0..self.rounds * KernelBlockUse::BLOCKS_OF_ROUND).map(|block| {
            let mut found = KernelBlock::new(block, Vec::new());
            for _ in 0..100 {
                let began = now;
                for sender in [0, 1] {
                    number += 1;
                    let message = self.message(&mut now, found.block_use, sender, number);
                    if found.block_use != KernelBlockUse::Untraced {
                        found.messages.push(message);
                    }
                }
                found.round_trips_ns.push((now - began) as u64);
            }
            found
        });
        blocks.collect()
    }

    fn message(&self, now: &mut f64, block_use: KernelBlockUse, sender: usize, number: u64) -> KernelMessage {
        let ticks = |now: f64| Some(self.offset.wrapping_add((now * self.rate()) as u64));
        let mut edges = [None; KernelEdge::COUNT];
        for edge in KernelEdge::ALL {
            edges[edge.index()] = ticks(*now);
            let Some(stage) = KernelStage::from_edge(edge, true) else {
                continue;
            };
            let jitter = (mix(number << 8 | edge.index() as u64) % 64) as f64;
            *now += self.stages_ns[stage.index()] + jitter;
            *now += self.event_ns[edge.index()] * block_use.recordings() as f64;
        }
        if block_use != KernelBlockUse::Untraced {
            // The tail of the message; it belongs to no event.
            *now += self.disturbance_ns;
            edges[KernelEdge::NextSend.index()] = ticks(*now);
        }
        if self.slow > 0 && number.is_multiple_of(self.slow) {
            *now += 1e6;
            edges[KernelEdge::NextSend.index()] = ticks(*now);
        }
        KernelMessage::of(sender, edges)
    }

    fn account(&self) -> KernelAccount {
        KernelAccount::of(&self.blocks(), 1.0 / self.rate()).unwrap()
    }
}

fn means(account: &KernelAccount) -> Vec<f64> {
    account.stages.iter().map(|stage| stage.mean_ns).collect()
}

#[test]
fn stages_less_the_tracepoints_add_up_to_the_untraced_time() {
    let account = Machine::default().account();
    assert_eq!(account.verdict(), KernelVerdict::Closes, "{account:#?}");
    assert!(account.error.abs() < 0.01, "{}", account.error);
    assert!(
        account.traced_ns > 1.05 * account.untraced_ns,
        "tracepoints take time"
    );
    assert_eq!((account.rounds, account.unmatched), (16, 0.0));
}

#[test]
fn delay_in_each_stage_moves_its_own_figure_alone() {
    let machine = Machine::default();
    let before = means(&machine.account());
    for stage in KernelStage::ALL
        .into_iter()
        .filter(|stage| *stage != KernelStage::Busy)
    {
        let mut planted = machine.clone();
        planted.stages_ns[stage.index()] += 500.0;
        for (other, (before, after)) in before.iter().zip(means(&planted.account())).enumerate() {
            let expected = if other == stage.index() { 500.0 } else { 0.0 };
            let moved = after - before;
            assert!(
                (moved - expected).abs() < 25.0,
                "{stage} moved {other} by {moved}"
            );
        }
    }
}

#[test]
fn cost_of_a_tracepoint_moves_no_stage() {
    let machine = Machine::default();
    let before = means(&machine.account());
    let mut costly = machine.clone();
    costly.event_ns[KernelEdge::TcpProbed.index()] += 500.0;
    for (before, after) in before.iter().zip(means(&costly.account())) {
        assert!((after - before).abs() < 25.0, "{before} {after}");
    }
}

#[test]
fn secret_offset_and_drift_of_the_traces_clock_change_nothing() {
    let machine = Machine::default();
    let before = means(&machine.account());
    let secret = Machine {
        offset: 1 << 59,
        drift_ppm: 250.0,
        ..machine
    };
    for (before, after) in before.iter().zip(means(&secret.account())) {
        assert!((after - before).abs() < 1.0, "{before} {after}");
    }
}

#[test]
fn disturbance_beside_the_events_does_not_close() {
    let account = Machine {
        disturbance_ns: 1000.0,
        ..Machine::default()
    }
    .account();
    assert_eq!(account.verdict(), KernelVerdict::DoesNotClose, "{account:#?}");
}

#[test]
fn slow_round_trips_are_dropped_from_both_totals_and_counted() {
    let account = Machine {
        slow: 500,
        ..Machine::default()
    }
    .account();
    assert!(account.error.abs() < 0.01, "{account:#?}");
    assert!(account.traced_drops > 0.001 && account.untraced_drops > 0.001);
}

#[test]
fn each_missing_part_is_named() {
    let blocks = Machine::default().blocks();
    let rate = 1.0 / TICKS_PER_NS;
    let without = |is_wanted: fn(&KernelBlock) -> bool| {
        let blocks: Vec<KernelBlock> = blocks.iter().filter(|block| is_wanted(block)).cloned().collect();
        KernelAccount::of(&blocks, rate).err()
    };
    let untraced = without(|block| block.block_use != KernelBlockUse::Untraced);
    assert_eq!(untraced, Some(KernelAccountError::NoUntraced));
    let counted = without(|block| block.block_use != KernelBlockUse::Counted);
    assert_eq!(counted, Some(KernelAccountError::NoMessages));
    for missing in [KernelBlockUse::Single, KernelBlockUse::Double] {
        let others = blocks.iter().filter(|block| block.block_use != missing);
        let found = KernelAccount::of(&others.cloned().collect::<Vec<_>>(), rate);
        assert_eq!(found, Err(KernelAccountError::NoCosts));
    }
    assert_eq!(
        KernelAccount::of(&blocks, f64::NAN),
        Err(KernelAccountError::NoRate)
    );
    assert_eq!(KernelAccount::of(&[], rate), Err(KernelAccountError::NoUntraced));
}

#[test]
fn verdict_names_the_first_reason_against_the_sum() {
    use KernelVerdict::*;
    let good = Machine::default().account();
    type Case = (fn(&mut KernelAccount), KernelVerdict);
    let cases: [Case; 6] = [
        (|account| account.rounds = 8, TooFewRounds),
        (|account| account.unmatched = 0.06, TooManyUnmatched),
        (|account| account.interval.high += 0.2, IntervalTooWide),
        (|account| account.error = -0.06, DoesNotClose),
        (|account| account.median_error = f64::NAN, DoesNotClose),
        (|account| account.traced_drops += 0.01, DropsDiffer),
    ];
    for (change, verdict) in cases {
        let mut account = good.clone();
        change(&mut account);
        assert_eq!(account.verdict(), verdict);
    }
}

#[test]
fn cost_of_each_event_is_found_in_the_stage_that_it_begins() {
    let machine = Machine::default();
    for edge in &KernelEdge::ALL[..KernelEdge::NextSend.index()] {
        let stage = KernelStage::from_edge(*edge, true).unwrap();
        let found = machine.account().stages[stage.index()].cost_ns;
        assert!(
            (found - machine.event_ns[edge.index()]).abs() < 10.0,
            "{stage}: {found}"
        );
    }
}

#[test]
fn block_that_lost_events_is_left_out() {
    let mut blocks = Machine::default().blocks();
    // Events of a full buffer cost less, which would make the stages look longer.
    for block in blocks
        .iter_mut()
        .filter(|block| block.block == 2 || block.block == 3)
    {
        block.lost_events = 9;
        block.messages.truncate(20);
    }
    let account = KernelAccount::of(&blocks, 1.0 / TICKS_PER_NS).unwrap();
    assert!(account.error.abs() < 0.01, "{}", account.error);
    assert_eq!(account.lost_events, 18);
}

#[test]
fn interval_and_median_of_each_stage_enclose_its_time() {
    let machine = Machine::default();
    for time in machine.account().stages {
        let planted_ns = machine.stages_ns[time.stage.index()];
        if planted_ns == 0.0 {
            assert_eq!((time.usual_ns, time.mean_ns), (0.0, 0.0), "{}", time.stage);
            continue;
        }
        let (low, high) = (time.interval.low, time.interval.high);
        assert!(low <= time.mean_ns && time.mean_ns <= high, "{time:?}");
        // The simulator adds 0 to 63 ns to each stage.
        for found_ns in [time.mean_ns, time.usual_ns] {
            assert!((found_ns - planted_ns - 32.0).abs() < 20.0, "{time:?}");
        }
    }
}

#[test]
fn measurements_joined_make_the_account_of_one_with_their_rounds() {
    let machine = Machine {
        rounds: 4,
        ..Machine::default()
    };
    let measured = || KernelBlocks {
        blocks: machine.blocks(),
        ns_per_tick: 1.0 / machine.rate(),
    };
    let joined = KernelBlocks::joined([measured(), measured(), measured()]);
    let account = KernelAccount::of(&joined.blocks, joined.ns_per_tick).unwrap();
    assert_eq!(account.rounds, 12);
    assert_eq!(account.verdict(), KernelVerdict::Closes, "{account:#?}");
    assert_eq!(KernelBlocks::joined([]).blocks, []);
}

#[test]
fn lost_and_malformed_text_is_counted_and_its_block_left_out() {
    let mut blocks = Machine::default().blocks();
    let counted = blocks
        .iter_mut()
        .find(|block| block.block_use == KernelBlockUse::Counted);
    let counted = counted.unwrap();
    let without = counted.messages.len() as u64 / 2;
    (counted.lost_events, counted.malformed_lines) = (7, 3);
    let rate = 1.0 / Machine::default().rate();
    let account = KernelAccount::of(&blocks, rate).unwrap();
    let whole = Machine::default().account();
    assert_eq!((account.lost_events, account.malformed_lines), (7, 3));
    assert_eq!(account.samples, whole.samples - without);
}
