//! A thread that keeps a program stopped in the middle of a stack from making others wait.
//!
//! A thread that has waited for a lease for milliseconds says so in the lease's memory. That wakes
//! a thread of the engine, which looks at the process that holds the lease. If a signal has stopped
//! that process, it is made to let go ([`Lease::release_stopped`]). As long as no thread waits in
//! vain, the engine's thread sleeps.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use toehold_shm::Lease;

use crate::processes::{self, Halt, Processes};
use crate::shards::OneShard;

/// Time between two looks at a holder that keeps others waiting.
const PERIOD: Duration = Duration::from_millis(3);

/// Looks after a plea: until then the threads that wait have said so again.
const LOOKS: u32 = 8;

/// Looks after one that found a process that cannot be made to let go.
const PAUSE: Duration = Duration::from_millis(100);

/// Watches the lease of one shard.
pub(super) struct Guard {
    shard: OneShard,
    processes: Arc<Processes>,
    stop: AtomicBool,
}

impl Guard {
    pub(super) fn new(shard: OneShard, processes: Arc<Processes>) -> Guard {
        Guard {
            shard,
            processes,
            stop: AtomicBool::new(false),
        }
    }

    fn lease(&self) -> &Lease {
        self.shard.lease.lease()
    }

    /// Ends [`Guard::run`], now or when it begins.
    pub(super) fn stop(&self) {
        self.stop.store(true, Release);
        self.lease().end_pleas();
    }

    /// Watches until stopped.
    pub(super) fn run(&self) {
        loop {
            let pleas = self.lease().pleas();
            if self.stop.load(Acquire) {
                return;
            }
            self.look();
            self.lease().await_plea(pleas);
        }
    }

    /// Looks at the process that holds the lease, as long as others want it.
    fn look(&self) {
        for _ in 0..LOOKS {
            let lease = self.lease();
            let Some(holder) = lease.holder().filter(|&holder| holder != Lease::ENGINE) else {
                return;
            };
            if !lease.is_wanted() || lease.is_closed() || self.stop.load(Acquire) {
                return;
            }
            let Some(pid) = self.processes.pid(holder) else {
                return;
            };
            let is_stopped = processes::halt(pid) == Some(Halt::Signal);
            let has_failed = is_stopped && lease.release_stopped(holder, pid).is_err();
            std::thread::sleep(if has_failed { PAUSE } else { PERIOD });
        }
    }
}
