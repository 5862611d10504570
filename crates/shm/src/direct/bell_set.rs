//! Bells: descriptors by which a waiter is rung that sleeps on descriptors of the kernel, too.

use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{self, OFlags};
use rustix::io::{self, Errno};

use super::audience::WaiterNumber;

/// Bells of a set. A waiter is rung on the one of its number modulo this.
pub const BELLS: usize = 8;

/// Why descriptors are no set of bells, or a set could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BellError {
    /// There are too few or too many.
    #[error("a set of bells has {BELLS} descriptors, and not {0}")]
    Count(usize),
    /// A descriptor is of something else, or can make its ringer wait.
    #[error("a descriptor is no eventfd that never blocks")]
    Foreign,
    /// The system refused.
    #[error("bells: {0}")]
    System(#[from] Errno),
}

/// The bells by which the waiters of one node are rung: by its own processes, or by those of one
/// peer.
///
/// Each bell is an eventfd that is written and never read. A sleeper listens to it edge-triggered,
/// so that it hears each ring, and takes none from another sleeper. A waiter hears rings of
/// others that have its bell, too, and looks in vain then.
///
/// Only for processes of one user: an owner can make an eventfd blocking and full, and so hang
/// each ringer. A clone is of the same descriptors.
///
/// ```
/// use toehold_shm::direct::{BellSet, WaiterNumber};
///
/// let bells = BellSet::new()?;
/// let theirs = BellSet::from_peer(bells.to_list()?)?;
/// let waiter = WaiterNumber::new(17).unwrap();
/// theirs.ring(waiter);
/// # Ok::<(), toehold_shm::direct::BellError>(())
/// ```
#[derive(Debug, Clone)]
pub struct BellSet {
    bells: Arc<[OwnedFd; BELLS]>,
}

impl BellSet {
    /// Makes bells that were never rung.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn new() -> Result<BellSet, BellError> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let made: Result<Vec<OwnedFd>, Errno> = (0..BELLS).map(|_| eventfd(0, flags)).collect();
        BellSet::from_node(made?)
    }

    /// The bells behind descriptors that this node's engine has given.
    ///
    /// # Errors
    ///
    /// If there are not [`BELLS`].
    pub fn from_node(list: Vec<OwnedFd>) -> Result<BellSet, BellError> {
        let count = list.len();
        let bells: [OwnedFd; BELLS] = list.try_into().map_err(|_| BellError::Count(count))?;
        Ok(BellSet {
            bells: Arc::new(bells),
        })
    }

    /// The bells behind descriptors that a peer has given, after having checked that each is an
    /// eventfd that does not block.
    ///
    /// # Errors
    ///
    /// If one is something else, or there are not [`BELLS`]. Without `/proc` all are refused.
    pub fn from_peer(list: Vec<OwnedFd>) -> Result<BellSet, BellError> {
        let set = BellSet::from_node(list)?;
        match set.bells.iter().all(is_eventfd) {
            true => Ok(set),
            false => Err(BellError::Foreign),
        }
    }

    /// Copies of the descriptors, for another process or the peer.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn to_list(&self) -> Result<Vec<OwnedFd>, BellError> {
        let copied: Result<Vec<OwnedFd>, Errno> = self
            .bells
            .iter()
            .map(|bell| io::fcntl_dupfd_cloexec(bell, 0))
            .collect();
        Ok(copied?)
    }

    /// The descriptor that becomes readable when a waiter is rung. It stays so: a sleeper asks an
    /// edge-triggered epoll for it.
    pub fn bell_of(&self, waiter: WaiterNumber) -> BorrowedFd<'_> {
        self.bells[usize::from(waiter.get()) % BELLS].as_fd()
    }

    /// Rings a waiter. A bell whose count is full is not rung.
    pub fn ring(&self, waiter: WaiterNumber) {
        let bell = self.bell_of(waiter);
        while io::write(bell, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }
}

/// Whether a descriptor is an eventfd that does not block, as far as that can be seen.
fn is_eventfd(fd: &OwnedFd) -> bool {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let flags = fs::fcntl_getfl(fd).unwrap_or(OFlags::empty());
    flags.contains(OFlags::NONBLOCK | OFlags::RDWR)
        && std::fs::read_to_string(path)
            .is_ok_and(|about| about.lines().any(|line| line.starts_with("eventfd-count:")))
}

/// A function that rings, from within the node, a waiter that sleeps on a descriptor.
#[derive(Clone)]
pub(super) struct LocalRing(Option<Arc<dyn Fn(WaiterNumber) + Send + Sync>>);

impl LocalRing {
    pub(super) const NONE: LocalRing = LocalRing(None);

    pub(super) fn new(ring: impl Fn(WaiterNumber) + Send + Sync + 'static) -> LocalRing {
        LocalRing(Some(Arc::new(ring)))
    }

    pub(super) fn ring(&self, waiter: WaiterNumber) {
        if let LocalRing(Some(ring)) = self {
            ring(waiter);
        }
    }
}

impl fmt::Debug for LocalRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalRing").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_rung(set: &BellSet, waiter: WaiterNumber) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(set.bell_of(waiter), PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    }

    fn waiter(number: u16) -> WaiterNumber {
        WaiterNumber::new(number).unwrap()
    }

    #[test]
    fn ring_is_seen_by_waiters_of_the_same_bell_alone() {
        let ours = BellSet::new().unwrap();
        let theirs = BellSet::from_peer(ours.to_list().unwrap()).unwrap();
        theirs.ring(waiter(3));
        assert!(is_rung(&ours, waiter(3)) && is_rung(&ours, waiter(3 + 8)));
        assert!(
            (0..8)
                .filter(|number| *number != 3)
                .all(|number| !is_rung(&ours, waiter(number)))
        );
    }

    #[test]
    fn ring_of_a_full_bell_does_not_wait() {
        let set = BellSet::new().unwrap();
        io::write(set.bell_of(waiter(0)), &(u64::MAX - 1).to_ne_bytes()).unwrap();
        set.ring(waiter(0));
        assert!(is_rung(&set, waiter(0)));
    }

    #[test]
    fn descriptors_that_are_no_bells_are_refused() {
        let bells = || BellSet::new().unwrap().to_list().unwrap();
        let with = |other: OwnedFd| {
            let mut list = bells();
            list[5] = other;
            BellSet::from_peer(list).unwrap_err()
        };
        let (reader, writer) = std::io::pipe().unwrap();
        fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let blocking = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let device = std::fs::File::options().read(true).write(true).open("/dev/null");
        for other in [reader.into(), writer.into(), blocking, device.unwrap().into()] {
            assert_eq!(with(other), BellError::Foreign);
        }
        let mut few = bells();
        few.pop();
        assert_eq!(BellSet::from_peer(few).unwrap_err(), BellError::Count(BELLS - 1));
        let many = bells().into_iter().chain(bells()).collect();
        assert_eq!(BellSet::from_peer(many).unwrap_err(), BellError::Count(2 * BELLS));
    }
}
