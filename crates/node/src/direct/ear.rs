//! Descriptors that become readable when a waiter is rung, for a waiter that also waits for
//! descriptors of the kernel.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use toehold_shm::direct::WaiterNumber;

use super::{Bank, Direct, SLOTS};
use crate::descriptors;

/// How long a waiter that cannot listen to a bank sleeps at once, before it looks there again.
pub const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Bells that one system call silences.
const SILENCED: usize = 64;

/// A descriptor that becomes readable when a waiter is rung: an epoll of the kernel over the
/// waiter's bells, of the node and of banks.
///
/// The waiter must be [marked](toehold_shm::direct::Waiters::set_on_descriptor) before it sleeps, or
/// nothing rings these bells. A thread [silences](Ear::silence) the ear and only then looks at what
/// may be there. A forked child has waiters of its own, and so opens ears of its own.
#[derive(Debug)]
pub struct Ear {
    epoll: OwnedFd,
    waiter: WaiterNumber,
    /// Generations of the banks that it listens to, by slot.
    heard: Mutex<HashMap<u16, u32>>,
}

impl Ear {
    /// Opens an ear for a waiter of this process, which becomes readable when the waiter is rung
    /// within its own node. Returns `None` if this process has no descriptors left, or the engine
    /// does not answer. The waiter then looks again every [`LOOK_AGAIN`].
    pub fn open(direct: &Direct, waiter: WaiterNumber) -> Option<Ear> {
        Ear::over(direct.local_bell(waiter)?, waiter)
    }

    /// Opens an ear for a waiter that has this bell within the node.
    pub(crate) fn over(bell: BorrowedFd<'_>, waiter: WaiterNumber) -> Option<Ear> {
        let epoll = descriptors::keep(epoll::create(CreateFlags::CLOEXEC).ok()?);
        let ear = Ear {
            epoll,
            waiter,
            heard: Mutex::default(),
        };
        ear.add(bell).then_some(ear)
    }

    /// Adds the bell that the peer of a bank rings. Returns at once if it is added already. Returns
    /// `false` if it cannot be added: the peer is of another user, or this process has no
    /// descriptors left. The waiter then looks again every [`LOOK_AGAIN`].
    #[must_use = "what it does not hear has to be looked at"]
    pub fn listen(&self, bank: &Bank) -> bool {
        if self.lock().get(&bank.slot()) == Some(&bank.generation()) {
            return true;
        }
        let added = bank.bell(self.waiter).is_some_and(|bell| self.add(bell));
        if added {
            self.lock().insert(bank.slot(), bank.generation());
        }
        added
    }

    /// Adds the bells that the peers of banks ring, as far as possible. Returns `false` if a bell
    /// is missing.
    #[must_use = "what it does not hear has to be looked at"]
    pub fn listen_to_all(&self, banks: &[Arc<Bank>]) -> bool {
        let deaf = banks.iter().filter(|bank| !self.listen(bank)).count();
        deaf == 0
    }

    fn add(&self, bell: BorrowedFd<'_>) -> bool {
        let flags = EventFlags::IN | EventFlags::ET;
        let added = epoll::add(&self.epoll, bell, EventData::new_u64(0), flags);
        matches!(added, Ok(()) | Err(rustix::io::Errno::EXIST))
    }

    /// Discards the rings so far. The ear is not readable until the next one.
    pub fn silence(&self) {
        let mut rung = Vec::with_capacity(SILENCED);
        for _ in 0..=SLOTS.div_ceil(SILENCED) {
            rung.clear();
            let heard = epoll::wait(&self.epoll, spare_capacity(&mut rung), Some(&Timespec::default()));
            if !heard.is_ok_and(|heard| heard == SILENCED) {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, u32>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
