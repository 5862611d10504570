//! Finding that a life is lost although no process has died in the wrong moment.
//!
//! Programs of a node can write to all of its memory. Whatever they do to it, the
//! engine has to survive, and begin another life. It looks every now and then:
//!
//! - whether its own threads still run: they end when they panic, or when a process has closed the
//!   lease;
//! - whether the words that it has put between the pieces of the memory are as it has
//!   put them;
//! - whether the lease still comes round. A process that does not exist cannot give it back; one
//!   that runs and runs with it never will. A process that is stopped by a signal is made to let go
//!   ([`super::guard`]). One that a debugger has stopped, or a cgroup's freezer, cannot be, and the
//!   life ends after some looks.

use std::collections::BTreeMap;
use std::time::Duration;

use toehold_shm::Lease;

use super::life::Life;
use crate::processes::{self, Halt, Task};

/// Time between two looks.
pub(super) const PERIOD: Duration = Duration::from_millis(500);

/// Looks in a row that find the lease with the same process: beyond that it has
/// lost its way.
const PATIENCE: u32 = 12;

/// Looks in a row that find the lease with a process that does not exist.
const PATIENCE_WITH_NOBODY: u32 = 2;

/// Looks in a row for a process of another PID namespace, of which nothing can be seen from here.
const PATIENCE_WITH_UNSEEN: u32 = 60;

/// Looks in a row for a process that is stopped, and that the guard cannot make let go.
const PATIENCE_WITH_STOPPED: u32 = 1;

/// Looks in a row for a process none of whose threads runs or wants to, as in a cgroup that is
/// frozen.
const PATIENCE_WITH_STILL: u32 = 6;

/// The system's clock ticks a second, in which processor time is told (`proc(5)`).
const TICKS: u64 = 100;

/// The health of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// The life is well.
    Well,
    /// The life is over.
    Lost,
    /// A thread of the engine itself does not come back.
    Stuck,
}

/// The health of the leases of all shards.
#[derive(Debug, Default)]
pub(super) struct Vitals {
    shards: Vec<Turns>,
}

/// The process that has had a lease, for how long.
#[derive(Debug, Default)]
struct Turns {
    holder: Option<u16>,
    looks: u32,
    /// Processor time that the holder's threads had used when it was first seen, in ticks.
    used: BTreeMap<u32, u64>,
}

impl Vitals {
    /// Looks once. `processes` are the node's, each with its number in `/proc`. The number is 0 for
    /// a process of a PID namespace that cannot be seen from here.
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
        let is_unseen = pid == Some(0);
        let tasks = pid
            .filter(|_| !is_unseen)
            .map(processes::tasks)
            .unwrap_or_default();
        if self.holder != Some(holder) {
            self.holder = Some(holder);
            self.looks = 0;
            self.used = used_by(&tasks);
            return Finding::Well;
        }
        self.looks += 1;
        if holder == Lease::ENGINE {
            return match self.looks > PATIENCE {
                true => Finding::Stuck,
                false => Finding::Well,
            };
        }
        let is_lost = match processes::halt_of(&tasks) {
            // The process lives, since its pidfd tells of its end. It may be stopped for a while.
            None if is_unseen => self.looks > PATIENCE_WITH_UNSEEN,
            None => self.looks > PATIENCE_WITH_NOBODY,
            Some(Halt::Debugger | Halt::Signal) => self.looks > PATIENCE_WITH_STOPPED,
            Some(Halt::None) => {
                (self.looks > PATIENCE && self.runs(&tasks))
                    || (self.looks > PATIENCE_WITH_STILL && self.is_still(&tasks))
            }
        };
        if is_lost { Finding::Lost } else { Finding::Well }
    }

    /// Whether no thread of the holder runs, wants to, or has run since the first look.
    fn is_still(&self, tasks: &BTreeMap<u32, Task>) -> bool {
        tasks.values().all(|task| task.state != 'R') && used_by(tasks) == self.used
    }

    /// Whether one of the holder's threads, which may be the one with the lease, has had a
    /// quarter of a processor since the first look. That many threads together have had
    /// that says nothing of the one with the lease: they may keep it from its turn.
    fn runs(&self, tasks: &BTreeMap<u32, Task>) -> bool {
        let since =
            |(thread, used): (u32, u64)| used.saturating_sub(self.used.get(&thread).copied().unwrap_or(0));
        let most = used_by(tasks).into_iter().map(since).max();
        most.unwrap_or(0) > u64::from(self.looks) * PERIOD.as_millis() as u64 * TICKS / 4000
    }
}

/// The processor time of each thread of a process, in ticks.
fn used_by(tasks: &BTreeMap<u32, Task>) -> BTreeMap<u32, u64> {
    tasks.iter().map(|(&thread, task)| (thread, task.used)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some forty threads that waited for the lease had a quarter of a processor together, while
    /// its holder waited for its turn. The node began another life.
    #[test]
    fn threads_that_run_a_little_are_not_one_that_runs_with_the_lease() {
        let this = std::process::id();
        let tasks = || processes::tasks(this);
        let before = used_by(&tasks());
        assert!(!before.is_empty());
        let turns = |before: &BTreeMap<u32, u64>, looks| Turns {
            holder: Some(1),
            looks,
            used: before.clone(),
        };
        assert!(
            !turns(&before, 1_000_000).runs(&tasks()),
            "nobody ran for so long"
        );
        let until = used_by_thread(this, &before, 20);
        assert!(
            turns(&before, 1).runs(&tasks()),
            "{until} ticks since, twelve are enough"
        );
        let rested: BTreeMap<u32, u64> = used_by(&tasks()).into_iter().map(|(t, u)| (t, u + 100)).collect();
        assert!(!turns(&rested, 0).runs(&tasks()));
    }

    /// Computes until a thread has had so many ticks more than before.
    fn used_by_thread(pid: u32, before: &BTreeMap<u32, u64>, ticks: u64) -> u64 {
        loop {
            let most = used_by(&processes::tasks(pid))
                .into_iter()
                .map(|(thread, used)| used.saturating_sub(before.get(&thread).copied().unwrap_or(0)))
                .max();
            if most.unwrap_or(0) >= ticks {
                return most.unwrap_or(0);
            }
        }
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
    fn lease_of_a_process_in_another_pid_namespace_is_lost_after_half_a_minute() {
        let mut vitals = Turns::default();
        let mut looks = (0..100).map(|_| vitals.examine_holder(777, false, Some(0)));
        let well = looks.by_ref().take_while(|found| *found == Finding::Well).count();
        assert_eq!(well, PATIENCE_WITH_UNSEEN as usize + 1);
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

    #[test]
    fn lease_of_frozen_process_is_lost_and_of_waiting_one_is_not() {
        let frozen = |used| {
            let task = Task { state: 'D', used };
            BTreeMap::from([(1, task), (2, task)])
        };
        let turns = Turns {
            used: used_by(&frozen(7)),
            ..Turns::default()
        };
        assert!(turns.is_still(&frozen(7)));
        assert!(!turns.is_still(&frozen(8)), "it has run");
        let mut starving = frozen(7);
        starving.insert(2, Task { state: 'R', used: 7 });
        assert!(!turns.is_still(&starving), "it waits for a processor");
    }
}
