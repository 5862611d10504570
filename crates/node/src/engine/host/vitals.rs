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
    /// Processor time that the holder's threads had used when it was first seen, in ticks.
    used: BTreeMap<u32, u64>,
}

impl Vitals {
    /// Looks once. `processes` are the node's, each with its number in `/proc`: 0 of one that has none there,
    /// since it is of a PID namespace that cannot be seen from here.
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
        let is_stopped = match pid {
            // It lives, since its end would have been noticed by its pidfd. It may be stopped.
            Some(0) => Some(true),
            pid => pid.and_then(is_stopped),
        };
        if self.holder != Some(holder) || is_stopped == Some(true) {
            self.holder = Some(holder);
            self.looks = 0;
            self.used = pid.map(used_by_threads).unwrap_or_default();
            return Finding::Well;
        }
        self.looks += 1;
        if holder == Lease::ENGINE {
            return match self.looks > PATIENCE {
                true => Finding::Stuck,
                false => Finding::Well,
            };
        }
        match is_stopped {
            None if self.looks > PATIENCE_WITH_NOBODY => Finding::Lost,
            Some(_) if self.looks > PATIENCE && pid.is_some_and(|pid| self.runs(pid)) => Finding::Lost,
            _ => Finding::Well,
        }
    }

    /// Whether one of the holder's threads, which may be the one with the lease, has had a
    /// quarter of a processor since the first look. That many threads together have had
    /// that says nothing of the one with the lease: they may keep it from its turn.
    fn runs(&self, pid: u32) -> bool {
        let since =
            |(thread, used): (u32, u64)| used.saturating_sub(self.used.get(&thread).copied().unwrap_or(0));
        let most = used_by_threads(pid).into_iter().map(since).max();
        most.unwrap_or(0) > u64::from(self.looks) * PERIOD.as_millis() as u64 * TICKS / 4000
    }
}

/// A process or a thread as the system sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Task {
    /// By a signal, or by a debugger.
    stopped: bool,
    /// Processor time, in ticks.
    used: u64,
}

/// Whether a process is stopped; `None` if there is none of that number.
fn is_stopped(pid: u32) -> Option<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(parse(&stat)?.stopped)
}

/// The processor time of each thread of a process.
fn used_by_threads(pid: u32) -> BTreeMap<u32, u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let used = |task: fs::DirEntry| {
        let thread = task.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        Some((thread, parse(&stat)?.used))
    };
    tasks.into_iter().flatten().flatten().filter_map(used).collect()
}

/// The name may contain anything, and ends at the last parenthesis.
fn parse(stat: &str) -> Option<Task> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let mut times = fields.skip(10);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some(Task {
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
        let expected = Task {
            stopped: true,
            used: 300,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("77 (a"), None);
        assert_eq!(is_stopped(std::process::id()), Some(false));
    }

    /// Some forty threads that waited for the lease had a quarter of a processor together,
    /// while the one that had it waited for its turn: the node began another life.
    #[test]
    fn threads_that_run_a_little_are_not_one_that_runs_with_the_lease() {
        let this = std::process::id();
        let before = used_by_threads(this);
        assert!(!before.is_empty());
        let turns = |before: &BTreeMap<u32, u64>, looks| Turns {
            holder: Some(1),
            looks,
            used: before.clone(),
        };
        assert!(!turns(&before, 1_000_000).runs(this), "nobody ran for so long");
        let until = used_by_thread(this, &before, 20);
        assert!(
            turns(&before, 1).runs(this),
            "{until} ticks since, twelve are enough"
        );
        let rested: BTreeMap<u32, u64> = used_by_threads(this)
            .into_iter()
            .map(|(t, u)| (t, u + 100))
            .collect();
        assert!(!turns(&rested, 0).runs(this));
    }

    /// Computes until a thread has had so many ticks more than before.
    fn used_by_thread(pid: u32, before: &BTreeMap<u32, u64>, ticks: u64) -> u64 {
        loop {
            let most = used_by_threads(pid)
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
    fn lease_of_a_process_in_another_pid_namespace_is_not_lost() {
        let mut vitals = Turns::default();
        let well = (0..100).all(|_| vitals.examine_holder(777, false, Some(0)) == Finding::Well);
        assert!(well);
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
