//! The kernel's futexes, shared between processes.

use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::{Futex, Waited};

/// Not private to the process: the kernel finds the word by the mapped memory.
const SHARED: futex::Flags = futex::Flags::empty();

/// Unlike FUTEX_WAIT, FUTEX_WAIT_BITSET takes a point in time, so an interrupted sleep continues
/// without reading the clock.
const ANY: NonZeroU32 = NonZeroU32::MAX;

const NANOS: u64 = 1_000_000_000;

impl Futex for AtomicU32 {
    #[inline]
    fn word(&self) -> &AtomicU32 {
        self
    }

    fn wait(&self, expected: u32, until_ns: Option<u64>) -> Waited {
        let until = until_ns.map(|until_ns| Timespec {
            tv_sec: (until_ns / NANOS) as i64,
            tv_nsec: (until_ns % NANOS) as i64,
        });
        match futex::wait_bitset(self, SHARED, expected, until.as_ref(), ANY) {
            Ok(()) | Err(Errno::INTR) => Waited::Slept,
            Err(Errno::TIMEDOUT) => Waited::TimedOut,
            // No error but AGAIN is known for a mapped word. If there is one, checking again is
            // right.
            Err(_) => Waited::Different,
        }
    }

    fn wake(&self, threads: u32) -> usize {
        futex::wake(self, SHARED, threads).unwrap_or(0)
    }
}

/// The present time of [`Futex::wait`]'s clock.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * NANOS + time.tv_nsec as u64
}
