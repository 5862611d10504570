use std::collections::HashMap;

use proptest::prelude::*;
use toehold_shm::{Carver, NONE, Region};

use super::*;
use crate::counters::DemuxCounters;

mod flow_table;
mod long;

/// A flow table takes fewer ids than this always, whatever their hashes.
const NEVER_FULL: usize = flow_table::ROOM as usize;

/// Well-mixed numbers, for tuples that no attacker chose.
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

fn create(strategy: DemuxStrategy, capacity: u32) -> Chosen {
    let region = Region::private(Chosen::bytes_needed(strategy, capacity)).unwrap();
    Chosen::create(&mut Carver::new(region).unwrap(), strategy, capacity, &[7; 16]).unwrap()
}

const STRATEGIES: [DemuxStrategy; 8] = [
    DemuxStrategy::Bsd,
    DemuxStrategy::MoveToFront,
    DemuxStrategy::Sequent { chains: 0 },
    DemuxStrategy::Sequent { chains: 1 },
    DemuxStrategy::Sequent { chains: 19 },
    DemuxStrategy::HashedMoveToFront { chains: 1 },
    DemuxStrategy::HashedMoveToFront { chains: 19 },
    DemuxStrategy::FlowTable,
];

/// Checks one call of a strategy against the model.
fn check(demux: &mut impl Demux, model: &HashMap<FourTuple, u32>, store: &[FourTuple], all: &[FourTuple]) {
    assert_eq!(demux.len() as usize, model.len());
    assert_eq!(demux.is_empty(), model.is_empty());
    let mut ids = vec![0; all.len()];
    demux.lookup_burst(all, &mut ids, store, &mut Unobserved);
    for (tuple, id) in all.iter().zip(ids) {
        let expected = model.get(tuple).copied();
        assert_eq!(demux.lookup(tuple, store, &mut Unobserved), expected);
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

/// Runs steps on a table for 64 ids and on a map. The hook makes rare cases frequent: two buckets
/// for all tuples.
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
                    assert!(model.len() >= NEVER_FULL, "full too early");
                }
            }
            Step::Remove(n) => {
                let Some(id) = model.remove(&all[n as usize]) else {
                    continue;
                };
                assert!(demux.remove(id, &store[..]));
                assert!(!demux.remove(id, &store[..]), "once");
                // The table must not read the tuple of a removed id.
                store[id as usize] = FourTuple::default();
                free.push(id);
            }
            Step::Lookup(n) => {
                let tuple = all[n as usize];
                let found = demux.lookup(&tuple, &store[..], &mut Unobserved);
                assert_eq!(found, model.get(&tuple).copied());
            }
        }
    }
    check(demux, &model, &store, all);
}

proptest! {
    #[test]
    fn strategy_behaves_like_map(steps in steps(100, 2), strategy in 0..STRATEGIES.len()) {
        run(&mut create(STRATEGIES[strategy], 64), &tuples(100), steps);
    }

    #[test]
    fn strategy_with_many_removals_behaves_like_map(steps in steps(40, 8), strategy in 0..STRATEGIES.len()) {
        run(&mut create(STRATEGIES[strategy], 64), &tuples(40), steps);
    }
}

#[test]
fn train_of_segments_hits_cache() {
    let store = tuples(100);
    for strategy in STRATEGIES {
        let mut demux = create(strategy, 100);
        for id in 0..100 {
            demux.insert(id, &store[..]).unwrap();
        }
        let mut first = DemuxCounters::default();
        assert_eq!(demux.lookup(&store[5], &store[..], &mut first), Some(5));
        let mut others = DemuxCounters::default();
        for _ in 0..10 {
            assert_eq!(demux.lookup(&store[5], &store[..], &mut others), Some(5));
        }
        // The first entry of a list in the order of use is the one that a cache would hold.
        let in_order = matches!(
            strategy,
            DemuxStrategy::MoveToFront | DemuxStrategy::HashedMoveToFront { .. }
        );
        let hits = if in_order { 0 } else { 10 };
        assert_eq!((first.demux_lookups, first.demux_cache_hits), (1, 0));
        assert_eq!((others.demux_lookups, others.demux_cache_hits), (10, hits));
        assert_eq!((others.demux_examined, others.demux_lines), (10, 20));
        assert!(demux.remove(5, &store[..]));
        let found = demux.lookup(&store[5], &store[..], &mut Unobserved);
        assert_eq!(found, None, "the cache forgets what is removed");
    }
}

/// The demux paper's cost under random look-ups. It is a probe of the cache, and half a chain if
/// the probe misses. These are the paper's equations 1, 7 and 8 with N = 2000, plus the failed
/// probe. Lists in the order of use also cost half a list.
#[test]
fn list_costs_match_paper() {
    const N: u32 = 2000;
    let store = tuples(N);
    for (strategy, low, high) in [
        ("bsd", 990.0, 1012.0),
        ("move-to-front", 989.0, 1011.0),
        ("sequent:1", 990.0, 1012.0),
        ("sequent:19", 52.5, 55.5),
        ("sequent:100", 10.5, 12.5),
        ("hashed-move-to-front:19", 51.5, 54.5),
    ] {
        let mut demux = create(strategy.parse().unwrap(), N);
        for id in 0..N {
            demux.insert(id, &store[..]).unwrap();
        }
        let mut counters = DemuxCounters::default();
        let lookups = 50_000;
        for n in 0..lookups {
            let id = (mixed(n + 1_000_000) % u64::from(N)) as u32;
            let found = demux.lookup(&store[id as usize], &store[..], &mut counters);
            assert_eq!(found, Some(id));
        }
        let cost = counters.demux_examined as f64 / lookups as f64;
        assert!((low..high).contains(&cost), "{strategy}: {cost}");
        assert!(counters.demux_lines > counters.demux_examined);
    }
}

/// The stack's demultiplexer counts only if told to, and finds the same ids in any case. The
/// paper's strategies count as if there were no records of closed connections.
#[test]
fn demultiplexer_without_counters_counts_nothing() {
    let store = tuples(50);
    for strategy in STRATEGIES {
        for counted in [true, false] {
            let region = Region::private(Demultiplexer::bytes_needed(strategy, 40, 10)).unwrap();
            let mut carver = Carver::new(region).unwrap();
            let mut demux =
                Demultiplexer::create(&mut carver, strategy, counted, (40, 10), &[7; 16]).unwrap();
            for id in 0..50 {
                demux.insert(id, &store[..]).unwrap();
            }
            for (id, tuple) in (0..).zip(&store) {
                assert_eq!(demux.lookup(tuple, &store[..]), Some(id), "{strategy}");
            }
            for id in [7, 47] {
                assert!(demux.remove(id, &store[..]));
                assert_eq!(demux.lookup(&store[id as usize], &store[..]), None);
            }
            let examined = demux.counters().map(|counters| counters.demux_examined);
            let lookups = demux.counters().map(|counters| counters.demux_lookups);
            assert_eq!(lookups, counted.then_some(52), "{strategy}");
            if strategy == DemuxStrategy::Bsd {
                // None of the records is on the list, nor in its cache.
                assert!(examined <= counted.then_some(52 * 41), "{examined:?}");
            }
        }
    }
}
