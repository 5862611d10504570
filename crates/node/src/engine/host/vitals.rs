//! How a life is seen to be lost although no process has died in the wrong moment.
//!
//! Programs of a node can write to all of its memory. Whatever they do to it, the
//! engine has to survive, and begin another life. It looks every now and then:
//!
//! - whether its own threads still run: they end when they panic, or when somebody
//!   has closed the lease;
//! - whether the words that it has put between the pieces of the memory are as it has
//!   put them;
//! - whether the lease still comes round. A process that does not exist cannot give
//!   it back; one that runs and runs with it never will. One that is stopped may have
//!   it for as long as it likes.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use toehold_shm::Lease;

use super::life::Life;

/// Time between two looks.
pub(super) const PERIOD: Duration = Duration::from_millis(500);

/// Looks in a row that find the lease with the same process: beyond that it has
/// lost its way.
const PATIENCE: u32 = 12;

/// The same for one that does not exist.
const PATIENCE_WITH_NOBODY: u32 = 2;

/// The system's clock ticks a second, in which processor time is told (`proc(5)`).
const TICKS: u64 = 100;

/// What is the matter with a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing.
    Well,
    /// It is over.
    Lost,
    /// A thread of the engine itself does not come back.
    Stuck,
}

/// How the leases of all shards have been.
#[derive(Debug, Default)]
pub(super) struct Vitals {
    shards: Vec<Turns>,
}

/// Who has had a lease, for how long.
#[derive(Debug, Default)]
struct Turns {
    holder: Option<u16>,
    looks: u32,
    /// Processor time that the holder had used when it was first seen, in ticks.
    used: u64,
}

impl Vitals {
    /// Looks once. `processes` are the system's numbers of the node's.
    pub(super) fn examine(&mut self, life: &Life, processes: &BTreeMap<u16, u32>) -> Finding {
        if life.is_over() {
            return Finding::Lost;
        }
        self.shards
            .resize_with(life.shards.count().into(), Turns::default);
        for ((index, shard), turns) in life.shards.iter().zip(&mut self.shards) {
            let Some(holder) = shard.lease.lease().holder() else {
                turns.holder = None;
                continue;
            };
            let pid = processes.get(&holder).copied();
            match turns.examine_holder(holder, life.comes_round(index), pid) {
                Finding::Well => {}
                found => return found,
            }
        }
        Finding::Well
    }
}

impl Turns {
    fn examine_holder(&mut self, holder: u16, comes_round: bool, pid: Option<u32>) -> Finding {
        if comes_round {
            self.holder = None;
            return Finding::Well;
        }
        let process = pid.and_then(process);
        let used = process.map_or(0, |process| process.used);
        if self.holder != Some(holder) || process.is_some_and(|process| process.stopped) {
            self.holder = Some(holder);
            self.looks = 0;
            self.used = used;
            return Finding::Well;
        }
        self.looks += 1;
        if holder == Lease::ENGINE {
            return match self.looks > PATIENCE {
                true => Finding::Stuck,
                false => Finding::Well,
            };
        }
        let runs =
            used - self.used.min(used) > u64::from(self.looks) * PERIOD.as_millis() as u64 * TICKS / 4000;
        match process {
            None if self.looks > PATIENCE_WITH_NOBODY => Finding::Lost,
            Some(_) if self.looks > PATIENCE && runs => Finding::Lost,
            _ => Finding::Well,
        }
    }
}

/// A process as the system sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    /// By a signal, or by a debugger.
    stopped: bool,
    /// Processor time of all of its threads, in ticks.
    used: u64,
}

fn process(pid: u32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name may contain anything, and ends at the last parenthesis.
fn parse(stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let mut times = fields.skip(10);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some(Process {
        stopped: matches!(state, "T" | "t"),
        used: user.saturating_add(system),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_calls_itself() {
        let stat = "77 (a) T 1 (b) T 1 77 77 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 9 1 1 1";
        let expected = Process {
            stopped: true,
            used: 300,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("77 (a"), None);
        assert!(process(std::process::id()).is_some_and(|process| !process.stopped));
    }

    #[test]
    fn a_lease_that_nobody_can_have_is_lost() {
        let mut vitals = Turns::default();
        let mut look = || vitals.examine_holder(777, false, None);
        let findings: Vec<Finding> = (0..4).map(|_| look()).collect();
        assert_eq!(
            findings,
            [Finding::Well, Finding::Well, Finding::Well, Finding::Lost]
        );
    }

    #[test]
    fn a_lease_that_comes_round_is_well() {
        let mut vitals = Turns::default();
        for look in 0..100 {
            let finding = vitals.examine_holder(Lease::ENGINE, look % 10 == 9, None);
            assert_eq!(finding, Finding::Well);
        }
        let stuck = (0..100).any(|_| vitals.examine_holder(Lease::ENGINE, false, None) == Finding::Stuck);
        assert!(stuck);
    }
}
