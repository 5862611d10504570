//! The offsets and rates of clocks change nothing.

mod simulator;

use proptest::prelude::*;
use simulator::{Planted, SecretClock, World, figures, worlds};

/// The most that a figure may differ, in nanoseconds: ticks are whole, and rates are estimates.
const TOLERANCE_NS: f64 = 1.0;

fn largest_difference(world: &World, clocks: [SecretClock; 4]) -> f64 {
    let before = figures(&world.account());
    let mut secret = world.clone();
    secret.clocks = clocks;
    let after = figures(&secret.account());
    let differences = before
        .iter()
        .zip(&after)
        .map(|(before, after)| (before - after).abs());
    differences.fold(0.0, f64::max)
}

fn other_clock() -> impl Strategy<Value = SecretClock> {
    (any::<u64>(), -300.0..300.0_f64, -200.0..200.0_f64).prop_map(|(offset, drift_ppm, wander_ppm)| {
        SecretClock {
            offset,
            drift_ppm,
            wander_ppm,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn secret_offset_and_drift_of_one_clock_change_nothing(
        layout in 0_usize..7,
        actor in 1_usize..4,
        clock in other_clock(),
    ) {
        let (name, world) = &worlds()[layout];
        let mut clocks = world.clocks;
        clocks[actor] = clock;
        let difference = largest_difference(world, clocks);
        prop_assert!(difference < TOLERANCE_NS, "{}: {} ns by {:?}", name, difference, clock);
    }

    #[test]
    fn secret_offsets_of_all_clocks_change_nothing(
        layout in 0_usize..7,
        offset in any::<u64>(),
        others in [other_clock(), other_clock(), other_clock()],
    ) {
        let (name, world) = &worlds()[layout];
        let reference = SecretClock { offset, ..SecretClock::default() };
        let difference = largest_difference(world, [reference, others[0], others[1], others[2]]);
        prop_assert!(difference < TOLERANCE_NS, "{}: {} ns", name, difference);
    }
}

#[test]
fn clock_of_twice_the_rate_changes_nothing() {
    for (name, world) in worlds() {
        let twice = SecretClock {
            drift_ppm: 1e6,
            ..SecretClock::default()
        };
        let clocks = [SecretClock::default(), twice, twice, twice];
        let difference = largest_difference(&world, clocks);
        assert!(difference < TOLERANCE_NS, "{name}: {difference} ns");
    }
}

#[test]
fn long_turn_beside_a_short_hop_needs_the_rate() {
    // A turn of a millisecond at 300 ppm would hide a hop of 170 ns behind an error of 300 ns.
    let world = &worlds()[0].1;
    let steps = world.trip().steps();
    let answering = steps
        .iter()
        .position(|step| step.actor.is_some_and(|actor| actor.index() == 3));
    let world = world.planting(&[Planted::Step(answering.unwrap(), 1e6)]);
    let mut secret = world.clone();
    secret.clocks[3].drift_ppm = 300.0;
    let hops = |world: &World| world.account().hops[0].sum_ns;
    assert!(
        (hops(&secret) - hops(&world)).abs() < 25.0,
        "{} {}",
        hops(&secret),
        hops(&world)
    );
}
