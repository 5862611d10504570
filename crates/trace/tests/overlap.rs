//! Fences show the work that one stage leaves to the next.

mod simulator;

use simulator::worlds;

#[test]
fn overlap_of_each_stage_is_found_by_fences() {
    for (name, world) in worlds() {
        let mut world = world.with_fences();
        world.overlap = 12.0;
        for step in world.account().steps {
            let overlap = step.overlap_ns().unwrap();
            assert!(
                (overlap - 12.0).abs() < 6.0,
                "{name}: {}: {overlap}",
                step.step.stage
            );
        }
    }
}

#[test]
fn fenced_blocks_do_not_change_the_sum() {
    for (name, world) in worlds() {
        let mut world = world.with_fences();
        world.overlap = 12.0;
        let account = world.account();
        assert!(
            account.closing.error.abs() < 0.02,
            "{name}: {:?}",
            account.closing
        );
    }
}

#[test]
fn account_without_fenced_blocks_knows_no_overlap() {
    let account = worlds()[0].1.account();
    assert!(account.steps.iter().all(|step| step.overlap_ns().is_none()));
}
