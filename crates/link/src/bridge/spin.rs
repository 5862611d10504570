//! Waiting for frames: spinning for a bounded time, then sleeping.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest spin before a sleep, in nanoseconds: about the time of going to sleep
/// and waking up.
const LONGEST_NS: u64 = 50_000;
/// Shortest useful spin, in nanoseconds.
const SHORTEST_NS: u64 = 3_000;
/// Number of sleeps without a spin after which spinning is tried again.
const RETRY_EVERY: u32 = 16;

/// The length of the spin, learnt from its successes.
#[derive(Debug)]
pub(super) struct Spin {
    ns: u64,
    skipped: u32,
}

impl Spin {
    pub(super) fn new() -> Spin {
        Spin {
            ns: LONGEST_NS,
            skipped: 0,
        }
    }

    /// Starts waiting.
    pub(super) fn begin(&mut self) {
        if self.ns >= SHORTEST_NS {
            return;
        }
        self.skipped += 1;
        if self.skipped >= RETRY_EVERY {
            self.skipped = 0;
            self.ns = LONGEST_NS / 4;
        }
    }

    /// Returns the length of this spin.
    pub(super) fn ns(&self) -> u64 {
        if self.ns >= SHORTEST_NS { self.ns } else { 0 }
    }

    /// Notes that frames came during the spin.
    pub(super) fn helped(&mut self) {
        self.ns = LONGEST_NS;
    }

    /// Notes that no frames came during the spin.
    pub(super) fn in_vain(&mut self) {
        self.ns /= 2;
    }
}

/// Waits until a descriptor is readable, or for `longest`. Returns whether the
/// first one is.
pub(super) fn wait(sources: &[Option<BorrowedFd<'_>>], longest: Option<Duration>) -> bool {
    let mut waits: Vec<PollFd<'_>> = sources
        .iter()
        .flatten()
        .map(|&source| PollFd::from_borrowed_fd(source, PollFlags::IN))
        .collect();
    let timeout = longest.map(|longest| Timespec {
        tv_sec: longest.as_secs() as i64,
        tv_nsec: i64::from(longest.subsec_nanos()),
    });
    // A signal ends the wait early, which costs a round.
    let _ = poll(&mut waits, timeout.as_ref());
    waits.first().is_some_and(|first| !first.revents().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spin_is_given_up_and_tried_again() {
        let mut spin = Spin::new();
        assert_eq!(spin.ns(), LONGEST_NS);
        while spin.ns() != 0 {
            spin.in_vain();
        }
        let tried = (0..RETRY_EVERY).filter(|_| {
            spin.begin();
            spin.ns() != 0
        });
        assert_eq!(tried.count(), 1);
        spin.helped();
        assert_eq!(spin.ns(), LONGEST_NS);
    }
}
