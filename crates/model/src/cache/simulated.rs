//! A least-recently-used cache, simulated request by request: what the formulas are checked with.

use std::collections::{BTreeMap, HashMap};

/// What a simulated cache did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimulatedHits {
    /// Requests.
    pub requests: u64,
    /// Requests whose file was in the cache.
    pub hits: u64,
    /// Bytes of the files that were not.
    pub missed_bytes: u64,
}

impl SimulatedHits {
    /// Hits as a share of requests; 0 without requests.
    pub fn ratio(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }
}

/// A cache that holds the files that were asked for last. A file that is larger than the cache
/// passes through and displaces none.
///
/// ```
/// let mut cache = toehold_model::cache::SimulatedLru::new(100);
/// assert!(!cache.ask(1, 60));
/// assert!(cache.ask(1, 60));
/// assert!(!cache.ask(2, 60)); // Displaces the first.
/// assert!(!cache.ask(1, 60));
/// assert_eq!(cache.counts().ratio(), 0.25);
/// ```
#[derive(Debug, Clone, Default)]
pub struct SimulatedLru {
    capacity: u64,
    used: u64,
    now: u64,
    /// When each file in the cache was asked for last, and its bytes.
    last: HashMap<usize, (u64, u64)>,
    /// The files in the cache, the one that was asked for least recently first.
    order: BTreeMap<u64, usize>,
    counts: SimulatedHits,
}

impl SimulatedLru {
    /// Makes an empty cache for so many bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    /// Asks for a file by its number. Returns `true` if it was in the cache.
    pub fn ask(&mut self, file: usize, bytes: u64) -> bool {
        self.now += 1;
        self.counts.requests += 1;
        let held = self.last.get(&file).copied();
        if let Some((last, bytes)) = held {
            self.counts.hits += 1;
            self.order.remove(&last);
            self.place(file, bytes);
            return true;
        }
        self.counts.missed_bytes += bytes;
        if bytes <= self.capacity {
            self.make_room(bytes);
            self.used += bytes;
            self.place(file, bytes);
        }
        false
    }

    fn place(&mut self, file: usize, bytes: u64) {
        self.last.insert(file, (self.now, bytes));
        self.order.insert(self.now, file);
    }

    fn make_room(&mut self, bytes: u64) {
        while self.used > self.capacity - bytes {
            let Some((_, file)) = self.order.pop_first() else {
                return;
            };
            if let Some((_, bytes)) = self.last.remove(&file) {
                self.used -= bytes;
            }
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> SimulatedHits {
        self.counts
    }

    /// Counts from here on, with what the cache holds.
    pub fn count_again(&mut self) {
        self.counts = SimulatedHits::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_keeps_what_was_asked_for_last() {
        let mut cache = SimulatedLru::new(3);
        let answers = [1, 2, 3, 1, 4, 1, 2, 3].map(|file| cache.ask(file, 1));
        assert_eq!(answers, [false, false, false, true, false, true, false, false]);
        assert_eq!(cache.used, 3);
    }

    #[test]
    fn file_larger_than_the_cache_displaces_none() {
        let mut cache = SimulatedLru::new(10);
        cache.ask(1, 10);
        assert!(!cache.ask(2, 11));
        assert!(cache.ask(1, 10));
        assert_eq!(cache.counts().missed_bytes, 21);
    }

    #[test]
    fn large_file_displaces_several() {
        let mut cache = SimulatedLru::new(10);
        for file in 1..=5 {
            cache.ask(file, 2);
        }
        cache.ask(6, 7);
        assert_eq!(cache.used, 9);
        assert!(cache.ask(5, 2) && !cache.ask(4, 2));
    }
}
