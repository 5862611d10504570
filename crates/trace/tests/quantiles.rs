//! Quantiles of stages stand beside the means.

mod simulator;

use simulator::{Planted, REFERENCE_TICKS, World, simulate, worlds};
use toehold_trace::account::{AccountError, StageQuantiles};

fn quantiles(world: &World) -> StageQuantiles {
    StageQuantiles::of(
        &world.plan,
        &world.account(),
        &simulate(world),
        1.0 / REFERENCE_TICKS,
    )
    .unwrap()
}

#[test]
fn every_stage_of_every_layout_has_ordered_quantiles() {
    for (name, world) in worlds() {
        let account = world.account();
        let found = quantiles(&world);
        assert_eq!(found.steps.len(), account.steps.len(), "{name}");
        assert_eq!(found.beside.len(), account.beside.len(), "{name}");
        for (step, found) in account.steps.iter().zip(&found.steps) {
            let found = found.unwrap();
            let ordered = [
                found.p50_ns,
                found.p90_ns,
                found.p99_ns,
                found.p999_ns,
                found.max_ns,
            ];
            assert!(ordered.is_sorted(), "{name}: {}: {found:?}", step.step.stage);
            assert!(ordered[0] as f64 <= step.mean_ns + 2.0, "{name}: {found:?}");
        }
    }
}

#[test]
fn planted_delay_moves_the_median_of_its_own_stage_alone() {
    let (name, world) = &worlds()[1];
    let before = quantiles(world);
    let works = world.trip().steps().iter().enumerate();
    let works = works.filter(|(_, step)| step.actor.is_some());
    for (place, (index, _)) in works.enumerate() {
        let planted = world.planting(&[Planted::Step(index, 500.0)]).seeded(3);
        let after = quantiles(&planted);
        for (other, (before, after)) in before.steps.iter().zip(&after.steps).enumerate() {
            let moved = after.unwrap().p50_ns as f64 - before.unwrap().p50_ns as f64;
            let expected = if other == place { 500.0 } else { 0.0 };
            assert!(
                (moved - expected).abs() < 25.0,
                "{name}: {place} moved {other} by {moved}"
            );
        }
    }
}

#[test]
fn stalls_show_in_the_maximum_and_not_in_the_median() {
    let mut world = worlds()[0].1.clone();
    world.stalls = 200;
    let found = quantiles(&world).untraced_round_trips.unwrap();
    assert!(found.max_ns > 60_000, "{found:?}");
    assert!(found.p90_ns < 10_000, "{found:?}");
}

#[test]
fn quantiles_without_a_rate_are_refused() {
    let (_, world) = &worlds()[0];
    let found = StageQuantiles::of(&world.plan, &world.account(), &[], f64::NAN);
    assert_eq!(found, Err(AccountError::NoRate));
}
