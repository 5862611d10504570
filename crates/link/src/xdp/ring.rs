//! The rings between a socket and the kernel. Each has a producer and a consumer.
//! This process is one of them.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::net::xdp::XdpRingOffset;
use toehold_shm::KernelMemory;

/// Flag: the kernel wants to be told of new entries.
const NEED_WAKEUP: u32 = 1;

/// Length of the shorter kind of entry in bytes: a frame's offset. The other adds
/// length and options.
pub(super) const PLACE: usize = 8;
pub(super) const DESCRIPTOR: usize = 16;

/// One ring.
#[derive(Debug)]
pub(super) struct Ring {
    memory: KernelMemory,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries: usize,
    entry: usize,
    /// Number of entries, a power of two.
    size: u32,
    /// This side's position. The other side sees it after it is published.
    own: u32,
    /// The kernel's position when it was last read.
    other: u32,
}

impl Ring {
    /// Maps the ring at this page offset of a socket.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: XdpRingOffset,
        entry: usize,
        size: u32,
    ) -> Result<Ring, Errno> {
        let entries = offsets.desc as usize;
        let len = entries + size as usize * entry;
        let ring = Ring {
            memory: KernelMemory::of(socket, page_offset, len)?,
            producer: offsets.producer as usize,
            consumer: offsets.consumer as usize,
            flags: offsets.flags.map(|flags| flags as usize),
            entries,
            entry,
            size,
            own: 0,
            other: 0,
        };
        let words = [ring.producer, ring.consumer];
        match words.iter().all(|&at| ring.memory.word(at).is_some()) {
            true => Ok(ring),
            false => Err(Errno::BADMSG),
        }
    }

    fn position(&self, at: usize) -> u32 {
        let word = self.memory.word(at);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn set_position(&self, at: usize) {
        if let Some(word) = self.memory.word(at) {
            word.store(self.own, Ordering::Release);
        }
    }

    /// Returns the offset of an entry's words.
    fn at(&self, position: u32) -> usize {
        self.entries + (position & (self.size - 1)) as usize * self.entry
    }

    /// Returns whether the kernel sleeps and must be woken.
    pub(super) fn needs_wakeup(&self) -> bool {
        let flags = self.flags.and_then(|at| self.memory.word(at));
        flags.is_some_and(|flags| flags.load(Ordering::Acquire) & NEED_WAKEUP != 0)
    }

    /// Adds an entry. Returns `false` if the ring is full.
    pub(super) fn put(&mut self, place: u64, len: u32) -> bool {
        if self.own.wrapping_sub(self.other) >= self.size {
            self.other = self.position(self.consumer);
            if self.own.wrapping_sub(self.other) >= self.size {
                return false;
            }
        }
        let at = self.at(self.own);
        let store = |at, value| {
            if let Some(word) = self.memory.long_word(at) {
                word.store(value, Ordering::Relaxed);
            }
        };
        store(at, place);
        if self.entry == DESCRIPTOR {
            // The length, and no options.
            let [a, b, c, d] = len.to_ne_bytes();
            store(at + 8, u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]));
        }
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Publishes added entries to the kernel.
    pub(super) fn publish(&self) {
        self.set_position(self.producer);
    }

    /// Returns the number of entries that the kernel has not taken yet.
    pub(super) fn pending(&mut self) -> u32 {
        self.other = self.position(self.consumer);
        self.own.wrapping_sub(self.other)
    }

    /// Returns the kernel's next entry: offset and length.
    pub(super) fn take(&mut self) -> Option<(u64, u32)> {
        if self.own == self.other {
            self.other = self.position(self.producer);
            if self.own == self.other {
                return None;
            }
        }
        let at = self.at(self.own);
        let load = |at| self.memory.long_word(at).map(|word| word.load(Ordering::Relaxed));
        let place = load(at)?;
        let len = match self.entry {
            DESCRIPTOR => {
                let [a, b, c, d, ..] = load(at + 8)?.to_ne_bytes();
                u32::from_ne_bytes([a, b, c, d])
            }
            _ => 0,
        };
        self.own = self.own.wrapping_add(1);
        Some((place, len))
    }

    /// Returns the space of taken entries to the kernel.
    pub(super) fn release(&self) {
        self.set_position(self.consumer);
    }

    /// Returns whether the kernel has added no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.own == self.position(self.producer)
    }
}
