//! The monotonic clock that all processes of this machine share, cheap to read.
//!
//! A sender or receiver of small messages reads the clock a few times for each. Half of the cost of
//! `clock_gettime(2)` is not the counter itself. Where the kernel takes its time from the
//! processor's counter, a thread does so too. It reads counter and clock together once a
//! millisecond. In between it follows the counter, at the rate of the interval before. The error is
//! at most that of the rate over a millisecond: some tens of nanoseconds.

/// Nanoseconds on the system's monotonic clock, with an error of some tens. Within one thread they
/// never go backwards.
#[inline]
pub fn monotonic_ns() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return counter::now();
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    system_ns()
}

fn system_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod counter {
    use core::arch::x86_64::_rdtsc;
    use core::cell::Cell;
    use core::ops::RangeInclusive;
    use std::fs;
    use std::sync::OnceLock;

    use super::system_ns;

    /// How long a thread follows the counter before it reads the clock again.
    const SPAN_NS: u64 = 1_000_000;

    /// Intervals that determine a rate. In shorter ones, the time between the two readings distorts
    /// the rate; in longer ones, the machine may have slept.
    const SHORTEST_NS: u64 = SPAN_NS / 2;
    const LONGEST_NS: u64 = 1_000_000_000;

    /// Counter and clock must be read within this many ticks of one another.
    const TOGETHER: u64 = 1_000;

    /// Valid rates, in units of 2^-32 ns a tick: counters run at 100 MHz to 20 GHz.
    const RATES: RangeInclusive<u64> = (1 << 32) / 20..=10 << 32;

    /// Counter and clock at one time, and the rate from the time before. All zeroes: never read.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(super) struct Reading {
        pub(super) ticks: u64,
        pub(super) ns: u64,
        rate: u64,
        /// Ticks for which the counter can be followed.
        good_for: u64,
    }

    thread_local! {
        static READING: Cell<Reading> = const {
            Cell::new(Reading {
                ticks: 0,
                ns: 0,
                rate: 0,
                good_for: 0,
            })
        };
        /// The last time that the thread returned.
        static TOLD: Cell<u64> = const { Cell::new(0) };
    }

    #[inline]
    pub(super) fn now() -> u64 {
        let ticks = read_counter();
        let reading = READING.get();
        let now = match reading.follow(ticks) {
            Some(now) => now,
            None => read_both(reading, ticks),
        };
        let now = now.max(TOLD.get());
        TOLD.set(now);
        now
    }

    #[inline]
    fn read_counter() -> u64 {
        // SAFETY: the instruction reads a register, and every processor of this architecture has
        // it.
        unsafe { _rdtsc() }
    }

    /// Reads the clock right after the counter.
    #[cold]
    fn read_both(before: Reading, ticks: u64) -> u64 {
        let ns = system_ns();
        let apart = read_counter().wrapping_sub(ticks);
        READING.set(if !is_trusted() {
            Reading::default()
        } else if apart > TOGETHER {
            // The thread was interrupted between the two readings, so they do not belong together.
            before.unfollowed()
        } else {
            before.followed_by(ticks.wrapping_add(apart / 2), ns)
        });
        ns
    }

    impl Reading {
        /// The time at a later reading of the counter, unless that is too late.
        #[inline]
        pub(super) fn follow(&self, ticks: u64) -> Option<u64> {
            let passed = ticks.wrapping_sub(self.ticks);
            (passed < self.good_for)
                .then(|| self.ns + ((u128::from(passed) * u128::from(self.rate)) >> 32) as u64)
        }

        fn unfollowed(self) -> Reading {
            Reading { good_for: 0, ..self }
        }

        /// The next reading, whose rate is that of the interval between the two.
        pub(super) fn followed_by(self, ticks: u64, ns: u64) -> Reading {
            let passed = ticks.wrapping_sub(self.ticks);
            let passed_ns = ns.saturating_sub(self.ns);
            if self.ns != 0 && passed_ns < SHORTEST_NS {
                // The earlier reading stays until the interval is long enough.
                return self.unfollowed();
            }
            let rate = (u128::from(passed_ns) << 32) / u128::from(passed.max(1));
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            let usable = self.ns != 0 && passed_ns <= LONGEST_NS && RATES.contains(&rate);
            Reading {
                ticks,
                ns,
                rate,
                good_for: if usable {
                    (SPAN_NS << 32 >> 4) / (rate >> 4)
                } else {
                    0
                },
            }
        }
    }

    /// Whether the kernel takes its time from the counter too: it checks whether the counter runs
    /// evenly, and equally on all processors.
    fn is_trusted() -> bool {
        static TRUSTED: OnceLock<bool> = OnceLock::new();
        *TRUSTED.get_or_init(|| {
            fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .is_ok_and(|source| source.trim() == "tsc")
        })
    }
}

#[cfg(all(test, target_arch = "x86_64", not(any(loom, miri))))]
mod tests {
    use super::counter::Reading;
    use super::*;

    #[test]
    fn returned_time_matches_clock() {
        let mut last = 0;
        let end = system_ns() + 20_000_000;
        let mut reads = 0_u64;
        while last < end {
            let before = system_ns();
            let told = monotonic_ns();
            let after = system_ns();
            assert!(told >= last, "{told} after {last}");
            last = told;
            reads += 1;
            // Skip the check if the thread was interrupted in between.
            if after - before < 2_000 {
                assert!(
                    told + 20_000 > before && told < after + 20_000,
                    "{before} {told} {after}"
                );
            }
        }
        assert!(reads > 100);
    }

    /// A counter of 2 GHz, which the thread reads in intervals of all kinds.
    #[test]
    fn counter_is_followed_for_a_millisecond() {
        let at = |us: u64| ((1 << 40) + us * 2_000, 7_000_000_000 + us * 1_000);
        let read = |reading: Reading, us| {
            let (ticks, ns) = at(us);
            reading.followed_by(ticks, ns)
        };
        let first = read(Reading::default(), 0);
        assert_eq!(first.follow(at(1).0), None, "no rate is known yet");
        let early = read(first, 10);
        assert_eq!((early.ticks, early.follow(at(11).0)), (first.ticks, None));
        let good = read(early, 600);
        for us in [600, 601, 1_000, 1_599] {
            assert_eq!(good.follow(at(us).0), Some(at(us).1));
        }
        assert_eq!(good.follow(at(1_601).0), None);
        assert_eq!(good.follow(at(599).0), None, "a counter that went back");
        let slept = read(good, 5_000_000);
        assert_eq!(slept.follow(at(5_000_001).0), None, "the machine may have slept");
        let stopped = good.followed_by(good.ticks, good.ns + 900_000);
        assert_eq!(stopped.follow(good.ticks + 1), None, "a counter that stood still");
    }
}
