//! Time, processor time and context switches between two points.

use std::sync::OnceLock;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::samples::{CpuUse, Machine, Side};

/// The use of this process so far; zero if the kernel does not report it.
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

/// Processor time of other processes so far, in nanoseconds. A process that is gone counts as zero.
pub(crate) fn processor_ns_of(processes: &[u32]) -> u64 {
    let of = |process: &u32| {
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(*process).ok()?)).ok()?;
        u64::try_from(clock.now().ok()?.num_nanoseconds()).ok()
    };
    processes.iter().filter_map(of).sum()
}

/// The other subjects of this process's meters.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Processes, such as its node's engine.
    pub(crate) engines: Vec<u32>,
    /// Whether this side reads the machine's totals.
    pub(crate) machine: bool,
}

/// A process is a side of one testbed only.
static WATCHED: OnceLock<Watched> = OnceLock::new();

/// Sets the other subjects of all meters of this process.
pub(crate) fn watch(watched: Watched) {
    // The first call counts: a side is set up once.
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

/// A meter that runs from its creation.
#[derive(Debug)]
pub(crate) struct Meter {
    began: Instant,
    cpu: CpuUse,
    engines_ns: u64,
    machine: Option<Machine>,
}

impl Meter {
    pub(crate) fn start() -> Self {
        // First the machine, whose totals take longest to read, and the clock last.
        let machine = machine();
        Self {
            machine,
            engines_ns: engines_ns(),
            cpu: process_cpu(),
            began: Instant::now(),
        }
    }

    /// The use since the start for `messages` messages of `bytes` bytes in all.
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
