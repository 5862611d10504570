//! Requests at times that do not depend on the answers: an open loop.
//!
//! Intervals are drawn from an exponential distribution, as if many independent users sent
//! requests. Each request has a due time, and the result is the time from then to its answer. A
//! request that is due while another is in progress waits, and its wait counts. A stack that falls
//! behind therefore still receives the requests that a closed loop would leave out. The server is
//! that of a ping-pong.

use std::io;
use std::time::{Duration, Instant};

use super::kind::Pace;
use super::meter::Meter;
use super::ping_pong::{Client, nanoseconds};
use super::reading::read_end;
use crate::samples::{Recorder, Side};
use crate::testbed::Connection;

/// Time before a request for which its client is awake, and polls the clock.
const AWAKE: Duration = Duration::from_micros(200);

pub(super) fn drive(connection: impl Connection, size: usize, rate: u32, pace: &Pace) -> io::Result<Side> {
    let mut client = Client::new(connection, size);
    let mut schedule = Schedule::new(rate);
    while schedule.at < pace.warm_up {
        ask(&mut client, &mut schedule)?;
    }
    let mut recorder = Recorder::new();
    let warm = client.sent;
    let meter = Meter::start();
    let end = pace.warm_up + pace.span;
    while schedule.at < end {
        recorder.record(nanoseconds(ask(&mut client, &mut schedule)?));
    }
    let messages = 2 * (client.sent - warm);
    let side = meter.stop(messages, messages * size as u64);
    client.connection.finish()?;
    read_end(&mut client.connection)?;
    Ok(Side {
        total_bytes: 2 * client.sent * size as u64,
        durations: Some(recorder.counts()),
        ..side
    })
}

/// Waits until the next request is due, and sends it. Returns the time from then to its answer.
fn ask<C: Connection>(client: &mut Client<C>, schedule: &mut Schedule) -> io::Result<Duration> {
    let due = schedule.next();
    if let Some(asleep) = due.saturating_duration_since(Instant::now()).checked_sub(AWAKE) {
        std::thread::sleep(asleep);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
    client.send()?;
    client.receive()?;
    Ok(due.elapsed())
}

/// The due times of requests.
#[derive(Debug)]
struct Schedule {
    began: Instant,
    /// The next due time, since the beginning.
    at: Duration,
    mean: Duration,
    random: fastrand::Rng,
}

impl Schedule {
    /// A schedule of `rate` requests a second.
    fn new(rate: u32) -> Self {
        Self {
            began: Instant::now(),
            at: Duration::ZERO,
            mean: Duration::from_secs(1) / rate.max(1),
            random: fastrand::Rng::with_seed(u64::from(rate)),
        }
    }

    fn next(&mut self) -> Instant {
        let due = self.began + self.at;
        self.at += self.mean.mul_f64(-(1.0 - self.random.f64()).ln());
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_has_rate_independent_of_answers() {
        let mut schedule = Schedule::new(1000);
        let times: Vec<_> = (0..10_000).map(|_| schedule.next()).collect();
        assert!(times.is_sorted());
        let seconds = (times[9_999] - times[0]).as_secs_f64();
        assert!((9.5..10.5).contains(&seconds), "{seconds} for 10000 requests");
        let again: Vec<_> = {
            let mut schedule = Schedule::new(1000);
            (0..3).map(|_| schedule.next() - schedule.began).collect()
        };
        let first: Vec<_> = times[..3].iter().map(|time| *time - times[0]).collect();
        assert_eq!(first, again);
    }
}
