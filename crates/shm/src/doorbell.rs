//! Wakes a thread of another process of the node.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// An eventfd that threads sleep on and that wakes them. Every handle can both ring and sleep.
///
/// Rings are neither lost nor counted: one or many rings before a [`Doorbell::clear`] are the same.
/// The sleeper waits until the descriptor is readable, clears it, and checks for work after that.
///
/// Only processes that trust one another may share it. A process with a handle can make it blocking
/// and fill it, and thereby hang all ringers.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
}

impl Doorbell {
    /// A new doorbell that has not rung.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            fd: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// The doorbell behind a descriptor from another process of the node.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// A second handle, for another process.
    pub fn try_clone(&self) -> Result<Self, Errno> {
        Ok(Self {
            fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
        })
    }

    /// Makes the descriptor readable. The only failure is a full counter, which is readable
    /// already.
    pub fn ring(&self) {
        while rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }

    /// Makes the descriptor unreadable until the next ring. True if it had rung.
    pub fn clear(&self) -> bool {
        let mut count = [0_u8; 8];
        loop {
            match rustix::io::read(&self.fd, &mut count) {
                Err(Errno::INTR) => {}
                read => return read.is_ok(),
            }
        }
    }

    /// Turns the doorbell into its descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(doorbell: &Doorbell) -> bool {
        let mut fds = [PollFd::new(doorbell, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    #[test]
    fn rings_until_cleared() {
        let sleeper = Doorbell::new().unwrap();
        let ringer = Doorbell::from_fd(sleeper.try_clone().unwrap().into_fd());
        assert!(!readable(&sleeper) && !sleeper.clear());
        for _ in 0..1000 {
            ringer.ring();
        }
        assert!(readable(&sleeper));
        assert!(sleeper.clear());
        assert!(!readable(&sleeper) && !sleeper.clear());
        ringer.ring();
        assert!(sleeper.clear());
    }
}
