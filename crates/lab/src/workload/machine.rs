//! The activity of the whole machine during a side's measurement: interrupts and context switches,
//! which the kernel does not count by process.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

use crate::samples::Machine;

impl Machine {
    /// The totals since the machine was started; `None` if the kernel does not report them.
    pub(super) fn so_far() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
        let tick_ns = 1_000_000_000
            / ticks
                .and_then(|ticks| u64::try_from(ticks).ok())
                .unwrap_or(100)
                .max(1);
        Self::of(&text, tick_ns)
    }

    /// Parses the text of `/proc/stat`.
    fn of(text: &str, tick_ns: u64) -> Self {
        let field = |line: &str, index: usize| {
            let fields = text.lines().find_map(|found| found.strip_prefix(line));
            let field = fields.and_then(|fields| fields.split_whitespace().nth(index));
            field.and_then(|field| field.parse::<u64>().ok()).unwrap_or(0)
        };
        Self {
            interrupts: field("intr ", 0),
            switches: field("ctxt ", 0),
            // user nice system idle iowait irq softirq
            softirq_ns: field("cpu ", 6) * tick_ns,
        }
    }

    /// The totals since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            interrupts: self.interrupts.saturating_sub(before.interrupts),
            switches: self.switches.saturating_sub(before.switches),
            softirq_ns: self.softirq_ns.saturating_sub(before.softirq_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_kernel_are_parsed() {
        let text = "cpu  10 0 20 300 4 0 7 0 0 0\ncpu0 5 0 10 150 2 0 3 0 0 0\n\
                    intr 12345 1 2 3\nctxt 678\nbtime 1\nsoftirq 9 1 2\n";
        let machine = Machine::of(text, 10_000_000);
        let expected = Machine {
            interrupts: 12345,
            switches: 678,
            softirq_ns: 70_000_000,
        };
        assert_eq!(machine, expected);
        assert_eq!(Machine::of("", 1), Machine::default());
        let before = Machine::so_far();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let since = Machine::so_far().since(&before);
        assert!(since.switches > 0, "this thread has slept: {since:?}");
    }
}
