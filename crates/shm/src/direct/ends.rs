//! Ends of one side of a bank, as their own node alone sees them.

use core::sync::atomic::Ordering::Acquire;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::bank::{CONNECTIONS, END_LINES, ENDS_LEN, EndLines, Kind, NUMBER_LINE, NumberLine};
use super::ending::charged_bytes;
use super::memory::{Memory, MemoryError};
use crate::Access;

/// Locks, and what this side has seen of the other side's words. No peer maps it.
///
/// A clone is of the same mapping.
#[derive(Debug, Clone)]
pub struct Ends {
    memory: Arc<Memory>,
}

impl Ends {
    /// Makes memory in which every number is free. `name` shows up in `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// If the kernel makes no memory file, or this process has too few addresses.
    pub fn create(name: &str, incarnation: u64) -> Result<Ends, MemoryError> {
        Memory::create(name, Kind::Ends, ENDS_LEN as u64, ENDS_LEN, incarnation).map(Ends::over)
    }

    /// Maps ends that another process of this node has made.
    ///
    /// # Errors
    ///
    /// If the descriptor is of something else, or this process has too few addresses.
    pub fn open(fd: OwnedFd) -> Result<Ends, MemoryError> {
        Memory::open(fd, Kind::Ends, ENDS_LEN as u64, ENDS_LEN, Access::ReadWrite).map(Ends::over)
    }

    fn over(memory: Memory) -> Ends {
        Ends {
            memory: Arc::new(memory),
        }
    }

    /// The descriptor, for processes of this node.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// The random number that tells this memory from any other.
    pub fn incarnation(&self) -> u64 {
        self.memory.incarnation()
    }

    /// Bytes of the rings that the ends have in use.
    pub fn charged_bytes(&self) -> u64 {
        let numbers = 0..CONNECTIONS as u16;
        let charged = numbers.map(|number| self.end(number).writer.charged.load(Acquire));
        charged.map(charged_bytes).sum()
    }

    #[inline]
    pub(super) fn end(&self, number: u16) -> &EndLines {
        self.memory.line(END_LINES, number.into(), CONNECTIONS)
    }

    #[inline]
    pub(super) fn number_line(&self) -> &NumberLine {
        self.memory.line(NUMBER_LINE, 0, 1)
    }
}
