//! Times of look-ups while a thread on another core also looks up. As shards do,
//! each thread has its own table and connections. No table is shared: a look-up in
//! a shard needs its lease, and changes lists and caches.

use std::thread;

use serde::Serialize;
use toehold_stack::DemuxStrategy;

use super::table::{Candidate, Table, Wanted};
use super::{FEWEST, Plan, Run, Traffic, least_and_median, wanted};
use crate::Connections;

/// Number of concurrent threads.
const THREADS: usize = 2;

/// A candidate's times in one thread and in two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Threads {
    /// Number of connections in each table.
    pub connections: u32,
    /// The candidate's name.
    pub candidate: String,
    /// Nanoseconds a look-up of a thread while the other one waits, in each round.
    pub alone_ns: Vec<f64>,
    /// Nanoseconds a look-up of each thread while both look up, in each round.
    pub both_ns: Vec<f64>,
}

impl Threads {
    /// Returns the ratio of the medians: 1 if the threads do not disturb each
    /// other.
    pub fn ratio(&self) -> f64 {
        let [both, alone] = [&self.both_ns, &self.alone_ns].map(|rounds| least_and_median(rounds)[1]);
        both / alone
    }
}

/// Returns the candidates that are limited by memory only.
pub(super) fn candidates() -> Vec<Candidate> {
    let candidates = [
        Candidate::Bursts(DemuxStrategy::FlowTable),
        Candidate::Foldhash,
        Candidate::RteHash,
        Candidate::TwoLines,
    ];
    candidates
        .into_iter()
        .filter(|it| it.missing().is_none())
        .collect()
}

/// Measures look-ups of TPC/A's users. Each table has the number of connections
/// of the plan.
///
/// # Panics
///
/// If a candidate gives a wrong result.
pub fn threads(plan: &Plan, mut progress: impl FnMut(&str)) -> Vec<Threads> {
    let mut found = Vec::new();
    for &count in &plan.connections {
        progress(&format!("{count} connections for each of {THREADS} threads"));
        let shard = |number: u64| {
            (
                Connections::new(count),
                wanted(Traffic::Tpca, count, plan.seed + number),
            )
        };
        let shards = [0, 1].map(shard);
        let filled = |candidate: Candidate| {
            let table = |(connections, _): &(Connections, Wanted)| candidate.filled(connections, plan.seed);
            (candidate, shards.each_ref().map(table))
        };
        let mut tables: Vec<_> = candidates().into_iter().map(filled).collect();
        let mut pairs: Vec<_> = tables.iter_mut().map(|it| pair(it, &shards, count)).collect();
        for round in 0..plan.rounds as usize {
            for (runs, found) in &mut pairs {
                found.round(runs, round % THREADS);
            }
        }
        found.extend(pairs.into_iter().map(|(_, found)| found));
    }
    found
}

/// A candidate's threads, ready to look up, without results yet.
fn pair<'a>(
    (candidate, tables): &'a mut (Candidate, [Table; THREADS]),
    shards: &'a [(Connections, Wanted); THREADS],
    count: u32,
) -> ([Run<'a>; THREADS], Threads) {
    let mut shards = shards.iter();
    let runs = tables.each_mut().map(|table| {
        let (connections, wanted) = shards.next().expect("one for each thread");
        let mut run = Run {
            candidate: *candidate,
            table,
            wanted,
            connections,
            lookups: FEWEST,
            next: 0,
            rounds: Vec::new(),
        };
        run.check(Traffic::Tpca);
        run.calibrate();
        run
    });
    let found = Threads {
        connections: count,
        candidate: candidate.name(),
        alone_ns: Vec::new(),
        both_ns: Vec::new(),
    };
    (runs, found)
}

impl Threads {
    /// Lets one thread look up, then all of them at once.
    fn round(&mut self, runs: &mut [Run<'_>; THREADS], alone: usize) {
        runs[alone].round(Traffic::Tpca);
        self.alone_ns.append(&mut runs[alone].rounds);
        thread::scope(|scope| {
            for run in runs.iter_mut() {
                scope.spawn(|| run.round(Traffic::Tpca));
            }
        });
        for run in runs {
            self.both_ns.append(&mut run.rounds);
        }
    }
}
