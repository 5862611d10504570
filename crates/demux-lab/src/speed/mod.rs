//! Times of look-ups on this machine. All candidates take turns in every round, so
//! that a change of the machine's speed affects all of them.

mod attacks;
mod bulk;
mod crc;
mod growth;
mod table;
mod threads;
mod traffic;
mod users;

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde::Serialize;
use toehold_shm::NONE;

pub use attacks::{Attack, Attacked, attacks};
pub use growth::{Growth, growth};
pub use table::Candidate;
use table::{BURST, Table, Wanted};
pub use threads::{Threads, threads};
pub use traffic::Traffic;
pub use users::{Measured, look_up};

use crate::{Connections, connection};

/// Most look-ups of a candidate in a round.
const LOOKUPS: usize = 1 << 20;

/// A candidate's time in a round. Long lists do fewer look-ups in it.
const TIME: Duration = Duration::from_millis(60);

/// Fewest look-ups of a candidate in a round.
const FEWEST: usize = 2;

/// Plan of a measurement.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Numbers of connections.
    pub connections: Vec<u32>,
    /// Kinds of traffic.
    pub traffic: Vec<Traffic>,
    /// Whether to measure lists, which take most of the time.
    pub lists: bool,
    /// Number of rounds.
    pub rounds: u32,
    /// Seed of all randomness.
    pub seed: u64,
}

/// One candidate's times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Times {
    /// Number of connections in the table.
    pub connections: u32,
    /// Kind of traffic.
    pub traffic: Traffic,
    /// The candidate's name.
    pub candidate: String,
    /// Number of look-ups in a round.
    pub lookups: usize,
    /// Nanoseconds a look-up in the fastest round.
    pub min_ns: f64,
    /// Nanoseconds a look-up in the median round.
    pub median_ns: f64,
    /// Nanoseconds a look-up in each round, in order.
    pub rounds_ns: Vec<f64>,
}

/// Carries a plan out and reports its progress.
///
/// # Panics
///
/// If a candidate gives a wrong result.
pub fn measure(plan: &Plan, mut progress: impl FnMut(&str)) -> Vec<Times> {
    let mut times = Vec::new();
    for &count in &plan.connections {
        progress(&format!("entering {count} connections"));
        let connections = Connections::new(count);
        let mut candidates = Candidate::all(count);
        candidates.retain(|candidate| plan.lists || !candidate.is_list());
        let filled = |candidate: &Candidate| (*candidate, candidate.filled(&connections, plan.seed));
        let mut tables: Vec<_> = candidates.iter().map(filled).collect();
        for &traffic in &plan.traffic {
            progress(&format!("{} among {count} connections", traffic.name()));
            let wanted = wanted(traffic, count, plan.seed);
            let runs = compare(&mut tables, &wanted, traffic, &connections, plan);
            times.extend(runs.into_iter().map(|run| {
                let [min_ns, median_ns] = least_and_median(&run.rounds);
                Times {
                    connections: count,
                    traffic,
                    candidate: run.candidate.name(),
                    lookups: run.lookups,
                    min_ns,
                    median_ns,
                    rounds_ns: run.rounds,
                }
            }));
        }
    }
    times
}

/// Returns the look-ups of this traffic among `count` connections.
fn wanted(traffic: Traffic, count: u32, seed: u64) -> Wanted {
    let numbers = traffic.numbers(count, LOOKUPS.min(count as usize * 64), seed);
    Wanted {
        tuples: numbers.iter().map(|&number| connection(number)).collect(),
        numbers: numbers.iter().map(|&number| number % count).collect(),
    }
}

/// A measured candidate.
struct Run<'a> {
    candidate: Candidate,
    table: &'a mut Table,
    wanted: &'a Wanted,
    connections: &'a Connections,
    /// Number of look-ups in a round.
    lookups: usize,
    /// Index of the next look-up. Lists do fewer look-ups in a round than the
    /// sequence has. If they repeated its beginning, their order would not be
    /// representative.
    next: usize,
    /// Nanoseconds a look-up, by round.
    rounds: Vec<f64>,
}

fn compare<'a>(
    tables: &'a mut [(Candidate, Table)],
    wanted: &'a Wanted,
    traffic: Traffic,
    connections: &'a Connections,
    plan: &Plan,
) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    for (candidate, table) in tables {
        if traffic == Traffic::Churn && candidate.is_floor() {
            continue;
        }
        let mut run = Run {
            candidate: *candidate,
            table,
            wanted,
            connections,
            lookups: FEWEST,
            next: 0,
            rounds: Vec::new(),
        };
        run.check(traffic);
        run.calibrate();
        runs.push(run);
    }
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let mut order: Vec<_> = (0..runs.len()).collect();
    for _ in 0..plan.rounds {
        random.shuffle(&mut order);
        for &at in &order {
            runs[at].round(traffic);
        }
    }
    runs
}

/// Returns minimum and median of some rounds.
///
/// # Panics
///
/// If there are no rounds.
pub fn least_and_median(rounds: &[f64]) -> [f64; 2] {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    [sorted[0], sorted[sorted.len() / 2]]
}

impl Run<'_> {
    /// Checks that the candidate finds every wanted connection.
    fn check(&mut self, traffic: Traffic) {
        if self.candidate.is_floor() {
            return;
        }
        let found = self.table.look_up(self.wanted, 0..FEWEST, self.connections);
        let expected = |number: &u32| match traffic {
            Traffic::Misses => u64::from(NONE),
            _ => u64::from(*number),
        };
        let expected: u64 = self.wanted.numbers[..FEWEST].iter().map(expected).sum();
        assert_eq!(found, expected, "{} is wrong", self.candidate.name());
    }

    /// Finds the number of look-ups that fit the candidate's time, in whole
    /// bursts if many do.
    fn calibrate(&mut self) {
        let most = self.wanted.tuples.len();
        loop {
            let took = self.look_up();
            if took > TIME / 8 || self.lookups == most {
                let fitting = self.lookups as f64 * TIME.as_secs_f64() / took.as_secs_f64();
                let fitting = (fitting as usize).clamp(FEWEST, most);
                self.lookups = if fitting < BURST {
                    fitting
                } else {
                    fitting / BURST * BURST
                };
                return;
            }
            self.lookups = (self.lookups * 4).min(most);
        }
    }

    fn round(&mut self, traffic: Traffic) {
        let took = match traffic {
            Traffic::Churn => self.churn(),
            _ => self.look_up(),
        };
        self.rounds.push(took.as_nanos() as f64 / self.lookups as f64);
    }

    /// Returns the look-ups of the next round. It starts over if too few are
    /// left.
    fn take(&mut self) -> Range<usize> {
        if self.next + self.lookups > self.wanted.tuples.len() {
            self.next = 0;
        }
        let from = self.next;
        self.next += self.lookups;
        from..self.next
    }

    fn look_up(&mut self) -> Duration {
        let which = self.take();
        let start = Instant::now();
        black_box(self.table.look_up(self.wanted, which, self.connections));
        start.elapsed()
    }

    /// Removes and enters a connection for every eight look-ups.
    fn churn(&mut self) -> Duration {
        const SEGMENTS: usize = 8;
        let which = self.take();
        let start = Instant::now();
        for from in which.clone().step_by(SEGMENTS) {
            let until = (from + SEGMENTS).min(which.end);
            black_box(self.table.look_up(self.wanted, from..until, self.connections));
            let exchanged = self.table.exchange(self.wanted.numbers[from], self.connections);
            assert!(exchanged, "{} has lost a connection", self.candidate.name());
        }
        start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measure_covers_every_candidate_and_traffic() {
        let plan = Plan {
            connections: vec![64],
            traffic: Traffic::ALL.to_vec(),
            lists: true,
            rounds: 1,
            seed: 3,
        };
        let times = measure(&plan, |_| {});
        let candidates = Candidate::all(64).len();
        assert_eq!(times.len(), candidates * 5 - 3, "no churn without a table");
        assert!(
            times
                .iter()
                .all(|times| times.min_ns > 0.0 && times.lookups >= FEWEST)
        );
    }

    #[test]
    fn threads_measures_one_thread_and_two() {
        let plan = Plan {
            connections: vec![64, 128],
            traffic: Vec::new(),
            lists: false,
            rounds: 3,
            seed: 3,
        };
        let found = threads(&plan, |_| {});
        assert_eq!(found.len(), 2 * threads::candidates().len());
        for found in found {
            assert_eq!(
                (found.alone_ns.len(), found.both_ns.len()),
                (3, 6),
                "two samples a round, one a thread"
            );
            assert!(found.alone_ns.iter().chain(&found.both_ns).all(|ns| *ns > 0.0));
            assert!(found.ratio() > 0.0);
        }
    }

    #[test]
    fn growth_times_every_map() {
        let grown = growth(1000, 1);
        assert_eq!(grown.len(), 3);
        for grown in grown {
            let ordered = [grown.median_ns, grown.p99_ns, grown.p999_ns, grown.max_ns];
            assert!(ordered.is_sorted(), "{grown:?}");
        }
    }
}
