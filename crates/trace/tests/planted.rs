//! A planted delay moves its own stage, and nothing else.

mod simulator;

use proptest::prelude::*;
use simulator::{Planted, World, figures, place_of, worlds};

const DELAY_NS: f64 = 500.0;
const TOLERANCE_NS: f64 = 25.0;

/// Checks that figures moved by what was planted, and all others stayed.
fn check(name: &str, world: &World, before: &[f64], planted: &[Planted]) -> Result<(), String> {
    let after = figures(&world.planting(planted).seeded(world.seed + 1).account());
    let mut expected = vec![0.0; before.len()];
    for planted in planted {
        let (Planted::Step(_, ns) | Planted::Beside(_, ns)) = *planted;
        expected[place_of(world, *planted)] += ns;
    }
    for (place, (before, after)) in before.iter().zip(&after).enumerate() {
        let moved = after - before;
        if (moved - expected[place]).abs() > TOLERANCE_NS {
            let expected = expected[place];
            return Err(format!(
                "{name}: {planted:?}: figure {place} moved by {moved}, not {expected}"
            ));
        }
    }
    Ok(())
}

#[test]
fn delay_in_each_stage_and_hop_moves_its_own_figure_alone() {
    for (name, world) in worlds() {
        let before = figures(&world.account());
        for index in 0..world.trip().steps().len() {
            check(name, &world, &before, &[Planted::Step(index, DELAY_NS)]).unwrap();
        }
    }
}

#[test]
fn delay_in_both_ways_of_a_hop_moves_each_way_by_it() {
    for (name, world) in worlds() {
        let before = world.account();
        for (place, group) in world.trip().hop_groups().iter().enumerate() {
            let planted: Vec<_> = group
                .hops
                .iter()
                .map(|hop| Planted::Step(*hop, DELAY_NS))
                .collect();
            let after = world.planting(&planted).seeded(2).account();
            let moved = after.hops[place].each_ns() - before.hops[place].each_ns();
            assert!(
                (moved - DELAY_NS).abs() < TOLERANCE_NS,
                "{name}: group {place} moved by {moved}"
            );
        }
    }
}

#[test]
fn delay_off_the_path_moves_nothing_on_it() {
    let mut tried = 0;
    for (name, world) in worlds() {
        let before = figures(&world.account());
        for index in 0..world.trip().beside().len() {
            check(name, &world, &before, &[Planted::Beside(index, DELAY_NS)]).unwrap();
            tried += 1;
        }
    }
    assert_eq!(tried, 8);
}

#[test]
fn delay_beside_the_path_that_keeps_the_actor_busy_shows_in_a_hop() {
    let (name, world) = &worlds()[1];
    let before = world.account();
    let after = world.planting(&[Planted::Beside(0, 5000.0)]).account();
    let stages = before.steps.iter().zip(&after.steps);
    for (before, after) in stages {
        assert!(
            (after.mean_ns - before.mean_ns).abs() < TOLERANCE_NS,
            "{name}: {after:?}"
        );
    }
    let moved = |place: usize| after.hops[place].sum_ns - before.hops[place].sum_ns;
    assert!((0..before.hops.len()).any(|place| moved(place) > 1000.0));
    assert!(after.closing.error.abs() < 0.02);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn several_delays_at_once_each_move_their_own_figure(
        layout in 0_usize..7,
        delays in proptest::collection::btree_map(0_usize..32, 50.0..900.0_f64, 1..5),
    ) {
        let (name, world) = &worlds()[layout];
        let steps = world.trip().steps().len();
        let delays = delays.into_iter().filter(|(step, _)| *step < steps);
        let planted: Vec<_> = delays.map(|(step, ns)| Planted::Step(step, ns)).collect();
        let before = figures(&world.account());
        if let Err(moved) = check(name, world, &before, &planted) {
            prop_assert!(false, "{}", moved);
        }
    }
}
