//! The processes of a node as the system sees them: their numbers there, whether they are stopped, and
//! whether their processor time is limited.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The system's numbers of a node's processes, by their numbers in the node.
#[derive(Debug, Default)]
pub(crate) struct Processes(Mutex<BTreeMap<u16, u32>>);

impl Processes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, process: u16, pid: u32) {
        self.lock().insert(process, pid);
    }

    pub(crate) fn remove(&self, process: u16) {
        self.lock().remove(&process);
    }

    /// The numbers of all processes.
    pub(crate) fn numbers(&self) -> Vec<u16> {
        self.lock().keys().copied().collect()
    }

    /// The system's number of a process; `None` of one in a PID namespace that cannot be seen from here.
    pub(crate) fn pid(&self, process: u16) -> Option<u32> {
        self.lock().get(&process).copied().filter(|&pid| pid != 0)
    }

    /// The process that follows one of that number, the first one after the last.
    pub(crate) fn after(&self, process: u16) -> Option<(u16, u32)> {
        let known = self.lock();
        let next = known
            .range(process.saturating_add(1)..)
            .next()
            .or(known.first_key_value());
        next.map(|(&process, &pid)| (process, pid))
            .filter(|&(_, pid)| pid != 0)
    }

    /// Whether a process is stopped by a signal or by a debugger. Looks at its first thread only.
    pub(crate) fn is_halted(&self, process: u16) -> bool {
        let first = |pid: u32| parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
        let first = self.pid(process).and_then(first);
        first.is_some_and(|task| matches!(task.state, 'T' | 't'))
    }
}

/// The reason why a process does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// No known reason.
    None,
    /// A signal has stopped it.
    Signal,
    /// A debugger has stopped a thread of it.
    Debugger,
}

/// A thread as the system sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    /// The state, as `proc(5)` writes it: R, S, D, T, t, Z, X.
    pub(crate) state: char,
    /// Processor time, in ticks.
    pub(crate) used: u64,
}

/// The reason why a process does not run; `None` if there is no process of that number.
pub(crate) fn halt(pid: u32) -> Option<Halt> {
    halt_of(&tasks(pid))
}

/// The reason why these threads of a process do not run; `None` if there are none.
pub(crate) fn halt_of(tasks: &BTreeMap<u32, Task>) -> Option<Halt> {
    if tasks.is_empty() {
        return None;
    }
    let is_in = |state: char| tasks.values().any(|task| task.state == state);
    Some(match (is_in('t'), is_in('T')) {
        (true, _) => Halt::Debugger,
        (false, true) => Halt::Signal,
        (false, false) => Halt::None,
    })
}

/// The threads of a process.
pub(crate) fn tasks(pid: u32) -> BTreeMap<u32, Task> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let read = |task: fs::DirEntry| {
        let thread = task.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        Some((thread, parse(&stat)?))
    };
    tasks.into_iter().flatten().flatten().filter_map(read).collect()
}

/// The name may contain anything, and ends at the last parenthesis.
fn parse(stat: &str) -> Option<Task> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut times = fields.skip(10);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some(Task {
        state,
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
            state: 'T',
            used: 300,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("77 (a"), None);
        assert_eq!(halt(std::process::id()), Some(Halt::None));
    }

    #[test]
    fn processes_follow_one_another_in_a_circle() {
        let processes = Processes::default();
        assert_eq!(processes.after(0), None);
        processes.insert(2, 20);
        processes.insert(5, 50);
        assert_eq!(processes.after(2), Some((5, 50)));
        assert_eq!(processes.after(5), Some((2, 20)));
        processes.remove(2);
        assert_eq!((processes.after(5), processes.pid(2)), (Some((5, 50)), None));
    }

    #[test]
    fn halt_of_stopped_child_is_signal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let send = |signal| {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, signal).unwrap();
        };
        send(rustix::process::Signal::STOP);
        while halt(pid) != Some(Halt::Signal) {
            std::thread::yield_now();
        }
        send(rustix::process::Signal::CONT);
        while halt(pid) != Some(Halt::None) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
