//! A thread that looks for something lets others have the processor, if there are any.
//!
//! Of programs that are more than the processors, the one that spins keeps the one from running
//! that it waits for. Sleeping would cost both a wake-up. What is best then is to look and to give
//! way in turn. The thread that runs next finds what has come in the meantime, answers, and gives
//! way itself. So a message costs no more than the change from one thread to another.
//!
//! The system does not say whether other threads wait for a processor; the time that giving way
//! takes does. If it takes as long as a system call, no other thread wanted the processor, and the
//! rest of the time is spent spinning.
//!
//! If it takes very long again and again, a thread is there that does not give way. It gets a whole
//! slice of time from each that does. Then it is best to sleep at once, since a thread that is
//! woken is let in before others. Once in a while it takes long among threads that give way, too.
//! Each pays for it with a slice of its own, and now and then they are not even.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use toehold_stack::Instant;

use super::LOOKS;
use crate::clock;

/// A call that gave way took so long at least if another thread ran.
const SOMEBODY_NS: u64 = 1_200;

/// A call that gave way took so long at least if the other thread does not give way.
const SELFISH_NS: u64 = 500_000;

/// The weight of a call that took at least [`SELFISH_NS`], against one for each shorter call; and
/// the sum that is too much.
const SUSPICION: u32 = 64;
const CERTAINTY: u32 = 16 * SUSPICION;

/// How long to spin before the processor is offered to others, and between two offers, while no
/// thread wants it.
const ALONE_NS: u64 = 5_000;

/// Waits that do not even begin to look once a thread is known not to give way: at first, and at
/// most.
const FEWEST_REFUSED: u32 = 1 << 9;
const MOST_REFUSED: u32 = 1 << 14;

/// The knowledge about other threads on this processor. It is only a hint.
#[derive(Debug)]
pub(super) struct Crowd {
    /// A thread took the last offer and gave way again.
    here: AtomicU32,
    /// How much speaks for a thread that does not.
    suspicion: AtomicU32,
    /// Waits left without a look.
    refused: AtomicU32,
    /// The number of refused waits the last time.
    refusal: AtomicU32,
}

/// This process's knowledge: a new socket need not find out again what it costs to give way.
pub(super) static CROWD: Crowd = Crowd::new();

impl Crowd {
    pub(super) const fn new() -> Self {
        Self {
            here: AtomicU32::new(0),
            suspicion: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            refusal: AtomicU32::new(FEWEST_REFUSED / 2),
        }
    }

    /// Whether there are others that give way.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.here.load(Relaxed) != 0
    }

    /// Whether this wait should not look at all, because of a thread that would not give way.
    #[inline]
    pub(super) fn refuses(&self) -> bool {
        let refused = self.refused.load(Relaxed);
        if refused > 0 {
            self.refused.store(refused - 1, Relaxed);
        }
        refused > 0
    }

    /// Whether the next wait should not look at all.
    pub(super) fn is_refusing(&self) -> bool {
        self.refused.load(Relaxed) > 0
    }

    /// Looks until there is something, for some time at most, and only as long as no other thread
    /// wants the processor. Returns whether there is.
    ///
    /// This is for threads that another one will wake up, and that may be on their processor. A
    /// thread that gives way there pays with a slice, and comes long after one that sleeps and is
    /// woken.
    pub(super) fn look_alone(&self, budget_ns: u64, seen: impl Fn() -> bool) -> bool {
        let until = clock::now().plus_nanos(budget_ns);
        let mut offer_at = clock::now().plus_nanos(ALONE_NS);
        loop {
            for _ in 0..LOOKS {
                if seen() {
                    return true;
                }
                // The other one may be on the other thread of this core.
                spin_loop();
            }
            let now = clock::now();
            if now >= until || (now >= offer_at && self.offer(now, || false) >= SOMEBODY_NS) {
                return seen();
            }
            if now >= offer_at {
                offer_at = now.plus_nanos(ALONE_NS);
            }
        }
    }

    /// Looks until there is something, or until a point in time. How many nanoseconds of
    /// that were others'. `offers`: the processor is offered at once.
    pub(super) fn look(
        &self,
        until: Instant,
        offers: bool,
        seen: impl Fn() -> bool,
        relieved: impl Fn() -> bool,
    ) -> u64 {
        let mut given_ns = 0;
        let mut offer_at = (!offers && !self.is_here()).then(|| clock::now().plus_nanos(ALONE_NS));
        loop {
            for _ in 0..LOOKS {
                if seen() {
                    return given_ns;
                }
                if offer_at.is_none() {
                    break;
                }
                // The peer may be the other thread of this core.
                spin_loop();
            }
            let mut now = clock::now();
            if offer_at.is_none_or(|at| now >= at) {
                let took_ns = self.offer(now, &relieved);
                given_ns += took_ns.saturating_sub(SOMEBODY_NS);
                now = now.plus_nanos(took_ns);
                offer_at = (!self.is_here()).then(|| now.plus_nanos(ALONE_NS));
            }
            if now >= until || relieved() {
                return given_ns;
            }
        }
    }

    /// Offers the processor to others. How many nanoseconds that took.
    fn offer(&self, now: Instant, relieved: impl Fn() -> bool) -> u64 {
        std::thread::yield_now();
        let took_ns = clock::now().nanos_since(now);
        if relieved() {
            self.learn(SOMEBODY_NS);
        } else {
            self.learn(took_ns);
        }
        took_ns
    }

    /// Learns from how long an offer took.
    fn learn(&self, took_ns: u64) {
        self.here.store((took_ns >= SOMEBODY_NS).into(), Relaxed);
        let suspicion = self.suspicion.load(Relaxed);
        if took_ns < SELFISH_NS {
            if suspicion > 0 {
                self.suspicion.store(suspicion - 1, Relaxed);
            }
        } else if suspicion + SUSPICION < CERTAINTY {
            self.suspicion.store(suspicion + SUSPICION, Relaxed);
        } else {
            // The next time, one such offer is enough.
            self.here.store(0, Relaxed);
            let refusal = (self.refusal.load(Relaxed) * 2).min(MOST_REFUSED);
            self.refusal.store(refusal, Relaxed);
            self.refused.store(refusal, Relaxed);
        }
        if suspicion == 0 {
            self.refusal.store(FEWEST_REFUSED / 2, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_way_is_told_from_who_does_not() {
        let crowd = Crowd::new();
        crowd.learn(SOMEBODY_NS - 1);
        assert!(!crowd.is_here(), "a system call");
        crowd.learn(SOMEBODY_NS);
        assert!(crowd.is_here());
        // A few times mean nothing.
        for _ in 1..CERTAINTY / SUSPICION {
            crowd.learn(SELFISH_NS);
            assert!(crowd.is_here() && !crowd.refuses());
        }
        for refusals in [FEWEST_REFUSED, 2 * FEWEST_REFUSED] {
            crowd.learn(SELFISH_NS);
            assert!(!crowd.is_here());
            assert_eq!(
                (0..2 * refusals).filter(|_| crowd.refuses()).count(),
                refusals as usize
            );
        }
        for _ in 0..=CERTAINTY {
            crowd.learn(SOMEBODY_NS);
        }
        crowd.learn(SELFISH_NS);
        assert!(crowd.is_here() && !crowd.refuses(), "it is forgotten");
    }

    #[test]
    fn what_is_there_is_seen_at_once_whoever_else_is_there() {
        for took_ns in [0, SOMEBODY_NS, SELFISH_NS] {
            let crowd = Crowd::new();
            crowd.learn(took_ns);
            assert_eq!(crowd.look(Instant::NEVER, false, || true, || false), 0);
            assert!(crowd.look_alone(0, || true));
            assert!(!crowd.look_alone(0, || false));
        }
    }

    /// Each kept the others looking: sixteen idle nodes had both processors to themselves. Another
    /// thread of the same node has begun to drive: nothing comes to a thread that still looks.
    #[test]
    fn who_is_displaced_stops_looking() {
        for offers in [false, true] {
            let crowd = Crowd::new();
            crowd.look(Instant::NEVER, offers, || false, || true);
        }
    }

    #[test]
    fn many_who_look_in_vain_stop() {
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let crowd = Crowd::new();
                    for _ in 0..10 {
                        assert!(!crowd.look_alone(50_000, || false));
                    }
                });
            }
        });
    }

    /// Two threads that wait for each other on one processor.
    #[test]
    fn a_look_lets_the_one_run_that_is_waited_for() {
        let turn = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for me in 0..2 {
                let turn = &turn;
                scope.spawn(move || {
                    let crowd = Crowd::new();
                    for round in 0..1000 {
                        let mine = 2 * round + me;
                        crowd.look(Instant::NEVER, false, || turn.load(Relaxed) == mine, || false);
                        turn.store(mine + 1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(turn.load(Relaxed), 2000);
    }
}
