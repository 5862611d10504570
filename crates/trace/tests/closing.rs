//! Stages and hops add up to the untraced time, and a report says so only if they do.

mod simulator;

use simulator::{Fault, World, simulate, stamp_costs, worlds};
use toehold_trace::account::{AccountError, ClosingVerdict, TimeAccount};
use toehold_trace::actor::Actor;
use toehold_trace::plan::BlockUse;

/// A world with enough rounds for a verdict.
fn measured(world: &World) -> World {
    let mut world = world.clone();
    world.rounds = 10;
    world
}

fn with_fault(fault: Fault) -> World {
    let mut world = measured(&worlds()[0].1);
    world.fault = fault;
    world
}

#[test]
fn every_layout_closes_within_two_percent() {
    for (name, world) in worlds() {
        let closing = measured(&world).account().closing;
        assert_eq!(closing.verdict(), ClosingVerdict::Closes, "{name}: {closing:#?}");
        assert!(
            closing.traced_ns > closing.untraced_ns,
            "{name}: stamps take time"
        );
    }
}

#[test]
fn cost_of_each_actors_stamps_is_found() {
    let world = measured(&worlds()[1].1);
    let account = world.account();
    for actor in Actor::ALL {
        let found = account.stamp_cost_of(actor).unwrap();
        let (before, after) = stamp_costs(actor);
        assert!((found - before - after).abs() < 2.0, "{actor}: {found}");
    }
}

#[test]
fn stages_without_the_correction_would_not_close() {
    let account = measured(&worlds()[0].1).account();
    let cost = account.stamp_cost_of(Actor::REFERENCE).unwrap();
    let uncorrected = account.closing.sum_ns + cost * account.steps.len() as f64 / 2.0;
    assert!(uncorrected / account.closing.untraced_ns > 1.05);
}

#[test]
fn disturbance_by_tracing_does_not_close() {
    let world = with_fault(Fault {
        traced_slower_ns: 100.0,
        ..Fault::default()
    });
    let closing = world.account().closing;
    assert_eq!(closing.verdict(), ClosingVerdict::DoesNotClose, "{closing:#?}");
}

#[test]
fn cost_that_differs_between_blocks_shows_as_stages_that_miss_turns() {
    let world = with_fault(Fault {
        counted_stamps_ns: 6.0,
        ..Fault::default()
    });
    assert!(world.account().closing.turn_error > 0.02);
}

#[test]
fn stalls_are_dropped_from_both_totals_and_counted() {
    let mut world = measured(&worlds()[0].1);
    world.stalls = 1000;
    let closing = world.account().closing;
    assert!(closing.error.abs() < 0.01, "{closing:#?}");
    for share in [closing.traced_drops, closing.untraced_drops] {
        assert!((0.0005..0.0015).contains(&share), "{share}");
    }
}

#[test]
fn stalls_of_traced_blocks_alone_are_told() {
    let world = with_fault(Fault {
        traced_stalls: 300,
        ..Fault::default()
    });
    let closing = world.account().closing;
    assert_eq!(closing.verdict(), ClosingVerdict::DropsDiffer, "{closing:#?}");
}

#[test]
fn few_rounds_and_wide_intervals_are_no_verdict() {
    let mut world = worlds()[0].1.clone();
    world.rounds = 8;
    assert_eq!(world.account().closing.verdict(), ClosingVerdict::TooFewRounds);
    world.rounds = 10;
    world.jitter = 300.0;
    let closing = world.account().closing;
    assert_eq!(closing.verdict(), ClosingVerdict::IntervalTooWide, "{closing:#?}");
}

#[test]
fn blocks_of_one_use_alone_give_no_account() {
    let world = worlds()[0].1.clone();
    let blocks = simulate(&world);
    let without = |block_use: BlockUse| {
        let blocks = blocks
            .iter()
            .filter(|block| world.plan.use_of(block.block) != block_use);
        TimeAccount::of(&world.plan, &blocks.cloned().collect::<Vec<_>>(), 0.4)
    };
    assert_eq!(without(BlockUse::Untraced), Err(AccountError::NoBlocks));
    assert!(matches!(without(BlockUse::Cost), Err(AccountError::NoStamps(_))));
    assert!(matches!(
        without(BlockUse::Counted),
        Err(AccountError::NoStamps(_))
    ));
    assert_eq!(
        TimeAccount::of(&world.plan, &blocks, 0.0),
        Err(AccountError::NoRate)
    );
    assert_eq!(
        TimeAccount::of(&world.plan, &[], 1.0),
        Err(AccountError::NoBlocks)
    );
}
