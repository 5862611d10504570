//! The paper's workload on a strategy's table, counted and timed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use toehold_stack::demux::Demux;
use toehold_stack::{DemuxCounters, DemuxStrategy};

use super::table::in_bursts;
use crate::Connections;
use crate::model::Users;
use crate::simulation::settling;
use crate::tpca::Arrivals;

/// The cost of look-ups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Number of timed look-ups, after an equal number of counted ones.
    pub lookups: u64,
    /// PCBs examined a look-up, by a stack's counters, where segments come one
    /// by one.
    pub examined: f64,
    /// Time of all timed look-ups, in bursts and without counters.
    pub took: Duration,
}

/// Looks up segments of users one by one, counted, then as many in bursts, timed.
/// Before that the tables settle. The order of users and the keys of hashes come
/// from the seed.
///
/// # Panics
///
/// If a strategy does not find an entered connection, which is a bug of the
/// strategy.
pub fn look_up(strategy: DemuxStrategy, of: &Users, lookups: u32, seed: u64) -> Measured {
    let connections = Connections::new(of.users as u32);
    let mut table = connections.entered(strategy, seed);
    let lookups = lookups as usize;
    let until_settled = settling(of) as usize;
    let users = Arrivals::new(of, seed).map(|(user, _)| user);
    let users: Vec<_> = users.take(until_settled + 2 * lookups).collect();
    let tuples: Vec<_> = users.iter().map(|&user| *connections.tuple_of(user)).collect();
    let (settled, tuples) = tuples.split_at(until_settled);
    let (counted, timed) = tuples.split_at(lookups);

    in_bursts(&mut table, settled, &connections);
    let mut counters = DemuxCounters::default();
    for (tuple, &user) in counted.iter().zip(&users[until_settled..]) {
        let found = table.lookup(tuple, &connections, &mut counters);
        assert_eq!(found, Some(user), "{strategy} is wrong");
    }
    let start = Instant::now();
    black_box(in_bursts(&mut table, timed, &connections));
    Measured {
        lookups: lookups as u64,
        examined: counters.demux_examined as f64 / counters.demux_lookups.max(1) as f64,
        took: start.elapsed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate;

    #[test]
    fn counted_look_ups_match_simulation() {
        let of = Users::thinking_ten_seconds(500.0, 0.2);
        for strategy in [
            "bsd",
            "move-to-front",
            "sequent:19",
            "hashed-move-to-front:19",
            "flow-table",
        ] {
            let strategy = strategy.parse().unwrap();
            let measured = look_up(strategy, &of, 40_000, 2);
            let simulated = simulate(strategy, &of, 40_000, 2).together.examined;
            assert!(
                (measured.examined / simulated - 1.0).abs() < 0.02,
                "{strategy}: {measured:?}, {simulated} simulated"
            );
            assert!(measured.took > Duration::ZERO);
        }
    }
}
