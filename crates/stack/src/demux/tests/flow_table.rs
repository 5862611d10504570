use proptest::prelude::*;

use super::super::flow_index::STASH;
use super::*;

/// Places in a tuple's two buckets.
const BOTH_BUCKETS: u32 = 24;

/// What finds a place even if all have the same hash.
pub(super) const ROOM: u32 = BOTH_BUCKETS + STASH as u32;

fn flow_table(capacity: u32) -> FlowTable {
    let Chosen::FlowTable(table) = create(DemuxStrategy::FlowTable, capacity) else {
        unreachable!()
    };
    table
}

proptest! {
    /// Everything has the same two buckets and the same tag.
    #[test]
    fn behaves_like_a_map_under_a_flood(steps in steps(100, 3)) {
        let mut table = flow_table(64);
        table.index.hook = Some(|_, _| 0x0123_4567_89ab_cdef);
        run(&mut table, &tuples(100), steps);
    }

    /// Four hashes, so that buckets overlap and ids make room for others.
    #[test]
    fn behaves_like_a_map_in_few_buckets(steps in steps(100, 3)) {
        let mut table = flow_table(64);
        table.index.hook = Some(|hash, _| (hash & 3).wrapping_mul(0x4000_0020_0000_0101));
        run(&mut table, &tuples(100), steps);
    }
}

#[test]
fn the_flow_table_holds_as_many_as_it_was_made_for() {
    for capacity in [1, 2, 7, 8, 9, 64, 1000, 50_000] {
        let store = tuples(capacity);
        let mut table = flow_table(capacity);
        for id in 0..capacity {
            table.insert(id, &store[..]).unwrap();
        }
        assert_eq!(table.insert(capacity, &store[..]), Err(Full));
        assert_eq!(
            (table.index.stash_len(), table.index.rekeyed()),
            (0, 0),
            "of {capacity}"
        );
        for (id, tuple) in (0..).zip(&store) {
            assert_eq!(table.lookup(tuple, &store[..], &mut Unobserved), Some(id));
        }
    }
}

#[test]
fn removal_leaves_no_trace() {
    let count = 5_000;
    let store = tuples(2 * count);
    let mut table = flow_table(count);
    // Twenty generations of connections in the same places.
    for generation in 0..20 {
        let from = (generation % 2) * count;
        let shifted = &store[from as usize..];
        for id in 0..count {
            table.insert(id, shifted).unwrap();
        }
        for id in (0..count).rev() {
            assert!(table.remove(id, shifted));
        }
        assert!(table.index.is_pristine(), "after generation {generation}");
    }
    assert_eq!(table.index.rekeyed(), 0);
}

#[test]
fn one_bucket_decides_almost_always() {
    let count = 20_000;
    let store = tuples(2 * count);
    let mut table = flow_table(count);
    for id in 0..count {
        table.insert(id, &store[..]).unwrap();
    }
    let absent = &store[count as usize..];
    let mut counters = DemuxCounters::default();
    for tuple in absent {
        assert_eq!(table.lookup(tuple, &store[..], &mut counters), None);
    }
    // The cache holds nothing yet, so every comparison is one that a tag of 16
    // bits let through: 8 in 65536 for a bucket of 8.
    let examined = counters.demux_examined;
    assert!(examined < u64::from(count) / 1000, "{examined}");
}

/// An attacker who knows the key fills two buckets and the stash; then the key
/// changes and his knowledge is worth nothing.
#[test]
fn a_flood_of_chosen_tuples_ends_with_another_key() {
    let count = 10_000;
    let store = tuples(count);
    let mut table = flow_table(count);
    table.index.hook = Some(|hash, rekeyed| if rekeyed == 0 { 42 } else { hash });
    let before = ROOM;
    for id in 0..before {
        table.insert(id, &store[..]).unwrap();
    }
    assert_eq!(
        (table.index.stash_len(), table.index.rekeyed()),
        (STASH as u32, 0)
    );
    for id in before..count {
        table.insert(id, &store[..]).unwrap();
    }
    assert_eq!((table.index.stash_len(), table.index.rekeyed()), (0, 1));
    for (id, tuple) in (0..).zip(&store) {
        assert_eq!(table.lookup(tuple, &store[..], &mut Unobserved), Some(id));
    }
}

/// Where even other keys do not help, the table says so and stays as it was.
#[test]
fn a_hash_that_is_none_fills_the_table_early_and_harms_nothing() {
    let store = tuples(100);
    let mut table = flow_table(100);
    table.index.hook = Some(|_, _| 42);
    let room = ROOM;
    for id in 0..room {
        table.insert(id, &store[..]).unwrap();
    }
    // What leaves a bucket makes room for the stash, whose order changes.
    for id in [0, 5, BOTH_BUCKETS + 1] {
        assert!(table.remove(id, &store[..]));
        assert_eq!(table.index.stash_len(), STASH as u32 - 1);
        table.insert(99 - id, &store[..]).unwrap();
    }
    let inside: Vec<u32> = (0..room)
        .filter(|id| ![0, 5, BOTH_BUCKETS + 1].contains(id))
        .chain([99, 94, 98 - BOTH_BUCKETS])
        .collect();
    let before = table.index.contents();
    for id in (0..100).filter(|id| !inside.contains(id)) {
        assert_eq!(table.insert(id, &store[..]), Err(Full));
        assert_eq!(
            table.lookup(&store[id as usize], &store[..], &mut Unobserved),
            None
        );
    }
    assert_eq!(table.index.contents(), before);
    assert_eq!(table.len(), room);
    for id in inside {
        assert_eq!(
            table.lookup(&store[id as usize], &store[..], &mut Unobserved),
            Some(id)
        );
        assert!(table.remove(id, &store[..]));
    }
    assert!(table.index.is_pristine());
}
