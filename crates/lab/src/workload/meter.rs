//! Time, processor time and context switches between two points.

use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::samples::{CpuUse, Side};

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
pub(super) fn processor_ns_of(processes: &[u32]) -> u64 {
    let of = |process: &u32| {
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(*process).ok()?)).ok()?;
        u64::try_from(clock.now().ok()?.num_nanoseconds()).ok()
    };
    processes.iter().filter_map(of).sum()
}

/// Runs from where it is started.
#[derive(Debug)]
pub(super) struct Meter {
    began: Instant,
    cpu: CpuUse,
}

impl Meter {
    pub(super) fn start() -> Self {
        Self {
            cpu: process_cpu(),
            began: Instant::now(),
        }
    }

    /// What was used since the start for `messages` messages of `bytes` bytes in all.
    pub(super) fn stop(&self, messages: u64, bytes: u64) -> Side {
        let span = self.began.elapsed();
        Side {
            messages,
            bytes,
            span_ns: u64::try_from(span.as_nanos()).unwrap_or(u64::MAX),
            cpu: process_cpu().since(&self.cpu),
            ..Side::default()
        }
    }
}
