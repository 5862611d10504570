//! DPDK's `rte_hash` as DPDK's programs use it: keys of both families in one table,
//! looked up in bursts, with ids as values.

use toehold_rte_hash::{BURST, Rte, Table};
use toehold_shm::NONE;
use toehold_stack::FourTuple;

use super::table;
use crate::Connections;

pub(super) type RteHash = Table<FourTuple>;

/// Returns a table with all connections. It has room for a quarter more, rounded to
/// a power of two. Where many buckets are full, an insertion may find no way to one
/// with room.
pub(super) fn filled(connections: &Connections) -> RteHash {
    let rte = Rte::load().expect("a candidate that is there");
    let count = connections.iter().len() as u32;
    let mut table = Table::create(rte, (count + count / 4).max(64)).expect("memory");
    for (tuple, id) in connections.iter().zip(0..) {
        table.insert(tuple, id).expect("room for all");
    }
    table
}

/// Returns the sum of the ids, with [`NONE`] for missing ones.
pub(super) fn sum_in(table: &RteHash, tuples: &[FourTuple]) -> u64 {
    const { assert!(table::BURST <= BURST) };
    let mut ids = [0; BURST];
    let mut sum = 0;
    for burst in tuples.chunks(table::BURST) {
        let there = table.look_up(burst, &mut ids);
        let id = |at: usize, id: usize| match there >> at & 1 {
            1 => id as u64,
            _ => u64::from(NONE),
        };
        sum += (0..)
            .zip(&ids[..burst.len()])
            .map(|(at, &it)| id(at, it))
            .sum::<u64>();
    }
    sum
}
