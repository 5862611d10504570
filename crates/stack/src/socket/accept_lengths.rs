//! How many connections wait at each listener, for calls that have no right to the stack.

use core::sync::atomic::Ordering::{Acquire, Release};

use toehold_shm::{Carver, OutOfMemory, Words};

use super::ListenerId;

/// Lengths of the accept queues of a stack. The stack stores a length whenever it changes. Any
/// process of the node reads them, at any time.
#[derive(Debug, Clone)]
pub struct AcceptLengths {
    words: Words,
}

impl AcceptLengths {
    pub(crate) fn bytes_needed(listeners: u32) -> usize {
        Words::bytes_needed(listeners as usize)
    }

    pub(crate) fn create(carver: &mut Carver, listeners: u32) -> Result<AcceptLengths, OutOfMemory> {
        Ok(AcceptLengths {
            words: carver.words(listeners as usize)?,
        })
    }

    /// How many connections wait to be accepted at a listener that is open. May have changed when
    /// it returns.
    #[inline]
    pub fn of(&self, listener: ListenerId) -> u32 {
        self.at(listener.index)
    }

    /// How many connections wait at the open listener of that [index](ListenerId::index).
    #[inline]
    pub fn at(&self, index: u32) -> u32 {
        let word = self.words.get(index as usize);
        word.map_or(0, |word| word.load(Acquire))
    }

    #[inline]
    pub(crate) fn set(&self, index: u32, len: u32) {
        if let Some(word) = self.words.get(index as usize) {
            word.store(len, Release);
        }
    }
}
