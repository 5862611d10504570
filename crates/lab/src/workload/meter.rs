//! Time, processor time and context switches between two points.

use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

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
            total_bytes: 0,
            durations: None,
        }
    }
}
