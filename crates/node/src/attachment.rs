//! What connects a process with its node's engine.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_link::mq::PeerDescriptors;
use toehold_shm::LeaseGuard;

use crate::control::{Connection, ControlError};
use crate::driver::Signals;
use crate::wait::{Gone, Guard};

/// Calls between two looks whether the engine still lives, for programs that call
/// and never wait.
const CALLS: u32 = 4096;

/// The connection of an attached process. Its end is how the engine learns of the
/// process's, and the process of the engine's.
#[derive(Debug)]
pub(crate) struct Attachment {
    connection: Mutex<Connection>,
    /// The same socket, to be looked at while the connection is in use.
    engine: OwnedFd,
    /// How many peers had joined when this process last mapped those it missed.
    mapped: AtomicU32,
    calls: AtomicU32,
}

impl Attachment {
    pub(crate) fn new(connection: Connection) -> std::io::Result<Attachment> {
        let engine = connection.socket().try_clone_to_owned()?;
        Ok(Attachment {
            connection: Mutex::new(connection),
            engine,
            mapped: AtomicU32::new(0),
            calls: AtomicU32::new(0),
        })
    }

    /// Becomes readable when the engine is gone.
    pub(crate) fn engine(&self) -> BorrowedFd<'_> {
        self.engine.as_fd()
    }

    /// Whether the engine lives. One system call.
    pub(crate) fn is_alive(&self) -> bool {
        let mut state = [PollFd::new(&self.engine, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let _ = poll(&mut state, Some(&now));
        !state[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// The same, once in so many calls; true in between.
    #[inline]
    pub(crate) fn seems_alive(&self) -> bool {
        let calls = self.calls.load(Relaxed).wrapping_add(1);
        self.calls.store(calls, Relaxed);
        !calls.is_multiple_of(CALLS) || self.is_alive()
    }

    /// Whether peers have joined that this process did not map.
    #[inline]
    pub(crate) fn misses_peers(&self, signals: &Signals) -> bool {
        signals.peers_joined() != self.mapped.load(Relaxed)
    }

    /// Maps the peers that this process has not mapped. Waits for the engine's
    /// answers, without the lease.
    #[cold]
    pub(crate) fn map_peers(&self, signals: &Signals, shard: &mut Guard<'_>) -> Result<(), Gone> {
        let joined = signals.peers_joined();
        let mut last = None;
        while let Some((slot, generation)) = shard.link.port().and_then(|port| port.unmapped()) {
            if last == Some((slot, generation)) {
                // It cannot be had now. Others take its frames, and so does this
                // process once the next peer joins.
                break;
            }
            last = Some((slot, generation));
            let descriptors = LeaseGuard::unlocked(shard, || self.ask(slot, generation))??;
            if let (Some(descriptors), Some(port)) = (descriptors, shard.link.port()) {
                // What fails is tried again, or the peer is gone.
                let _ = port.map(slot, generation, descriptors);
            }
        }
        self.mapped.store(joined, Relaxed);
        Ok(())
    }

    fn ask(&self, slot: u8, generation: u16) -> Result<Option<PeerDescriptors>, Gone> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        match connection.peer(slot, generation) {
            Ok(list) => Ok(list.and_then(PeerDescriptors::from_list)),
            Err(ControlError::HungUp(_)) => Err(Gone),
            Err(_) => Ok(None),
        }
    }
}
