//! The clock of this machine, which every process that drives a stack shares.

use std::time::Duration;

use rustix::time::Timespec;
use toehold_stack::Instant;

/// The present time, as a node's stack counts it. Costs about as much as three dozen instructions: read it
/// once a round.
#[inline]
pub(crate) fn now() -> Instant {
    Instant(toehold_shm::monotonic_ns())
}

/// A span in the form that the system takes.
pub(crate) fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: span.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}

/// The earlier of two points in time, of which `None` never comes.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
