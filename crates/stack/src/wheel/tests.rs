use std::collections::BTreeMap;

use proptest::prelude::*;
use toehold_shm::{Carver, Region};

use super::{MOVES, Wheel};
use crate::time::Instant;

const SECOND: u64 = 1_000_000_000;

fn wheel(capacity: u32) -> Wheel {
    let region = Region::private(Wheel::bytes_needed(capacity)).unwrap();
    Wheel::create(&mut Carver::new(region).unwrap(), capacity).unwrap()
}

/// Calls until the wheel reports no expired id, as a driver does.
fn drain(wheel: &mut Wheel, now: u64) -> Vec<u32> {
    let mut popped = Vec::new();
    while wheel.next_deadline().is_some_and(|at| at <= Instant(now)) {
        popped.extend(std::iter::from_fn(|| wheel.pop_expired(Instant(now))));
    }
    popped
}

#[test]
fn entry_fires_exactly_at_its_deadline() {
    for deadline in [
        0,
        1,
        63,
        64,
        4095,
        1 << 17,
        SECOND,
        86_400 * SECOND,
        u64::MAX - 1,
        u64::MAX,
    ] {
        let mut wheel = wheel(4);
        wheel.schedule(2, Instant(deadline));
        assert_eq!(wheel.deadline(2), Some(Instant(deadline)));
        assert_eq!(wheel.next_deadline(), Some(Instant(deadline)));
        if deadline > 0 {
            assert_eq!(wheel.pop_expired(Instant(deadline - 1)), None);
        }
        assert_eq!(wheel.pop_expired(Instant(deadline)), Some(2));
        assert_eq!(wheel.pop_expired(Instant(deadline)), None);
        assert_eq!(wheel.deadline(2), None);
        assert_eq!(wheel.next_deadline(), None);
    }
}

#[test]
fn new_deadline_replaces_old_one() {
    let mut wheel = wheel(1);
    wheel.schedule(0, Instant(100));
    wheel.schedule(0, Instant(5 * SECOND));
    assert_eq!(wheel.pop_expired(Instant(SECOND)), None);
    wheel.schedule(0, Instant(2 * SECOND));
    assert_eq!(wheel.pop_expired(Instant(2 * SECOND)), Some(0));
    wheel.cancel(0);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn deadline_in_past_is_due_at_once() {
    let mut wheel = wheel(2);
    wheel.schedule(0, Instant(10 * SECOND));
    wheel.schedule(1, Instant(9 * SECOND));
    assert_eq!(wheel.pop_expired(Instant(9 * SECOND + 1)), Some(1));
    wheel.schedule(1, Instant(3));
    assert_eq!(wheel.next_deadline(), Some(Instant(3)));
    assert_eq!(wheel.pop_expired(Instant(9 * SECOND + 1)), Some(1));
    assert_eq!(wheel.pop_expired(Instant(10 * SECOND)), Some(0));
}

#[test]
fn backward_clock_keeps_deadlines() {
    let mut wheel = wheel(3);
    wheel.schedule(0, Instant(SECOND));
    wheel.schedule(1, Instant(SECOND + 5));
    assert_eq!(wheel.pop_expired(Instant(SECOND)), Some(0));
    wheel.schedule(2, Instant(1));
    assert_eq!(wheel.pop_expired(Instant(2)), Some(2));
    assert_eq!(wheel.pop_expired(Instant(2)), None);
    assert_eq!(wheel.pop_expired(Instant(SECOND + 5)), Some(1));
}

/// A slot of many entries is moved in shares, and entries that are not due do not delay those that
/// are.
#[test]
fn call_moves_at_most_its_share() {
    let count = 100 * MOVES;
    let mut wheel = wheel(count + 1);
    let base = 7200 * SECOND;
    for id in 0..count {
        wheel.schedule(id, Instant(base + SECOND + u64::from(id)));
    }
    wheel.schedule(count, Instant(base));
    assert_eq!(wheel.next_deadline(), Some(Instant(base)));
    // The due entry was linked last and is therefore first.
    assert_eq!(wheel.pop_expired(Instant(base)), Some(count));
    // The bound of its slot is now outdated: the rest is moved, one share a call.
    let mut calls = 0;
    while wheel.next_deadline().unwrap() <= Instant(base) {
        assert_eq!(wheel.pop_expired(Instant(base)), None);
        calls += 1;
        if calls == 10 {
            wheel.schedule(count, Instant(base));
            let popped = std::iter::from_fn(|| wheel.pop_expired(Instant(base))).collect::<Vec<_>>();
            assert_eq!(popped, [count], "due entries come while others are being moved");
        }
    }
    assert!((90..=110).contains(&calls), "{calls}");
    assert_eq!(wheel.next_deadline(), Some(Instant(base + SECOND)));
    let all = drain(&mut wheel, base + 2 * SECOND);
    assert_eq!(all.len(), count as usize);
}

#[derive(Debug, Clone)]
enum Step {
    Schedule(u32, u64),
    Cancel(u32),
    Advance(u64),
    /// Advances to the wheel's next deadline.
    Sleep,
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..100_u64,
        0..100_000_u64,
        0..SECOND,
        0..10 * SECOND,
        // Jumps of hours, and of centuries.
        0..10 * 3600 * SECOND,
        Just(7200 * SECOND),
        any::<u64>(),
    ]
}

fn step(ids: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..ids, span()).prop_map(|(id, after)| Step::Schedule(id, after)),
        2 => (0..ids).prop_map(Step::Cancel),
        2 => span().prop_map(|by| Step::Advance(by.min(u64::MAX / 64))),
        1 => Just(Step::Sleep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Compares the wheel with a map of deadlines.
    #[test]
    fn wheel_behaves_like_sorted_map(ids in 1..200_u32, steps in prop::collection::vec(step(200), 1..400)) {
        let mut wheel = wheel(200);
        let mut model = BTreeMap::new();
        let mut now = 0_u64;
        for step in steps {
            match step {
                Step::Schedule(id, after) => {
                    let at = now.saturating_add(after);
                    wheel.schedule(id % ids, Instant(at));
                    model.insert(id % ids, at);
                }
                Step::Cancel(id) => {
                    wheel.cancel(id % ids);
                    model.remove(&(id % ids));
                }
                Step::Advance(by) => now = now.saturating_add(by),
                Step::Sleep => now = wheel.next_deadline().map_or(now, |at| at.0.max(now)),
            }
            let mut due: Vec<u32> = model.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
            let mut popped = drain(&mut wheel, now);
            popped.sort_unstable();
            due.sort_unstable();
            prop_assert_eq!(&popped, &due);
            model.retain(|_, at| *at > now);
            let earliest = model.values().min().copied();
            prop_assert_eq!(wheel.next_deadline().is_some(), earliest.is_some());
            if let (Some(at), Some(earliest)) = (wheel.next_deadline(), earliest) {
                prop_assert!(at.0 > now && at.0 <= earliest);
            }
            for id in 0..ids {
                prop_assert_eq!(wheel.deadline(id).map(|at| at.0), model.get(&id).copied());
            }
        }
    }
}
