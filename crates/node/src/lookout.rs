//! How a process that has attached learns that its node's engine is gone, and
//! tells all others.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_shm::{Doorbell, Lease, Parking, Rest};

use crate::wait::Gone;

/// What it takes to look, and to tell: none of it needs the lease, which a dead
/// engine may hold.
#[derive(Debug)]
pub(crate) struct Lookout {
    /// The connection with the engine.
    pub(crate) engine: OwnedFd,
    pub(crate) lease: Lease,
    pub(crate) parking: Parking,
    /// What the thread sleeps on that sits at the link.
    pub(crate) sleeper: Doorbell,
}

impl Lookout {
    /// Becomes readable when the engine is gone.
    pub(crate) fn engine(&self) -> BorrowedFd<'_> {
        self.engine.as_fd()
    }

    /// Fails if the engine is gone; tells everybody else so. One system call.
    pub(crate) fn check(&self) -> Result<(), Gone> {
        if self.is_alive() {
            return Ok(());
        }
        self.lease.close();
        rouse_all(&self.parking, &self.sleeper);
        Err(Gone)
    }

    fn is_alive(&self) -> bool {
        let mut state = [PollFd::new(&self.engine, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let _ = poll(&mut state, Some(&now));
        !state[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

/// Makes every thread of the node that rests look at what has happened.
pub(crate) fn rouse_all(parking: &Parking, sleeper: &Doorbell) {
    for slot in 0..parking.slots() {
        if parking.rouse(slot) == Some(Rest::Seated) {
            sleeper.ring();
        }
    }
}
