//! A fixed number of values in a region.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::sync::Arc;

use crate::carve::{Carver, OutOfMemory, PIECE_ALIGN, piece_bytes};
use crate::{Plain, Region};

/// A slice of a region. A fresh one is all zeroes, in pages not yet touched.
pub struct Table<T> {
    first: NonNull<T>,
    len: usize,
    region: Arc<Region>,
    _values: PhantomData<T>,
}

// SAFETY: a table owns its values as a `Box<[T]>` does. The carver gives out each piece once, and a
// caller that attaches to existing state guarantees exclusive use.
unsafe impl<T: Send> Send for Table<T> {}
// SAFETY: a table owns its values as a `Box<[T]>` does; a shared table gives out shared references
// only.
unsafe impl<T: Sync> Sync for Table<T> {}

impl<T: Plain> Table<T> {
    /// Bytes that a table of `len` values takes from a region.
    pub fn bytes_needed(len: usize) -> usize {
        piece_bytes::<T>(len, PIECE_ALIGN)
    }

    pub(crate) fn carve(carver: &mut Carver, len: usize) -> Result<Self, OutOfMemory> {
        Ok(Self::carve_aligned(carver, len, PIECE_ALIGN)?.0)
    }

    /// A table at a multiple of `align` bytes from the region's start, and its offset.
    pub(crate) fn carve_aligned(
        carver: &mut Carver,
        len: usize,
        align: usize,
    ) -> Result<(Self, usize), OutOfMemory> {
        let (first, offset) = carver.take::<T>(len, align)?;
        Ok((
            Self {
                first,
                len,
                region: carver.mapping(),
                _values: PhantomData,
            },
            offset,
        ))
    }

    pub(crate) fn region(&self) -> Arc<Region> {
        Arc::clone(&self.region)
    }

    /// The address of the values, for callers that share some of them with other threads.
    pub(crate) fn first(&self) -> NonNull<T> {
        self.first
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the piece lies in the mapping that this table keeps alive, is aligned, and
        // belongs to this table alone. It holds `len` values of a type for which all bits are
        // valid.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the piece lies in the mapping that this table keeps alive, and holds `len` valid
        // values; `&mut self` makes the reference the only one.
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
