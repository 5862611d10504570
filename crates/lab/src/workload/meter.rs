//! Time, processor time and context switches between two points.

use std::sync::OnceLock;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::samples::{CpuUse, Machine, Side};

/// What this process has used so far; nothing if the kernel does not say.
pub fn process_cpu() -> CpuUse {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return CpuUse::default();
    };
    let positive = |value: i64| u64::try_from(value).unwrap_or(0);
    CpuUse {
        user_ns: positive(usage.user_time().num_nanoseconds()),
        system_ns: positive(usage.system_time().num_nanoseconds()),
        voluntary_switches: positive(usage.voluntary_context_switches()),
        involuntary_switches: positive(usage.involuntary_context_switches()),
    }
}

/// What other processes have used so far, in nanoseconds. One that is gone counts nothing.
pub(crate) fn processor_ns_of(processes: &[u32]) -> u64 {
    let of = |process: &u32| {
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(*process).ok()?)).ok()?;
        u64::try_from(clock.now().ok()?.num_nanoseconds()).ok()
    };
    processes.iter().filter_map(of).sum()
}

/// What belongs to this process's side besides the process.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Processes, such as its node's engine.
    pub(crate) engines: Vec<u32>,
    /// Whether this side looks at the machine.
    pub(crate) machine: bool,
}

/// A process is a side of one testbed only.
static WATCHED: OnceLock<Watched> = OnceLock::new();

/// What all meters of this process look at from now on.
pub(crate) fn watch(watched: Watched) {
    // The first word counts: a side is set up once.
    let _ = WATCHED.set(watched);
}

fn engines_ns() -> u64 {
    WATCHED
        .get()
        .map_or(0, |watched| processor_ns_of(&watched.engines))
}

fn machine() -> Option<Machine> {
    WATCHED
        .get()
        .filter(|watched| watched.machine)
        .map(|_| Machine::so_far())
}

/// Runs from where it is started.
#[derive(Debug)]
pub(crate) struct Meter {
    began: Instant,
    cpu: CpuUse,
    engines_ns: u64,
    machine: Option<Machine>,
}

impl Meter {
    pub(crate) fn start() -> Self {
        // The machine first, which takes longest to look at, and the clock last.
        let machine = machine();
        Self {
            machine,
            engines_ns: engines_ns(),
            cpu: process_cpu(),
            began: Instant::now(),
        }
    }

    /// What was used since the start for `messages` messages of `bytes` bytes in all.
    pub(crate) fn stop(&self, messages: u64, bytes: u64) -> Side {
        let span = self.began.elapsed();
        Side {
            messages,
            bytes,
            span_ns: u64::try_from(span.as_nanos()).unwrap_or(u64::MAX),
            cpu: process_cpu().since(&self.cpu),
            engine_ns: engines_ns().saturating_sub(self.engines_ns),
            machine: self
                .machine
                .and_then(|before| Some(Box::new(machine()?.since(&before)))),
            ..Side::default()
        }
    }
}
