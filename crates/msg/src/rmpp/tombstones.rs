//! Lives whose flows have ended, so that no late packet begins them again.

use crate::moment::Moment;
use std::collections::VecDeque;

/// Time for which an ended life is remembered, in nanoseconds.
const KEPT_NS: u64 = 120_000_000_000;

/// The incarnations of peers whose flows have ended. When full, the oldest goes.
#[derive(Debug)]
pub(crate) struct Tombstones {
    lives: VecDeque<(u64, Moment)>,
    capacity: usize,
}

impl Tombstones {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            lives: VecDeque::new(),
            capacity: capacity as usize,
        }
    }

    /// Remembers an ended life.
    pub(crate) fn add(&mut self, life: u64, now: Moment) {
        self.expire(now);
        if self.capacity == 0 || self.holds(life) {
            return;
        }
        if self.lives.len() == self.capacity {
            self.lives.pop_front();
        }
        self.lives.push_back((life, now));
    }

    /// Whether a life has ended lately.
    pub(crate) fn contains(&mut self, life: u64, now: Moment) -> bool {
        self.expire(now);
        self.holds(life)
    }

    fn holds(&self, life: u64) -> bool {
        self.lives.iter().any(|(other, _)| *other == life)
    }

    fn expire(&mut self, now: Moment) {
        while self
            .lives
            .front()
            .is_some_and(|(_, since)| now.ns_since(*since) > KEPT_NS)
        {
            self.lives.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_forgotten_by_age_and_by_number() {
        let mut tombstones = Tombstones::new(2);
        tombstones.add(1, Moment(0));
        tombstones.add(1, Moment(1));
        tombstones.add(2, Moment(1));
        assert!(tombstones.contains(1, Moment(2)));
        tombstones.add(3, Moment(2));
        assert!(!tombstones.contains(1, Moment(2)) && tombstones.contains(2, Moment(2)));
        assert!(!tombstones.contains(3, Moment(3 + KEPT_NS)));
    }
}
