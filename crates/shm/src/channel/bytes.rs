//! Payload memory for threads without the lease.

use core::ptr::NonNull;
use std::sync::Arc;

use crate::copy::{copy_away, copy_racing};
use crate::{Arenas, Region};

/// The bytes of all blocks. This handle does not know their owners: a lane does.
#[derive(Debug, Clone)]
pub(crate) struct SharedBytes {
    first: NonNull<u8>,
    len: usize,
    arenas: Arenas,
    /// Blocks of each arena, as a power of two.
    arena_shift: u32,
    shift: u32,
    _region: Arc<Region>,
}

// SAFETY: the bytes stay mapped as long as the handle. Access to them goes through the unsafe
// methods, whose callers guarantee its order.
unsafe impl Send for SharedBytes {}
// SAFETY: the bytes stay mapped as long as the handle; the callers of the unsafe methods guarantee
// the order of accesses.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// Takes `len` private bytes from `first` on, in a mapping that `region` keeps, and arenas. All
    /// of them consist of blocks of 2 to the power of `shift` bytes.
    pub(crate) fn new(
        (first, len): (NonNull<u8>, usize),
        (arenas, arena_shift): (Arenas, u32),
        shift: u32,
        region: Arc<Region>,
    ) -> Self {
        Self {
            first,
            len,
            arenas,
            arena_shift,
            shift,
            _region: region,
        }
    }

    #[inline]
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// The address of `len` bytes of a block. `None` if the block is shorter or does not exist, or
    /// if this process does not map it.
    #[inline]
    fn find(&self, block: u32, within: usize, len: usize) -> Option<NonNull<u8>> {
        if within > 1 << self.shift || len > (1 << self.shift) - within {
            return None;
        }
        let private = (self.len >> self.shift) as u32;
        let (first, block) = match block.checked_sub(private) {
            None => (self.first, block),
            Some(beyond) => {
                let first = self.arenas.first((beyond >> self.arena_shift) as usize)?;
                (first, beyond & ((1 << self.arena_shift) - 1))
            }
        };
        // SAFETY: the block lies in private memory or in an arena, whose mapping is long enough and
        // stays as long as `self`.
        Some(unsafe { first.add(((block as usize) << self.shift) + within) })
    }

    /// Copies bytes into a block. False if there is no such place.
    ///
    /// # Safety
    ///
    /// No thread of this process has a reference to the place, or copies to or from it. If another
    /// process accesses it, only the values of these bytes are undefined.
    #[inline]
    pub(crate) unsafe fn write(&self, block: u32, within: usize, bytes: &[u8]) -> bool {
        let Some(to) = self.find(block, within, bytes.len()) else {
            return false;
        };
        // SAFETY: `find` has checked that the place lies in the mapping; the caller guarantees that
        // no reference to it exists.
        unsafe { copy_away(bytes, to.as_ptr()) };
        true
    }

    /// The address of bytes of a block, for writes by other means than a copy. `None` if there is
    /// no such place.
    #[inline]
    pub(crate) fn place(&self, block: u32, within: usize, len: usize) -> Option<NonNull<[u8]>> {
        let to = self.find(block, within, len)?;
        Some(NonNull::slice_from_raw_parts(to, len))
    }

    /// Copies bytes out of a block. False if there is no such place.
    ///
    /// # Safety
    ///
    /// No thread of this process writes to the place.
    #[inline]
    pub(crate) unsafe fn read(&self, block: u32, within: usize, into: &mut [u8]) -> bool {
        let Some(from) = self.find(block, within, into.len()) else {
            return false;
        };
        // SAFETY: `find` has checked that the place lies in the mapping. A program's buffer is
        // never payload memory, so the two do not overlap.
        unsafe { copy_racing(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }
}
