//! The use of processors by a server: by all processes of its group. Also that of the machine.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

use crate::samples::CpuUse;

/// The use so far, to a tick of the kernel's clock for each process.
pub(super) fn used(group: u32) -> CpuUse {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let ticks = ticks.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(100);
    let tick_ns = 1_000_000_000 / ticks.max(1);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    lines
        .filter_map(|line| ticks_of(&line, group))
        .fold(CpuUse::default(), |all, [user, system]| CpuUse {
            user_ns: all.user_ns + user * tick_ns,
            system_ns: all.system_ns + system * tick_ns,
            ..all
        })
}

/// User and system ticks in a line of `/proc/PID/stat`, including those of ended children, if the
/// process belongs to the group.
fn ticks_of(line: &str, group: u32) -> Option<[u64; 2]> {
    // A program's name may contain any characters.
    let (_, fields) = line.rsplit_once(") ")?;
    let fields: Vec<_> = fields.split_whitespace().collect();
    let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
    (field(2)? == u64::from(group))
        .then(|| Some([field(11)? + field(13)?, field(12)? + field(14)?]))
        .flatten()
}

/// Ticks of all processors since the machine's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MachineTicks {
    all: u64,
    idle: u64,
}

impl MachineTicks {
    /// The share of ticks since an earlier time that were not idle.
    pub(super) fn busy_since(self, earlier: Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        let idle = self.idle.saturating_sub(earlier.idle).min(all);
        (all - idle) as f64 / all.max(1) as f64
    }
}

/// Ticks so far; none if the kernel does not say.
pub(super) fn machine() -> MachineTicks {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    machine_of(text.lines().next().unwrap_or_default())
}

/// The ticks in the first line of `/proc/stat`. The fourth and fifth are idle ones, and those of
/// guests from the ninth on are counted twice.
fn machine_of(line: &str) -> MachineTicks {
    let ticks = line.split_whitespace().skip(1).take(8);
    let ticks: Vec<u64> = ticks.filter_map(|tick| tick.parse().ok()).collect();
    MachineTicks {
        all: ticks.iter().sum(),
        idle: ticks.iter().skip(3).take(2).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_group_count() {
        let line = "77 (a) 1 (b) S 1 76 76 0 -1 4194560 0 0 0 0 120 30 5 2 20 0 1 0 99 0 0";
        assert_eq!(ticks_of(line, 76), Some([125, 32]));
        assert_eq!(ticks_of(line, 77), None);
        assert_eq!(ticks_of("77 (a", 77), None);
    }

    #[test]
    fn busy_share_leaves_idle_ticks_out() {
        let before = machine_of("cpu  10 0 10 70 10 0 0 0 5 0");
        let after = machine_of("cpu  60 0 30 90 20 0 0 0 9 0");
        assert_eq!((before.all, before.idle), (100, 80));
        assert!((after.busy_since(before) - 0.7).abs() < 1e-9);
        assert!(after.busy_since(after).abs() < 1e-9);
    }
}
