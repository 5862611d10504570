//! The bytes of a connection's direction: a ring of each class, one behind the other.
//!
//! A byte's place is its position modulo the class. So small rings stay small in memory and in
//! the caches, and an index needs no rewinding.

use core::ptr::NonNull;

use super::bank::Class;
use super::lines::{Available, Layout};
use crate::copy::{copy_away, copy_racing};

/// The rings of one direction in this process's mapping of a half.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteRing {
    base: NonNull<u8>,
}

// SAFETY: an address of memory that stays mapped as long as the value is used, the same for
// every thread. The locks of the end decide which thread may write there, not this handle.
unsafe impl Send for ByteRing {}
// SAFETY: a shared `ByteRing` gives out the address alone, which is the same for every thread as
// long as the mapping lasts. The locks of the end decide which thread may write there.
unsafe impl Sync for ByteRing {}

impl ByteRing {
    /// The rings that begin at `base`.
    ///
    /// # Safety
    ///
    /// [`RING_BYTES`](super::bank::RING_BYTES) bytes must be mapped there as long as the value
    /// is used, and no Rust reference to them may exist.
    pub(super) unsafe fn new(base: NonNull<u8>) -> ByteRing {
        ByteRing { base }
    }

    /// Copies `bytes` to the places from `position` on. Those that a ring cannot hold are left.
    ///
    /// # Safety
    ///
    /// The rings must be mapped for writing, and this thread have the write lock.
    #[inline]
    pub(super) unsafe fn write(self, class: Class, position: u64, bytes: &[u8]) {
        let size = class.bytes() as usize;
        let bytes = &bytes[..bytes.len().min(size)];
        let at = position as usize & (size - 1);
        let (first, second) = bytes.split_at(bytes.len().min(size - at));
        // SAFETY: the class's ring lies within the rings, `at` + the first part's length is at
        // most its size, and the second part is shorter than `at`. The peer only reads there.
        unsafe {
            let ring = self.base.as_ptr().add(class.offset());
            copy_away(first, ring.add(at));
            if !second.is_empty() {
                copy_away(second, ring);
            }
        }
    }

    /// Copies the bytes from `position` on out of one class's ring.
    #[inline]
    fn read_from(self, class: Class, position: u64, to: &mut [u8]) {
        let size = class.bytes() as usize;
        let len = to.len().min(size);
        let at = position as usize & (size - 1);
        let (first, second) = to[..len].split_at_mut(len.min(size - at));
        // SAFETY: as for `write`. The peer may write there meanwhile: what is torn is its own
        // stream. `to` is memory of our own.
        unsafe {
            let ring = self.base.as_ptr().add(class.offset());
            copy_racing(ring.add(at), first.as_mut_ptr(), first.len());
            if !second.is_empty() {
                copy_racing(ring, second.as_mut_ptr(), second.len());
            }
        }
    }

    /// Copies the bytes from `position` on, which have to be available.
    #[inline]
    pub(super) fn read(self, available: &Available, position: u64, to: &mut [u8]) {
        let Layout { class, from } = available.layout;
        if position >= from {
            return self.read_from(class, position, to);
        }
        let before = (from - position).min(to.len() as u64) as usize;
        let (old, new) = to.split_at_mut(before);
        self.read_from(available.former, position, old);
        self.read_from(class, from, new);
    }
}
