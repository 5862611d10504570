//! The rings between a socket and the kernel: each has one side that puts entries there and
//! one that takes them, and this process is the one or the other.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::net::xdp::XdpRingOffset;
use toehold_shm::KernelMemory;

/// The kernel wants to be told of what is put there.
const NEED_WAKEUP: u32 = 1;

/// Bytes of an entry: where a frame lies, or that, its length and options.
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
    /// A power of two.
    size: u32,
    /// This side's position, which the other side sees when it is published.
    own: u32,
    /// The other side's, as it was last seen.
    other: u32,
}

impl Ring {
    /// Maps the ring that a socket has at this page offset.
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

    /// Where the words of an entry lie.
    fn at(&self, position: u32) -> usize {
        self.entries + (position & (self.size - 1)) as usize * self.entry
    }

    /// Whether the kernel sleeps, and is to be called.
    pub(super) fn needs_wakeup(&self) -> bool {
        let flags = self.flags.and_then(|at| self.memory.word(at));
        flags.is_some_and(|flags| flags.load(Ordering::Acquire) & NEED_WAKEUP != 0)
    }

    /// Puts an entry there, unless the ring is full.
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
            // The length, and no options behind it.
            let [a, b, c, d] = len.to_ne_bytes();
            store(at + 8, u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]));
        }
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Lets the kernel see what was put there.
    pub(super) fn publish(&self) {
        self.set_position(self.producer);
    }

    /// What the kernel has not taken yet.
    pub(super) fn pending(&mut self) -> u32 {
        self.other = self.position(self.consumer);
        self.own.wrapping_sub(self.other)
    }

    /// The next entry of the kernel's: place and length.
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

    /// Gives the places of entries that were taken back to the kernel.
    pub(super) fn release(&self) {
        self.set_position(self.consumer);
    }

    /// Whether the kernel has put nothing there.
    pub(super) fn is_empty(&self) -> bool {
        self.own == self.position(self.producer)
    }
}
