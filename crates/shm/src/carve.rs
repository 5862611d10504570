//! Divides a region into pieces.
//!
//! The order of the calls determines the layout. Two processes that make the same calls on the same
//! region have handles to the same pieces, wherever they map it.

use core::ptr::NonNull;
use std::sync::Arc;

use crate::region::{Access, Region, RegionError};
use crate::{Payload, Plain, Slab, Table};

/// Pieces begin at multiples of this many bytes: two cache lines, since
/// processors fetch lines in pairs.
pub(crate) const PIECE_ALIGN: usize = 128;

/// A region is too small for a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a piece of {needed} bytes does not fit into the {available} bytes left of the region")]
pub struct OutOfMemory {
    /// Bytes of the piece.
    pub needed: usize,
    /// Bytes that the region has left.
    pub available: usize,
}

/// Gives out disjoint pieces of a region, in order.
#[derive(Debug)]
pub struct Carver {
    region: Arc<Region>,
    next: usize,
    fresh: bool,
    fingerprint: u64,
}

impl Carver {
    /// Carves a region that this process created and has not carved before.
    pub fn new(mut region: Region) -> Result<Self, RegionError> {
        if !region.take_fresh() || !region.take_use() {
            return Err(RegionError::NotFresh);
        }
        Ok(Self {
            region: Arc::new(region),
            next: 0,
            fresh: true,
            fingerprint: 0,
        })
    }

    /// Carves a region whose state another process made, into the same pieces. The calls must be
    /// those of the maker, in the same order.
    ///
    /// # Panics
    ///
    /// If the region was opened for reading only.
    ///
    /// # Safety
    ///
    /// Handles give out references into the region. While a handle of this carver is in use, no
    /// process may use another handle to the same region. The caller holds the lease that ensures
    /// this. Words, and the types made of them, may be used at any time.
    pub unsafe fn attach(region: impl Into<Arc<Region>>) -> Self {
        let region = region.into();
        assert_eq!(
            region.access(),
            Access::ReadWrite,
            "state can only be shared with those that may write it"
        );
        Self {
            region,
            next: 0,
            fresh: false,
            fingerprint: 0,
        }
    }

    /// Whether the pieces are new and zero; otherwise they already hold state.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The region, which stays mapped as long as this value. Every handle keeps it mapped as well.
    pub fn mapping(&self) -> Arc<Region> {
        Arc::clone(&self.region)
    }

    /// A number that depends on the kinds and sizes of all pieces so far. Processes with different
    /// fingerprints for one region must not share it.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// A table of `len` values.
    pub fn table<T: Plain>(&mut self, len: usize) -> Result<Table<T>, OutOfMemory> {
        Table::carve(self, len)
    }

    /// A slab for up to `capacity` values.
    ///
    /// # Panics
    ///
    /// If `capacity` is `u32::MAX`.
    pub fn slab<T: Plain>(&mut self, capacity: u32) -> Result<Slab<T>, OutOfMemory> {
        Slab::carve(self, capacity)
    }

    /// Payload memory of `blocks` blocks of `block_len` bytes each.
    ///
    /// # Panics
    ///
    /// If `block_len` is no power of two or less than 64, or there are more than 2³¹ − 1 blocks.
    pub fn payload(&mut self, blocks: u32, block_len: u32) -> Result<Payload, OutOfMemory> {
        Payload::carve(self, blocks, block_len, 0)
    }

    /// Payload memory with `arenas` arenas.
    ///
    /// # Panics
    ///
    /// If `block_len` is no power of two or less than 64, or there are more than 2³¹ − 1 blocks, or
    /// more than [`Arenas::MOST`](crate::Arenas::MOST) arenas.
    pub fn payload_with(&mut self, blocks: u32, block_len: u32, arenas: u32) -> Result<Payload, OutOfMemory> {
        Payload::carve(self, blocks, block_len, arenas)
    }

    /// A piece for `len` values of `T` and its offset, a multiple of `align` bytes from the
    /// region's start. The carver gives out each piece once.
    pub(crate) fn take<T: Plain>(
        &mut self,
        len: usize,
        align: usize,
    ) -> Result<(NonNull<T>, usize), OutOfMemory> {
        const {
            assert!(align_of::<T>() <= PIECE_ALIGN);
            assert!(size_of::<T>() > 0);
        }
        let align = align.max(PIECE_ALIGN);
        let available = self.region.len() - self.next;
        let needed = len.saturating_mul(size_of::<T>());
        let start = self.next.next_multiple_of(align);
        let end = start.checked_add(needed).filter(|&end| end <= self.region.len());
        let end = end.ok_or(OutOfMemory { needed, available })?;
        self.next = end;
        self.note(size_of::<T>() as u64);
        self.note(len as u64);
        // SAFETY: `start` ≤ `end` ≤ the region's length, so the address lies in the mapping that
        // `self.region` keeps.
        let first = unsafe { self.region.base_mut().add(start) };
        Ok((first.cast(), start))
    }

    /// FNV-1a over the pieces so far.
    fn note(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.fingerprint = (self.fingerprint ^ u64::from(byte))
                .wrapping_mul(0x0100_0000_01b3)
                .wrapping_add(1);
        }
    }
}

/// Bytes of a piece for `len` values of `T`, with the space that its alignment may cost.
pub(crate) fn piece_bytes<T>(len: usize, align: usize) -> usize {
    let bytes = len.saturating_mul(size_of::<T>());
    // A piece may begin up to `align − PIECE_ALIGN` after the end of the previous one, rounded up
    // to whole PIECE_ALIGNs.
    let slack = align.max(PIECE_ALIGN) - PIECE_ALIGN;
    bytes
        .checked_next_multiple_of(PIECE_ALIGN)
        .map_or(usize::MAX, |bytes| bytes.saturating_add(slack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_disjoint_aligned_and_bounded() {
        let mut carver = Carver::new(Region::private(4096).unwrap()).unwrap();
        let mut odd = carver.table::<u8>(3).unwrap();
        let mut next = carver.table::<u64>(4).unwrap();
        odd.fill(0xff);
        next.fill(7);
        assert!(odd.iter().all(|&byte| byte == 0xff));
        assert_eq!(next.as_ptr().addr() % PIECE_ALIGN, 0);
        assert_eq!(next.as_ptr().addr() - odd.as_ptr().addr(), PIECE_ALIGN);
        let error = carver.table::<u64>(1 << 20).unwrap_err();
        assert_eq!(
            error,
            OutOfMemory {
                needed: 8 << 20,
                available: 4096 - 160
            }
        );
        assert!(carver.table::<u64>(usize::MAX).is_err());
        // The failed call has taken nothing.
        assert!(carver.table::<u64>(400).is_ok());
    }

    #[test]
    fn bytes_needed_add_up() {
        let len = Table::<u8>::bytes_needed(5)
            + Payload::bytes_needed(2, 16384)
            + Slab::<u64>::bytes_needed(33)
            + Payload::bytes_needed(3, 64)
            + Table::<u64>::bytes_needed(1);
        let mut carver = Carver::new(Region::private(len).unwrap()).unwrap();
        carver.table::<u8>(5).unwrap();
        carver.payload(2, 16384).unwrap();
        carver.slab::<u64>(33).unwrap();
        carver.payload(3, 64).unwrap();
        carver.table::<u64>(1).unwrap();
        assert!(carver.next <= len);
    }

    #[test]
    fn only_fresh_regions_are_carved() {
        let region = Region::create("toehold-test", 4096).unwrap();
        let other = Region::open(
            region.fd().unwrap().try_clone_to_owned().unwrap(),
            Access::ReadWrite,
        )
        .unwrap();
        assert_eq!(Carver::new(other).unwrap_err(), RegionError::NotFresh);
        let carver = Carver::new(region).unwrap();
        let region = Arc::try_unwrap({
            let mapping = carver.mapping();
            drop(carver);
            mapping
        });
        assert_eq!(Carver::new(region.unwrap()).unwrap_err(), RegionError::NotFresh);
    }

    #[test]
    fn different_layouts_have_different_fingerprints() {
        let mut first = Carver::new(Region::private(8192).unwrap()).unwrap();
        let mut second = Carver::new(Region::private(8192).unwrap()).unwrap();
        first.table::<u64>(4).unwrap();
        second.table::<u64>(4).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        first.table::<u64>(4).unwrap();
        second.table::<u32>(8).unwrap();
        assert_ne!(first.fingerprint(), second.fingerprint());
    }

    #[test]
    #[should_panic(expected = "may write it")]
    fn attaching_for_reading_is_refused() {
        let region = Region::create("toehold-test", 4096).unwrap();
        let peer = Region::open(region.read_only_fd().unwrap(), Access::ReadOnly).unwrap();
        // SAFETY: the call panics before it makes a handle.
        let _ = unsafe { Carver::attach(peer) };
    }
}
