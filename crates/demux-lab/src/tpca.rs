//! The workload of TPC/A: the order in which users send to the server.
//!
//! It is a closed loop. Each user thinks, enters a transaction, waits for its
//! result, and acknowledges that. Of a transaction's four segments the server
//! receives two: the entry and the acknowledgement of the result. Think times are
//! exponentially distributed and cut off at ten times their mean, as the benchmark
//! requires.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::model::Users;

/// Longest think time in multiples of the mean. Longer ones are drawn again.
const LONGEST_THINK_TIME: f64 = 10.0;

/// The two segments of a transaction that the server receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// The segment with the query.
    Entry,
    /// The acknowledgement of the result.
    Acknowledgement,
}

/// A user's next segment. Values are ordered by the first field, the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NextSegment {
    nanos: u64,
    user: u32,
}

/// An endless sequence of segments in the order of their arrival at the server.
#[derive(Debug)]
pub struct Arrivals {
    think_time: f64,
    response_time: f64,
    /// Marks the users that wait for a result.
    waiting: Vec<bool>,
    queue: BinaryHeap<Reverse<NextSegment>>,
    random: fastrand::Rng,
}

impl Arrivals {
    /// Starts in the stationary state: the usual share of users waits.
    pub fn new(of: &Users, seed: u64) -> Self {
        let count = of.users as u32;
        let mut new = Self {
            think_time: 1.0 / of.rate,
            response_time: of.response_time,
            waiting: vec![false; count as usize],
            queue: BinaryHeap::new(),
            random: fastrand::Rng::with_seed(seed),
        };
        let waits = new.response_time / (new.response_time + new.think_time);
        let mut due = Vec::with_capacity(count as usize);
        for user in 0..count {
            let waiting = new.random.f64() < waits;
            let span = if waiting {
                new.random.f64() * new.response_time
            } else {
                // The rest of an exponentially distributed time has its own
                // distribution.
                new.think()
            };
            new.waiting[user as usize] = waiting;
            due.push(Reverse(NextSegment {
                nanos: nanos(span),
                user,
            }));
        }
        new.queue = due.into();
        new
    }

    /// Returns the seconds from the beginning to the next segment.
    pub fn next_at(&self) -> f64 {
        let next = self.queue.peek();
        next.map_or(f64::INFINITY, |Reverse(due)| due.nanos as f64 / 1e9)
    }

    fn think(&mut self) -> f64 {
        loop {
            let times = -(1.0 - self.random.f64()).ln();
            if times < LONGEST_THINK_TIME {
                return times * self.think_time;
            }
        }
    }
}

/// Returns the mean number of users, without one, that enter a transaction
/// within `span` seconds.
pub fn entered_within(of: &Users, span: f64, seed: u64) -> f64 {
    const SPANS: u32 = 20;
    let mut arrivals = Arrivals::new(of, seed);
    let mut entered = 0;
    for number in 1..=SPANS {
        let until = f64::from(number) * span;
        let mut seen = vec![false; of.users as usize];
        while arrivals.next_at() < until {
            let Some((user, segment)) = arrivals.next() else {
                break;
            };
            let first = segment == Segment::Entry && !std::mem::replace(&mut seen[user as usize], true);
            entered += u32::from(first && user > 0);
        }
    }
    f64::from(entered) / f64::from(SPANS)
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl Iterator for Arrivals {
    type Item = (u32, Segment);

    fn next(&mut self) -> Option<(u32, Segment)> {
        let Reverse(NextSegment { nanos: now, user }) = *self.queue.peek()?;
        let waiting = self.waiting[user as usize];
        let span = if waiting { self.think() } else { self.response_time };
        self.waiting[user as usize] = !waiting;
        if let Some(mut first) = self.queue.peek_mut() {
            first.0.nanos = now + nanos(span);
        }
        let segment = if waiting {
            Segment::Acknowledgement
        } else {
            Segment::Entry
        };
        Some((user, segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_enter_and_acknowledge_in_turn_at_expected_rate() {
        let users = Users::thinking_ten_seconds(500.0, 2.0);
        let mut arrivals = Arrivals::new(&users, 5);
        let mut last: Vec<Option<Segment>> = vec![None; 500];
        let count = 100_000;
        for _ in 0..count {
            let (user, segment) = arrivals.next().unwrap();
            assert_ne!(last[user as usize], Some(segment));
            last[user as usize] = Some(segment);
        }
        // 500 users with a cycle of 12 s send 83 segments a second. The cut-off
        // reduces the mean think time of 10 s by 0.05 %.
        let seconds = arrivals.next_at();
        let rate = f64::from(count) / seconds;
        assert!((rate / (2.0 * 500.0 / 12.0) - 1.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn equal_seeds_give_equal_arrivals() {
        let users = Users::thinking_ten_seconds(50.0, 0.2);
        let some = |seed| Arrivals::new(&users, seed).take(1000).collect::<Vec<_>>();
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
    }
}
