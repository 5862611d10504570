//! Which clock stamps are taken with, as a decision with a reason.
//!
//! The processor's counter is the cheapest clock. It serves only if it runs evenly at all times, and
//! alike on all processors. Otherwise stamps come from `CLOCK_MONOTONIC_RAW`, which costs more and
//! is never adjusted. This module decides. It reads neither clock.

use std::fmt;

/// Why stamps cannot come from the processor's counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CounterFault {
    /// The processor has no counter that a program can read, or none is known.
    NoCounter,
    /// The counter's rate follows the processor's frequency.
    VariableRate,
    /// The counter stops while the processor sleeps.
    StopsAsleep,
    /// The kernel takes its time from another source, so it may have found the counter uneven.
    NotTheKernels,
    /// The kernel does not say where it takes its time from.
    SourceUnknown,
}

impl fmt::Display for CounterFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoCounter => "the processor has no counter that a program can read",
            Self::VariableRate => "the rate of the processor's counter follows its frequency",
            Self::StopsAsleep => "the processor's counter stops while the processor sleeps",
            Self::NotTheKernels => "the kernel does not take its time from the processor's counter",
            Self::SourceUnknown => "the kernel does not say where it takes its time from",
        })
    }
}

/// The clock that stamps are taken with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClockSource {
    /// The processor's counter (TSC). Its rate must be measured.
    Counter,
    /// The clock `CLOCK_MONOTONIC_RAW` of `clock_gettime(2)`, in nanoseconds, and why.
    MonotonicRaw(CounterFault),
}

impl ClockSource {
    /// Decides from what the kernel says of the machine.
    ///
    /// `cpuinfo` is the text of `/proc/cpuinfo`. `source` is the text of
    /// `/sys/devices/system/clocksource/clocksource0/current_clocksource`, or `None` if it cannot be
    /// read. Every processor must have the flags `constant_tsc` and `nonstop_tsc`.
    ///
    /// # Examples
    ///
    /// ```
    /// use toehold_trace::clock_source::{ClockSource, CounterFault};
    ///
    /// let cpuinfo = "flags\t\t: fpu tsc constant_tsc nonstop_tsc\n";
    /// assert_eq!(ClockSource::decide(cpuinfo, Some("tsc\n")), ClockSource::Counter);
    /// assert_eq!(
    ///     ClockSource::decide(cpuinfo, Some("hpet\n")),
    ///     ClockSource::MonotonicRaw(CounterFault::NotTheKernels)
    /// );
    /// ```
    pub fn decide(cpuinfo: &str, source: Option<&str>) -> Self {
        match fault(cpuinfo, source) {
            None => Self::Counter,
            Some(fault) => Self::MonotonicRaw(fault),
        }
    }

    /// Decides for this machine, from the two files that [`ClockSource::decide`] names.
    pub fn of_this_machine() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        Self::decide(&cpuinfo, std::fs::read_to_string(source).ok().as_deref())
    }

    /// Nanoseconds of a tick; `None` if the rate must be measured.
    pub const fn ns_per_tick(self) -> Option<f64> {
        match self {
            Self::Counter => None,
            Self::MonotonicRaw(_) => Some(1.0),
        }
    }

    /// The name of this clock for the kernel's tracepoints (`trace_clock`).
    pub const fn tracefs_name(self) -> &'static str {
        match self {
            Self::Counter => "x86-tsc",
            Self::MonotonicRaw(_) => "mono_raw",
        }
    }
}

impl fmt::Display for ClockSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counter => out.write_str("the processor's counter"),
            Self::MonotonicRaw(fault) => write!(out, "CLOCK_MONOTONIC_RAW, for {fault}"),
        }
    }
}

fn fault(cpuinfo: &str, source: Option<&str>) -> Option<CounterFault> {
    let named = |line: &&str| line.split([':', '\t', ' ']).next() == Some("flags");
    let mut processors = cpuinfo.lines().filter(named).peekable();
    if processors.peek().is_none() {
        return Some(CounterFault::NoCounter);
    }
    let (mut is_constant, mut is_nonstop) = (true, true);
    for flags in processors {
        let has = |wanted: &str| flags.split_ascii_whitespace().any(|flag| flag == wanted);
        if !has("tsc") {
            return Some(CounterFault::NoCounter);
        }
        is_constant &= has("constant_tsc");
        is_nonstop &= has("nonstop_tsc");
    }
    match source.map(str::trim) {
        _ if !is_constant => Some(CounterFault::VariableRate),
        _ if !is_nonstop => Some(CounterFault::StopsAsleep),
        None | Some("") => Some(CounterFault::SourceUnknown),
        Some("tsc") => None,
        Some(_) => Some(CounterFault::NotTheKernels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n\n";

    #[test]
    fn machine_without_an_invariant_counter_falls_back_with_the_reason() {
        use CounterFault::*;
        let varying = GOOD.replace(" constant_tsc", "");
        let stopping = GOOD.replace(" nonstop_tsc", "");
        let one_of_two = format!("{GOOD}{stopping}");
        let cases = [
            ("", Some("tsc"), NoCounter),
            ("Features\t: fp asimd\n", Some("arch_sys_counter"), NoCounter),
            (
                "flags\t\t: fpu constant_tsc nonstop_tsc\n",
                Some("tsc"),
                NoCounter,
            ),
            (&varying, Some("tsc"), VariableRate),
            (&stopping, Some("tsc"), StopsAsleep),
            (&one_of_two, Some("tsc"), StopsAsleep),
            (GOOD, Some("kvm-clock\n"), NotTheKernels),
            (GOOD, None, SourceUnknown),
        ];
        for (cpuinfo, source, fault) in cases {
            let decided = ClockSource::decide(cpuinfo, source);
            assert_eq!(
                decided,
                ClockSource::MonotonicRaw(fault),
                "{cpuinfo:?} {source:?}"
            );
            assert!(decided.to_string().contains(&fault.to_string()));
            assert_eq!(
                (decided.ns_per_tick(), decided.tracefs_name()),
                (Some(1.0), "mono_raw")
            );
        }
    }

    #[test]
    fn invariant_counter_that_the_kernel_uses_is_taken() {
        let decided = ClockSource::decide(&GOOD.repeat(2), Some("tsc\n"));
        assert_eq!((decided, decided.ns_per_tick()), (ClockSource::Counter, None));
        assert_eq!(decided.tracefs_name(), "x86-tsc");
    }
}
