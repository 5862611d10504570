//! Payload memory as threads see it that have no lease.

use core::ptr::NonNull;
use std::sync::Arc;

use crate::Region;
use crate::copy::{copy_away, copy_racing};

/// The bytes of all blocks, of which nobody here knows whose they are: a lane does.
#[derive(Debug, Clone)]
pub(crate) struct SharedBytes {
    first: NonNull<u8>,
    len: usize,
    shift: u32,
    _region: Arc<Region>,
}

// SAFETY: the bytes stay mapped as long as the handle; what is done with them is up to
// whoever calls the unsafe methods.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// `len` bytes from `first` on, in a mapping that `region` keeps, in blocks of 2 to the
    /// power of `shift`.
    pub(crate) fn new(first: NonNull<u8>, len: usize, shift: u32, region: Arc<Region>) -> Self {
        Self {
            first,
            len,
            shift,
            _region: region,
        }
    }

    #[inline]
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// The address of `len` bytes of a block; `None` if it has not as many, or there is no
    /// such block.
    #[inline]
    fn find(&self, block: u32, within: usize, len: usize) -> Option<NonNull<u8>> {
        let fits = within <= 1 << self.shift && len <= (1 << self.shift) - within;
        let start = ((block as usize) << self.shift) + within;
        // SAFETY: no more than `len` bytes from the first one.
        (fits && start + len <= self.len).then(|| unsafe { self.first.add(start) })
    }

    /// Copies bytes into a block. False: there is no such place.
    ///
    /// # Safety
    ///
    /// No thread of this process has a reference to the place, or copies to or from it. If
    /// another process does, the bytes are anybody's guess, and nothing else is.
    #[inline]
    pub(crate) unsafe fn write(&self, block: u32, within: usize, bytes: &[u8]) -> bool {
        let Some(to) = self.find(block, within, bytes.len()) else {
            return false;
        };
        // SAFETY: in the mapping, and nobody else's for the time of this call.
        let to = unsafe { core::slice::from_raw_parts_mut(to.as_ptr(), bytes.len()) };
        copy_away(bytes, to);
        true
    }

    /// Where bytes of a block lie, to be written by other means than a copy. `None`: there is no
    /// such place.
    #[inline]
    pub(crate) fn place(&self, block: u32, within: usize, len: usize) -> Option<NonNull<[u8]>> {
        let to = self.find(block, within, len)?;
        Some(NonNull::slice_from_raw_parts(to, len))
    }

    /// Copies bytes out of a block. False: there is no such place.
    ///
    /// # Safety
    ///
    /// No thread of this process writes to the place.
    #[inline]
    pub(crate) unsafe fn read(&self, block: u32, within: usize, into: &mut [u8]) -> bool {
        let Some(from) = self.find(block, within, into.len()) else {
            return false;
        };
        // SAFETY: in the mapping; what a program's buffer is, is no payload memory.
        unsafe { copy_racing(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }
}
