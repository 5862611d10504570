//! What look-ups take on this machine: all candidates in turn in every round, so that a
//! change of the machine's speed does not look like a difference.

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

/// Look-ups of a candidate in a round, at most.
const LOOKUPS: usize = 1 << 20;

/// A candidate's time in a round: long lists get fewer look-ups.
const TIME: Duration = Duration::from_millis(60);

/// Look-ups of a candidate in a round, at least.
const FEWEST: usize = 2;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Numbers of connections.
    pub connections: Vec<u32>,
    /// Kinds of traffic.
    pub traffic: Vec<Traffic>,
    /// Whether lists are among the candidates, which take most of the time.
    pub lists: bool,
    /// Rounds.
    pub rounds: u32,
    /// Of everything random.
    pub seed: u64,
}

/// What one candidate took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Times {
    /// Connections in the table.
    pub connections: u32,
    /// What was looked up.
    pub traffic: Traffic,
    /// Its name.
    pub candidate: String,
    /// Look-ups in a round.
    pub lookups: usize,
    /// Nanoseconds a look-up, in the round in which it took least.
    pub min_ns: f64,
    /// Nanoseconds a look-up, in half of the rounds at most.
    pub median_ns: f64,
    /// Nanoseconds a look-up in each round, in their order.
    pub rounds_ns: Vec<f64>,
}

/// Carries a plan out, and says what it is at.
///
/// # Panics
///
/// If a candidate does not find what it should.
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

/// What this traffic looks up among so many connections.
fn wanted(traffic: Traffic, count: u32, seed: u64) -> Wanted {
    let numbers = traffic.numbers(count, LOOKUPS.min(count as usize * 64), seed);
    Wanted {
        tuples: numbers.iter().map(|&number| connection(number)).collect(),
        numbers: numbers.iter().map(|&number| number % count).collect(),
    }
}

/// A candidate that is measured.
struct Run<'a> {
    candidate: Candidate,
    table: &'a mut Table,
    wanted: &'a Wanted,
    connections: &'a Connections,
    /// Look-ups a round.
    lookups: usize,
    /// The next look-up. Lists get fewer look-ups than there are, and would not be as they
    /// are if they got the same in every round.
    next: usize,
    /// Nanoseconds a look-up.
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

/// The least of some rounds, and what half of them took at most.
///
/// # Panics
///
/// If there are none.
pub fn least_and_median(rounds: &[f64]) -> [f64; 2] {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    [sorted[0], sorted[sorted.len() / 2]]
}

impl Run<'_> {
    /// That it finds what it is asked for.
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

    /// Finds out how many look-ups it does in its time: in whole bursts if they are many.
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

    /// The look-ups of the next round; from the beginning if there are not so many left.
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

    /// A connection goes and comes again for eight look-ups.
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
    fn every_candidate_is_measured_with_every_traffic() {
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
    fn one_thread_and_two_are_measured() {
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
            assert_eq!((found.alone_ns.len(), found.both_ns.len()), (3, 6), "of both");
            assert!(found.alone_ns.iter().chain(&found.both_ns).all(|ns| *ns > 0.0));
            assert!(found.ratio() > 0.0);
        }
    }

    #[test]
    fn entering_is_timed() {
        let grown = growth(1000, 1);
        assert_eq!(grown.len(), 3);
        for grown in grown {
            let ordered = [grown.median_ns, grown.p99_ns, grown.p999_ns, grown.max_ns];
            assert!(ordered.is_sorted(), "{grown:?}");
        }
    }
}
