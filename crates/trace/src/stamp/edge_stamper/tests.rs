use super::*;
use crate::layout::{HandOver, PathKind, StagePath, TripPath};
use crate::plan::PairKind;
use crate::stage::StageSet;
use crate::stamp::{StampReader, words_for};
use core::sync::atomic::AtomicU64;

/// A clock that counts its own readings.
#[derive(Default)]
struct Readings {
    plain: u64,
    fenced: u64,
}

impl StampClock for Readings {
    fn ticks(&mut self) -> u64 {
        self.plain += 1;
        self.plain
    }

    fn fenced_ticks(&mut self) -> u64 {
        self.fenced += 1;
        1_000_000 + self.fenced
    }
}

fn plan() -> TracePlan {
    let path = StagePath::new(PathKind::Direct, StageSet::EMPTY, HandOver::Line).unwrap();
    TracePlan::new(TripPath::new(&path), 16, true, 3)
}

/// Passes all edges of an actor for some messages.
fn run(
    plan: &TracePlan,
    is_on: bool,
    messages: u32,
    skipped: Option<EdgeId>,
) -> (Vec<StampRecord>, Readings, u64) {
    let words: Vec<AtomicU64> = (0..words_for(4096)).map(|_| AtomicU64::new(0)).collect();
    let mut stamper = EdgeStamper::new(plan, Actor::REFERENCE, StampWriter::new(&words).unwrap());
    stamper.set_on(is_on);
    let mut clock = Readings::default();
    for message in 0..messages {
        stamper.next_message(message, &mut clock);
        for (number, actor) in plan.trip().edges().iter().enumerate().skip(1) {
            let edge = EdgeId(number as u8);
            if *actor == Actor::REFERENCE && Some(edge) != skipped {
                stamper.pass(edge, &mut clock);
            }
        }
    }
    let mut records = Vec::new();
    StampReader::new(&words).unwrap().take_into(&mut records);
    (records, clock, stamper.abandoned())
}

#[test]
fn stamper_that_is_off_never_reads_its_clock() {
    let (records, clock, _) = run(&plan(), false, 500, None);
    assert_eq!(records, []);
    assert_eq!((clock.plain, clock.fenced), (0, 0));
}

#[test]
fn each_record_is_the_choice_of_its_round_trip() {
    let plan = plan();
    let (records, clock, abandoned) = run(&plan, true, 2000, None);
    assert!(records.len() > 200);
    assert_eq!(abandoned, 0);
    for record in &records {
        assert_eq!(plan.choice(record.message), Some(record.pair));
        assert_eq!(
            record.ticks(),
            1,
            "a reading lies between two stamps of one round trip"
        );
        assert_eq!(record.begin > 1_000_000, plan.is_fenced(record.message));
    }
    // A pair that waits for the message behind the last one has one stamp yet.
    assert!(clock.plain + clock.fenced - 2 * records.len() as u64 <= 1);
}

#[test]
fn actor_takes_the_pairs_of_its_own_edges_only() {
    let plan = plan();
    let (records, ..) = run(&plan, true, 2000, None);
    for record in records {
        assert_eq!(plan.pairs()[record.pair.index()].span.actor, Actor::REFERENCE);
    }
}

#[test]
fn pair_that_never_ends_is_counted_and_leaves_no_record() {
    let plan = plan();
    let skipped = EdgeId(1);
    let (records, _, abandoned) = run(&plan, true, 2000, Some(skipped));
    assert!(abandoned > 0);
    let ends_there = |record: &StampRecord| plan.pairs()[record.pair.index()].span.to == skipped;
    assert!(!records.iter().any(ends_there));
    assert!(
        records
            .iter()
            .any(|record| matches!(plan.pairs()[record.pair.index()].kind, PairKind::Turn(_)))
    );
}
