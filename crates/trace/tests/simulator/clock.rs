//! Clocks with a secret offset, drift and wander.

use toehold_trace::stamp::StampClock;

/// What nothing but the simulation knows of a clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SecretClock {
    /// Ticks at time zero.
    pub(crate) offset: u64,
    /// Parts of a million by which the clock is too fast.
    pub(crate) drift_ppm: f64,
    /// Parts of a million by which it becomes faster in a second.
    pub(crate) wander_ppm: f64,
    /// A time in nanoseconds at which the thread moves to a processor whose counter is ahead, and
    /// by how many ticks.
    pub(crate) move_at: Option<(f64, u64)>,
}

impl SecretClock {
    /// The clock's ticks at a time in nanoseconds.
    pub(crate) fn at(&self, now: f64) -> u64 {
        let seconds = now / 1e9;
        let drift = self.drift_ppm + self.wander_ppm * seconds / 2.0;
        // The drift's part is apart, so that no digit of a long time is lost.
        let ticks = now * super::REFERENCE_TICKS;
        let ahead = self
            .move_at
            .filter(|(at, _)| now >= *at)
            .map_or(0, |(_, ahead)| ahead);
        self.offset
            .wrapping_add(ahead)
            .wrapping_add((ticks + ticks * drift / 1e6).floor() as i64 as u64)
    }
}

/// A clock whose reading takes time.
#[derive(Debug)]
pub(crate) struct SimulatedClock {
    pub(crate) secret: SecretClock,
    /// True time, in nanoseconds.
    pub(crate) now: f64,
    /// Time of a stamp before its reading, and after it.
    pub(crate) costs: (f64, f64),
}

impl StampClock for SimulatedClock {
    fn ticks(&mut self) -> u64 {
        self.now += self.costs.0;
        let ticks = self.secret.at(self.now);
        self.now += self.costs.1;
        ticks
    }

    fn fenced_ticks(&mut self) -> u64 {
        // A fence waits before the reading, and again after it.
        self.now += 15.0;
        let ticks = self.ticks();
        self.now += 15.0;
        ticks
    }
}
