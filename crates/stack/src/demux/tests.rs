use std::collections::HashMap;

use proptest::prelude::*;
use toehold_shm::{Carver, NONE, Region};

use super::flow_index::STASH;
use super::*;

/// Places in a tuple's two buckets.
const BOTH_BUCKETS: u32 = 24;

/// Well-mixed numbers, for tuples nobody chose.
fn mixed(n: u64) -> u64 {
    let x = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn tuple(n: u32) -> FourTuple {
    let low = mixed(n.into());
    let octets = (low as u32).to_be_bytes();
    let ports = (low >> 32) as u32;
    if n.is_multiple_of(3) {
        let remote = format!("[fd00::{:x}]:{}", octets[0], ports as u16)
            .parse()
            .unwrap();
        let mut tuple = FourTuple::new("[fd00::1]:80".parse().unwrap(), remote);
        tuple.remote.0[4..8].copy_from_slice(&n.to_be_bytes());
        tuple
    } else {
        let mut tuple = FourTuple::new("10.0.0.1:80".parse().unwrap(), (octets, ports as u16).into());
        tuple.remote.0[12..].copy_from_slice(&n.to_be_bytes());
        tuple
    }
}

fn tuples(count: u32) -> Vec<FourTuple> {
    (0..count).map(tuple).collect()
}

fn create(strategy: DemuxStrategy, capacity: u32) -> Demultiplexer {
    let region = Region::private(Demultiplexer::bytes_needed(strategy, capacity)).unwrap();
    Demultiplexer::create(&mut Carver::new(region).unwrap(), strategy, capacity, &[7; 16]).unwrap()
}

fn flow_table(capacity: u32) -> FlowTable {
    let Demultiplexer::FlowTable(table) = create(DemuxStrategy::FlowTable, capacity) else {
        unreachable!()
    };
    table
}

const STRATEGIES: [DemuxStrategy; 4] = [
    DemuxStrategy::Sequent { chains: 1 },
    DemuxStrategy::Sequent { chains: 19 },
    DemuxStrategy::Sequent { chains: 0 },
    DemuxStrategy::FlowTable,
];

/// What every call of a strategy must agree with.
fn check(demux: &mut impl Demux, model: &HashMap<FourTuple, u32>, store: &[FourTuple], all: &[FourTuple]) {
    assert_eq!(demux.len() as usize, model.len());
    assert_eq!(demux.is_empty(), model.is_empty());
    let mut ids = vec![0; all.len()];
    demux.lookup_burst(all, &mut ids, store);
    for (tuple, id) in all.iter().zip(ids) {
        let expected = model.get(tuple).copied();
        assert_eq!(demux.lookup(tuple, store), expected);
        assert_eq!((id != NONE).then_some(id), expected);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u32),
    Remove(u32),
    Lookup(u32),
}

fn steps(tuples: u32, removals: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..tuples).prop_map(Step::Insert),
        removals => (0..tuples).prop_map(Step::Remove),
        2 => (0..tuples).prop_map(Step::Lookup),
    ];
    prop::collection::vec(step, 1..600)
}

/// Runs steps on a table for 64 ids and on a map. The hook makes what is
/// unlikely frequent: two buckets for everything.
fn run(demux: &mut impl Demux, all: &[FourTuple], steps: Vec<Step>) {
    const CAPACITY: u32 = 64;
    let mut store = vec![FourTuple::default(); CAPACITY as usize];
    let mut model = HashMap::new();
    let mut free: Vec<u32> = (0..CAPACITY).collect();
    for step in steps {
        match step {
            Step::Insert(n) => {
                let tuple = all[n as usize];
                let Some(&id) = free.last() else { continue };
                if model.contains_key(&tuple) {
                    continue;
                }
                store[id as usize] = tuple;
                if demux.insert(id, &store[..]).is_ok() {
                    free.pop();
                    model.insert(tuple, id);
                } else {
                    assert!(
                        model.len() as u32 >= BOTH_BUCKETS + STASH as u32,
                        "full too early"
                    );
                }
            }
            Step::Remove(n) => {
                let removed = demux.remove(&all[n as usize], &store[..]);
                assert_eq!(removed, model.remove(&all[n as usize]));
                if let Some(id) = removed {
                    // What is not in the table must not be looked at.
                    store[id as usize] = FourTuple::default();
                    free.push(id);
                }
            }
            Step::Lookup(n) => {
                let tuple = all[n as usize];
                assert_eq!(demux.lookup(&tuple, &store[..]), model.get(&tuple).copied());
            }
        }
    }
    check(demux, &model, &store, all);
}

proptest! {
    #[test]
    fn behaves_like_a_map(steps in steps(100, 2), strategy in 0..STRATEGIES.len()) {
        run(&mut create(STRATEGIES[strategy], 64), &tuples(100), steps);
    }

    #[test]
    fn behaves_like_a_map_when_most_is_removed(steps in steps(40, 8), strategy in 0..STRATEGIES.len()) {
        run(&mut create(STRATEGIES[strategy], 64), &tuples(40), steps);
    }

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
            assert_eq!(table.lookup(tuple, &store[..]), Some(id));
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
            assert_eq!(table.remove(&shifted[id as usize], shifted), Some(id));
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
    for tuple in absent {
        assert_eq!(table.lookup(tuple, &store[..]), None);
    }
    // The cache holds nothing yet, so every comparison is one that a tag of 16
    // bits let through: 8 in 65536 for a bucket of 8.
    let examined = table.counters().examined;
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
    let before = BOTH_BUCKETS + STASH as u32;
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
        assert_eq!(table.lookup(tuple, &store[..]), Some(id));
    }
}

/// Where even other keys do not help, the table says so and stays as it was.
#[test]
fn a_hash_that_is_none_fills_the_table_early_and_harms_nothing() {
    let store = tuples(100);
    let mut table = flow_table(100);
    table.index.hook = Some(|_, _| 42);
    let room = BOTH_BUCKETS + STASH as u32;
    for id in 0..room {
        table.insert(id, &store[..]).unwrap();
    }
    // What leaves a bucket makes room for the stash, whose order changes.
    for id in [0, 5, BOTH_BUCKETS + 1] {
        assert_eq!(table.remove(&store[id as usize], &store[..]), Some(id));
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
        assert_eq!(table.lookup(&store[id as usize], &store[..]), None);
    }
    assert_eq!(table.index.contents(), before);
    assert_eq!(table.len(), room);
    for id in inside {
        assert_eq!(table.lookup(&store[id as usize], &store[..]), Some(id));
        assert_eq!(table.remove(&store[id as usize], &store[..]), Some(id));
    }
    assert!(table.index.is_pristine());
}

#[test]
fn trains_of_segments_are_answered_by_the_cache() {
    let store = tuples(100);
    for strategy in STRATEGIES {
        let mut demux = create(strategy, 100);
        for id in 0..100 {
            demux.insert(id, &store[..]).unwrap();
        }
        for _ in 0..10 {
            assert_eq!(demux.lookup(&store[5], &store[..]), Some(5));
        }
        let counters = demux.counters();
        assert_eq!((counters.lookups, counters.cache_hits), (10, 9));
        demux.remove(&store[5], &store[..]);
        assert_eq!(
            demux.lookup(&store[5], &store[..]),
            None,
            "the cache forgets what is removed"
        );
    }
}

/// The demux paper's cost of chains under random look-ups: a probe of the cache,
/// and half a chain if that misses (its equations 7 and 8 with N = 2000).
#[test]
fn chains_cost_what_the_paper_says() {
    const N: u32 = 2000;
    let store = tuples(N);
    for (chains, low, high) in [(1, 990.0, 1011.0), (19, 52.5, 55.5), (100, 10.5, 12.5)] {
        let mut demux = create(DemuxStrategy::Sequent { chains }, N);
        for id in 0..N {
            demux.insert(id, &store[..]).unwrap();
        }
        let lookups = 50_000;
        for n in 0..lookups {
            let id = (mixed(n + 1_000_000) % u64::from(N)) as u32;
            assert_eq!(demux.lookup(&store[id as usize], &store[..]), Some(id));
        }
        let cost = demux.counters().examined as f64 / lookups as f64;
        assert!((low..high).contains(&cost), "{chains} chains: {cost}");
    }
}
