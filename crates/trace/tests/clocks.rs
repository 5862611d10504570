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
            move_at: None,
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

#[test]
fn thread_that_moves_to_another_counter_costs_its_block_alone() {
    for (name, world) in worlds() {
        let before = world.account();
        let mut moved = world.clone();
        let actor = world.trip().actors().last().unwrap();
        // The simulation begins at one millisecond. The thread moves in the middle of block 3.
        moved.clocks[actor.index()].move_at = Some((1e6 + 3.5 * block_ns(&world), 1 << 30));
        let after = moved.account();
        assert_eq!(after.invalid_blocks, 1, "{name}");
        for (before, after) in figures(&before).iter().zip(&figures(&after)) {
            assert!((before - after).abs() < 15.0, "{name}: {before} and {after}");
        }
    }
}

/// The time of a block, in nanoseconds.
fn block_ns(world: &World) -> f64 {
    2.0 * world.account().closing.untraced_ns * f64::from(world.plan.block_len())
}
