//! The watch of an attached process on its node's engine: it learns that the engine is gone, and
//! tells all others.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_shm::{Lease, Rest};

use crate::shard::{Wake, Wakes};
use crate::wait::Gone;

/// The means to look and to tell. None of them needs the leases, which a dead engine may hold.
#[derive(Debug)]
pub(crate) struct Lookout {
    /// The connection with the engine.
    pub(crate) engine: OwnedFd,
    /// The leases of all shards, once there are some.
    pub(crate) leases: OnceLock<Vec<Lease>>,
    pub(crate) wakes: Arc<Wakes>,
}

impl Lookout {
    /// Becomes readable when the engine is gone.
    pub(crate) fn engine(&self) -> BorrowedFd<'_> {
        self.engine.as_fd()
    }

    /// Fails if the engine is gone, and tells the node's other threads so. One system call.
    pub(crate) fn check(&self) -> Result<(), Gone> {
        if self.is_alive() {
            return Ok(());
        }
        self.leases.get().into_iter().flatten().for_each(Lease::close);
        rouse_all(self.wakes.all());
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

/// Makes every thread of the node that rests look again.
pub(crate) fn rouse_all(wakes: &[Wake]) {
    let (mut seated, mut polled) = (false, false);
    for wake in wakes {
        wake.channels.rouse();
        for slot in 0..wake.parking.slots() {
            let rests = wake.parking.rouse(slot);
            seated |= rests == Some(Rest::Seated);
            polled |= rests == Some(Rest::Polled);
        }
    }
    if seated {
        // One that waits for several shards may sleep at another than its own.
        wakes.iter().for_each(|wake| wake.sleeper.ring());
    }
    if polled && let Some(wake) = wakes.first() {
        wake.resters.ring_all();
    }
}
