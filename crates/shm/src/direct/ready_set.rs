//! Ready bits: which connections of a bank a waiter has to look at.
//!
//! A poster sets a connection's bit, then the bit of its word in the summary. A collector takes
//! the summary, then the words that it names. So a bit that the summary does not name yet will
//! be named, and a word that was taken too early is named in vain.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::futex::AtomicU64;

/// A waiter's bits in one bank. The peer may set and clear any of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadySet<'a> {
    pub(super) summary: &'a AtomicU64,
    pub(super) listeners: &'a AtomicU64,
    /// At most 64.
    pub(super) words: &'a [AtomicU64],
}

impl ReadySet<'_> {
    /// Says that a connection has something. Both bits are set even if they are set already:
    /// a collector may have taken one of them.
    #[inline]
    pub(super) fn set(&self, number: u16) {
        let index = usize::from(number) / 64;
        if let Some(word) = self.words.get(index) {
            word.fetch_or(1 << (number % 64), AcqRel);
            self.summary.fetch_or(1 << index, AcqRel);
        }
    }

    /// Says that a listener has a connection.
    #[inline]
    pub(super) fn set_listener(&self, listener: u16) {
        self.listeners.fetch_or(1 << (listener % 64), AcqRel);
    }

    /// Returns whether a look is worth it. The bits of a set that was just fenced against.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.summary.load(Relaxed) == 0 && self.listeners.load(Relaxed) == 0
    }

    /// Takes all bits of connections. What was stored before a bit was set is seen by the
    /// caller now.
    pub(super) fn collect(&self, mut each: impl FnMut(u16)) {
        if self.summary.load(Relaxed) == 0 {
            return;
        }
        let mut summary = self.summary.swap(0, AcqRel);
        while summary != 0 {
            let index = summary.trailing_zeros() as usize;
            summary &= summary - 1;
            let Some(word) = self.words.get(index) else {
                continue;
            };
            let mut bits = word.swap(0, AcqRel);
            while bits != 0 {
                each((index * 64) as u16 + bits.trailing_zeros() as u16);
                bits &= bits - 1;
            }
        }
    }

    /// Takes the bits of listeners: bit `n` is of those whose number modulo 64 is `n`.
    pub(super) fn collect_listeners(&self) -> u64 {
        match self.listeners.load(Relaxed) {
            0 => 0,
            _ => self.listeners.swap(0, AcqRel),
        }
    }

    /// Sets every bit, so that each connection and listener is looked at.
    pub(super) fn set_all(&self) {
        for word in self.words {
            word.fetch_or(u64::MAX, AcqRel);
        }
        let named = match self.words.len() {
            64.. => u64::MAX,
            words => (1 << words) - 1,
        };
        self.summary.fetch_or(named, AcqRel);
        self.listeners.fetch_or(u64::MAX, AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bits_set_are_collected_once() {
        let (summary, listeners) = (AtomicU64::new(0), AtomicU64::new(0));
        let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let set = ReadySet {
            summary: &summary,
            listeners: &listeners,
            words: &words,
        };
        let collect = || {
            let mut found = Vec::new();
            set.collect(|number| found.push(number));
            found
        };
        assert!(set.is_empty());
        for number in [4095, 0, 64, 0] {
            set.set(number);
        }
        set.set(4096);
        set.set_listener(65);
        assert!(!set.is_empty());
        assert_eq!(collect(), [0, 64, 4095]);
        assert_eq!((set.collect_listeners(), set.collect_listeners()), (2, 0));
        assert!(set.is_empty() && collect().is_empty());
        set.set_all();
        assert_eq!(collect().len(), 4096);
    }

    /// Under the real scheduler.
    #[test]
    fn no_bit_is_lost_between_posters_and_a_collector() {
        const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };
        let (summary, listeners) = (AtomicU64::new(0), AtomicU64::new(0));
        let words: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let done: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let set = ReadySet {
            summary: &summary,
            listeners: &listeners,
            words: &words,
        };
        std::thread::scope(|scope| {
            let posters: Vec<_> = (0..2)
                .map(|poster| {
                    let done = &done;
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let source = poster * 2 + round % 2;
                            done[source].fetch_add(1, Relaxed);
                            set.set((source * 64) as u16);
                        }
                    })
                })
                .collect();
            let mut seen = [0; 4];
            let mut look = || {
                set.collect(|number| {
                    let source = usize::from(number) / 64;
                    seen[source] = done[source].load(Relaxed);
                });
            };
            while posters.iter().any(|poster| !poster.is_finished()) {
                look();
                std::thread::yield_now();
            }
            look();
            assert_eq!(seen, [ROUNDS as u64 / 2; 4]);
        });
    }
}
