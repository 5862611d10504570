//! Signals to one side of a bank: ready bits, bells and accept queues.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::bank::{Kind, SIGNALS_LEN};
use super::memory::{Memory, MemoryError};
use crate::Access;

/// Memory that both nodes of a bank write, in which one of them is told where to look.
///
/// What stands in it is a hint: a wrong bit costs a look, a missing one a wait of that pair's
/// connections. The node that is told makes it. A clone is of the same mapping.
#[derive(Debug, Clone)]
pub struct Signals {
    memory: Arc<Memory>,
}

impl Signals {
    /// Makes memory in which nothing was signalled. `name` shows up in `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// If the kernel makes no memory file, or this process has too few addresses.
    pub fn create(name: &str, incarnation: u64) -> Result<Signals, MemoryError> {
        let len = SIGNALS_LEN as u64;
        Memory::create(name, Kind::Signals, len, SIGNALS_LEN, incarnation).map(Signals::over)
    }

    /// Maps signals that another process has made, of this node or of the peer's. Only memory
    /// is accepted that can never shrink and has the length of signals.
    ///
    /// # Errors
    ///
    /// If the descriptor is of something else, or this process has too few addresses.
    pub fn open(fd: OwnedFd) -> Result<Signals, MemoryError> {
        let len = SIGNALS_LEN as u64;
        Memory::open(fd, Kind::Signals, len, SIGNALS_LEN, Access::ReadWrite).map(Signals::over)
    }

    fn over(memory: Memory) -> Signals {
        Signals {
            memory: Arc::new(memory),
        }
    }

    /// The descriptor, for processes of both nodes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// The random number that tells this memory from any other. The peer can change it.
    pub fn incarnation(&self) -> u64 {
        self.memory.incarnation()
    }
}
