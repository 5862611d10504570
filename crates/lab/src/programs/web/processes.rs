//! The use of processors by a server: by all processes of its group.

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
}
