//! The paper's workload on the strategies' real code, counted but not timed.

use serde::Serialize;
use toehold_stack::demux::Demux;
use toehold_stack::{DemuxCounters, DemuxStrategy};

use crate::connections::Connections;
use crate::model::Users;
use crate::tpca::{Arrivals, Segment};

/// Think times before counting starts. By then nearly every user has sent a
/// segment, and the order of lists is stationary.
const SETTLED: f64 = 5.0;

/// Number of segments that reach the server before counting starts: two a
/// transaction.
pub(crate) fn settling(of: &Users) -> u64 {
    (2.0 * of.users * SETTLED) as u64
}
/// The mean cost of look-ups.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Number of look-ups.
    pub lookups: u64,
    /// PCBs examined a look-up.
    pub examined: f64,
    /// Share of look-ups that a one-entry cache answered.
    pub cache_hits: f64,
    /// Cache lines read a look-up.
    pub lines: f64,
}

impl Cost {
    fn of(counted: &DemuxCounters) -> Self {
        let each = |number: u64| number as f64 / counted.demux_lookups.max(1) as f64;
        Self {
            lookups: counted.demux_lookups,
            examined: each(counted.demux_examined),
            cache_hits: each(counted.demux_cache_hits),
            lines: each(counted.demux_lines),
        }
    }
}

/// The counts of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Simulated {
    /// Cost of entries.
    pub entries: Cost,
    /// Cost of acknowledgements.
    pub acknowledgements: Cost,
    /// Cost of all segments.
    pub together: Cost,
}

/// Looks up `lookups` segments of users after the tables have settled. The order of
/// users and the keys of hashes come from the seed.
///
/// # Panics
///
/// If a strategy does not find an entered connection, which is a bug of the
/// strategy.
pub fn simulate(strategy: DemuxStrategy, of: &Users, lookups: u64, seed: u64) -> Simulated {
    let connections = Connections::new(of.users as u32);
    let mut table = connections.entered(strategy, seed);
    let mut arrivals = Arrivals::new(of, seed);
    let settling = settling(of);
    let mut counted = [DemuxCounters::default(); 2];
    for n in 0..settling + lookups {
        let (user, segment) = arrivals.next().expect("users never cease");
        if n == settling {
            counted = Default::default();
        }
        let counters = &mut counted[usize::from(segment == Segment::Acknowledgement)];
        let tuple = connections.tuple_of(user);
        assert_eq!(table.lookup(tuple, &connections, counters), Some(user));
    }
    let mut together = counted[0];
    together.add(&counted[1]);
    Simulated {
        entries: Cost::of(&counted[0]),
        acknowledgements: Cost::of(&counted[1]),
        together: Cost::of(&together),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::exact::{self, Spread};

    /// Asserts that the mean of two seeds is within one per cent of the model's
    /// value.
    #[track_caller]
    fn agrees(strategy: &str, of: &Users, lookups: u64, model: f64) {
        let strategy = strategy.parse().unwrap();
        let simulated = |seed| simulate(strategy, of, lookups, seed).together.examined;
        let mean = (1..=2).map(simulated).sum::<f64>() / 2.0;
        assert!(
            (mean / model - 1.0).abs() < 0.01,
            "{strategy}: {mean} simulated, {model} by the model"
        );
    }

    #[test]
    fn simulated_lists_match_models() {
        for response in [0.2, 2.0] {
            let of = Users::thinking_ten_seconds(2000.0, response);
            agrees("move-to-front", &of, 10_000, exact::move_to_front(&of));
        }
        let of = Users::thinking_ten_seconds(2000.0, 0.5);
        agrees("bsd", &of, 10_000, exact::bsd(&of));
    }

    #[test]
    fn simulated_chains_match_models() {
        let of = Users::thinking_ten_seconds(2000.0, 0.2);
        for chains in [19, 51, 100] {
            let model = exact::sequent(&of, f64::from(chains), Spread::Random);
            agrees(&format!("sequent:{chains}"), &of, 200_000, model);
            let model = exact::hashed_move_to_front(&of, f64::from(chains), Spread::Random);
            agrees(&format!("hashed-move-to-front:{chains}"), &of, 200_000, model);
        }
    }

    #[test]
    fn simulated_flow_table_matches_model() {
        for (users, response) in [(2000.0, 0.2), (50_000.0, 2.0)] {
            let of = Users::thinking_ten_seconds(users, response);
            agrees("flow-table", &of, 50_000, exact::flow_table(&of));
        }
    }

    #[test]
    fn simulated_entries_and_acknowledgements_match_models() {
        let of = Users::thinking_ten_seconds(1000.0, 1.0);
        let simulated = simulate(DemuxStrategy::MoveToFront, &of, 60_000, 9);
        let acknowledgement = 1.0 + 999.0 * (1.0 - exact::silent(&of, 1.0));
        let entry = 2.0 * exact::move_to_front(&of) - acknowledgement;
        let close = |cost: &Cost, model: f64| (cost.examined / model - 1.0).abs() < 0.01;
        assert!(
            close(&simulated.acknowledgements, acknowledgement),
            "{simulated:?}"
        );
        assert!(close(&simulated.entries, entry), "{simulated:?}");
        assert_eq!(simulated.together.lookups, 60_000);
    }

    #[test]
    fn equal_seeds_give_equal_counts() {
        let of = Users::thinking_ten_seconds(100.0, 1.0);
        let strategy = DemuxStrategy::Sequent { chains: 7 };
        assert_eq!(simulate(strategy, &of, 1000, 3), simulate(strategy, &of, 1000, 3));
    }
}
