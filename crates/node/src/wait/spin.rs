//! The time that a thread spins before it sleeps.
//!
//! Spinning pays while frames arrive within the time a wake-up would take, and if there is a
//! processor to spare. Neither can be known: affinity masks say nothing about other programs that
//! run. What can be seen is whether spinning helped the last times, so every socket remembers that.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use toehold_stack::Instant;

use super::crowd::{CROWD, Crowd};

/// The longest spin in nanoseconds: what sleeping, being woken and finding the
/// caches cold costs, a few times over.
const LONGEST_NS: u32 = 50_000;

/// A shorter spin is not worth beginning.
const SHORTEST_NS: u32 = 3_000;

/// Waits without a spin before one is tried, to notice that times have changed.
const RETRY_EVERY: u32 = 16;

/// Length of a trial. A peer that sleeps itself is to wake up, perhaps behind others on its
/// processor, and answer meanwhile. Otherwise two that have once begun to sleep would wake each
/// other for ever.
const TRIAL_NS: u64 = 2 * LONGEST_NS as u64;

/// How long to spin, learnt from success.
#[derive(Debug)]
pub struct SpinBudget {
    ns: AtomicU32,
    /// Waits without a spin since the last one.
    skipped: AtomicU32,
    crowd: &'static Crowd,
}

impl Default for SpinBudget {
    fn default() -> Self {
        Self::new()
    }
}

impl SpinBudget {
    /// A budget that is as optimistic as the machine allows.
    pub fn new() -> Self {
        let ns = if single_processor() { 0 } else { LONGEST_NS };
        Self {
            ns: AtomicU32::new(ns),
            skipped: AtomicU32::new(0),
            crowd: &CROWD,
        }
    }

    /// The other threads that want the processor.
    #[inline]
    pub(super) fn crowd(&self) -> &Crowd {
        self.crowd
    }

    /// How long to spin this time, in nanoseconds; what others have of it does not count.
    #[inline]
    pub fn get(&self) -> u64 {
        if self.crowd.refuses() {
            return 0;
        }
        let ns = self.ns.load(Relaxed);
        if ns >= SHORTEST_NS {
            ns.into()
        } else {
            self.trial()
        }
    }

    /// How long to spin once more in a wait, after a sleep, in nanoseconds. No spin is tried: a
    /// look that finds what it was woken for would pass for a spin that helped.
    pub(super) fn get_again(&self) -> u64 {
        let ns = self.ns.load(Relaxed);
        if ns < SHORTEST_NS || self.crowd.is_refusing() {
            0
        } else {
            ns.into()
        }
    }

    #[cold]
    fn trial(&self) -> u64 {
        let skipped = self.skipped.load(Relaxed) + 1;
        let try_now = skipped >= RETRY_EVERY && !single_processor();
        self.skipped.store(if try_now { 0 } else { skipped }, Relaxed);
        if try_now { TRIAL_NS } else { 0 }
    }

    /// Looks for something until a point in time, and lets others have the processor meanwhile.
    pub(crate) fn look(&self, until: Instant, seen: impl Fn() -> bool) {
        self.crowd.look(until, false, seen, || false);
    }

    /// Notes that the awaited event came while spinning.
    #[inline]
    pub fn helped(&self) {
        if self.ns.load(Relaxed) != LONGEST_NS {
            self.ns.store(LONGEST_NS, Relaxed);
        }
    }

    /// Notes that the awaited event did not come while spinning: spins less the next time.
    pub fn in_vain(&self) {
        self.ns.store(self.ns.load(Relaxed) / 2, Relaxed);
    }
}

/// Whether the machine has one processor only: nothing can change while a thread spins on it. The
/// process's affinity does not matter, for its peers may run elsewhere.
fn single_processor() -> bool {
    static SINGLE: OnceLock<bool> = OnceLock::new();
    *SINGLE.get_or_init(|| {
        let online = fs::read_to_string("/sys/devices/system/cpu/online");
        online.map_or_else(
            |_| std::thread::available_parallelism().is_ok_and(|n| n.get() == 1),
            |list| !list.contains(['-', ',']),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learns_from_success_and_failure() {
        let budget = SpinBudget {
            ns: AtomicU32::new(LONGEST_NS),
            skipped: AtomicU32::new(0),
            crowd: Box::leak(Box::new(Crowd::new())),
        };
        assert_eq!(budget.get(), u64::from(LONGEST_NS));
        for _ in 0..5 {
            budget.in_vain();
        }
        let spins: Vec<u64> = (0..RETRY_EVERY).map(|_| budget.get()).collect();
        let trials = spins.iter().filter(|&&ns| ns != 0).count();
        assert_eq!(trials, usize::from(!single_processor()));
        for _ in 0..2 * RETRY_EVERY {
            assert_eq!(budget.get_again(), 0, "a trial after a sleep");
        }
        budget.helped();
        assert_eq!(budget.get(), u64::from(LONGEST_NS));
    }
}
