//! All strategies against a `BTreeMap`, for ten million operations.

use std::collections::BTreeMap;

use super::*;

/// A tuple in a form that the map can sort.
type Sorted = ([u8; 16], [u8; 16], u16, u16);

fn sorted(tuple: &FourTuple) -> Sorted {
    (tuple.local.0, tuple.remote.0, tuple.local_port, tuple.remote_port)
}

/// Ids and their tuples, as in the stack's slab.
struct Records {
    tuples: Vec<FourTuple>,
    free: Vec<u32>,
}

/// Tuples looked up at a time.
const BURST: usize = 32;

/// Runs `operations` on a table for `capacity` of `known` tuples. The share of inserted tuples goes
/// up and down, so that the table is nearly empty and nearly full in turn.
fn operate(strategy: DemuxStrategy, operations: u64, capacity: u32, known: u32, seed: u64) {
    let all = tuples(known);
    let mut records = Records {
        tuples: vec![FourTuple::default(); capacity as usize],
        free: (0..capacity).rev().collect(),
    };
    let mut demux = create(strategy, capacity);
    let mut model = BTreeMap::new();
    for n in 0..operations {
        let random = mixed(seed.wrapping_add(n));
        let tuple = all[(random % u64::from(known)) as usize];
        let filling = (n / u64::from(capacity)) % 4 < 2;
        match random >> 60 {
            0..8 if filling => insert(&mut demux, &mut model, &mut records, tuple),
            0..8 => remove(&mut demux, &mut model, &mut records, tuple),
            8 => {
                let burst: [_; BURST] =
                    std::array::from_fn(|at| all[(mixed(random + at as u64) % u64::from(known)) as usize]);
                let mut ids = [0; BURST];
                demux.lookup_burst(&burst, &mut ids, &records.tuples[..], &mut Unobserved);
                for (tuple, id) in burst.iter().zip(ids) {
                    let expected = model.get(&sorted(tuple)).copied();
                    assert_eq!(
                        (id != NONE).then_some(id),
                        expected,
                        "{strategy}, seed {seed}, {n}"
                    );
                }
            }
            _ => {
                let found = demux.lookup(&tuple, &records.tuples[..], &mut Unobserved);
                let expected = model.get(&sorted(&tuple)).copied();
                assert_eq!(found, expected, "{strategy}, seed {seed}, {n}");
            }
        }
        assert_eq!(demux.len() as usize, model.len());
    }
}

fn insert(demux: &mut Chosen, model: &mut BTreeMap<Sorted, u32>, records: &mut Records, tuple: FourTuple) {
    if model.contains_key(&sorted(&tuple)) {
        return;
    }
    let Some(id) = records.free.pop() else { return };
    records.tuples[id as usize] = tuple;
    demux.insert(id, &records.tuples[..]).unwrap();
    model.insert(sorted(&tuple), id);
}

fn remove(demux: &mut Chosen, model: &mut BTreeMap<Sorted, u32>, records: &mut Records, tuple: FourTuple) {
    let Some(id) = model.remove(&sorted(&tuple)) else {
        return;
    };
    assert!(demux.remove(id, &records.tuples[..]));
    // The table must not read the tuple of a removed id.
    records.tuples[id as usize] = FourTuple::default();
    records.free.push(id);
}

#[test]
fn strategies_agree_with_a_map() {
    for (seed, strategy) in (0..).zip(STRATEGIES) {
        operate(strategy, 20_000, 300, 450, seed);
    }
}

#[test]
#[ignore = "slow: ten million operations"]
fn strategies_agree_with_a_map_for_ten_million_operations() {
    for (seed, strategy) in (100..).zip(STRATEGIES) {
        operate(strategy, 10_000_000 / STRATEGIES.len() as u64, 1000, 1500, seed);
    }
    operate(DemuxStrategy::FlowTable, 10_000_000, 100_000, 150_000, 200);
    operate(
        DemuxStrategy::Sequent { chains: 25_000 },
        10_000_000,
        100_000,
        150_000,
        201,
    );
}
