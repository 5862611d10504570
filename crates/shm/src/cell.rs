//! Bare shared memory: cache lines of atomic words, and bytes behind them.
//!
//! Measurements compare the protocols with this floor, which has no protocol at all. It has no
//! rules about the writers of its words. Real traffic goes through [`crate::ring`].

use core::sync::atomic::AtomicU64;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::copy::{copy, copy_racing};
use crate::{Access, Region, RegionError};

/// Words of a [`Cell`].
pub const CELL_WORDS: usize = 8;

/// One cache line of atomic words in its own 128 bytes, so that the adjacent-line prefetcher does
/// not couple it with the next one.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Cell {
    /// The line.
    pub words: [AtomicU64; CELL_WORDS],
}

const _: () = assert!(size_of::<Cell>() == 128 && CELL_WORDS * size_of::<u64>() == 64);

/// A number of [`Cell`]s, and bytes behind them, that two processes share.
///
/// ```
/// use core::sync::atomic::Ordering::{Acquire, Release};
/// use toehold_shm::Cells;
///
/// let mut here = Cells::create("example", 1, 4096)?;
/// let mut there = Cells::open(here.fd().try_clone_to_owned().unwrap(), 1)?;
///
/// here.copy_in(100, b"bytes");
/// here.cell(0).words[0].store(1, Release);
///
/// let mut copy = [0; 5];
/// assert_eq!(there.cell(0).words[0].load(Acquire), 1);
/// there.copy_out(100, &mut copy);
/// assert_eq!(&copy, b"bytes");
/// # Ok::<(), toehold_shm::RegionError>(())
/// ```
#[derive(Debug)]
pub struct Cells {
    region: Region,
    cells: usize,
}

impl Cells {
    /// Creates memory for `cells` cells and at least `bytes` bytes, all zero, with every page
    /// present.
    pub fn create(name: &str, cells: usize, bytes: usize) -> Result<Self, RegionError> {
        let len = cells
            .checked_mul(size_of::<Cell>())
            .and_then(|len| len.checked_add(bytes));
        let region = Region::create(name, len.ok_or(RegionError::Length(u64::MAX))?)?;
        Ok(Self::over(region, cells))
    }

    /// Maps memory that another process of the same user made with [`Cells::create`].
    pub fn open(fd: OwnedFd, cells: usize) -> Result<Self, RegionError> {
        let region = Region::open(fd, Access::ReadWrite)?;
        let fits = cells
            .checked_mul(size_of::<Cell>())
            .is_some_and(|needed| needed <= region.len());
        if fits {
            Ok(Self::over(region, cells))
        } else {
            Err(RegionError::Length(region.len() as u64))
        }
    }

    fn over(region: Region, cells: usize) -> Self {
        region.populate(0, region.len());
        Self { region, cells }
    }

    /// The descriptor for the other process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.region
            .fd()
            .expect("created and opened regions have descriptors")
    }

    /// Bytes behind the cells.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.region.len() - self.start()
    }

    /// Cell number `index`.
    ///
    /// # Panics
    ///
    /// If there is no such cell.
    #[inline]
    pub fn cell(&self, index: usize) -> &Cell {
        assert!(index < self.cells, "cell {index} of {}", self.cells);
        // SAFETY: the mapping lives as long as `self`, begins at a page and holds `cells` cells.
        // Other processes may access atomics at the same time, and every bit pattern is valid for
        // them.
        unsafe { &*self.region.base().cast::<Cell>().add(index) }
    }

    /// Copies `from` to the bytes at `offset`.
    ///
    /// # Panics
    ///
    /// If they do not all fit.
    #[inline]
    pub fn copy_in(&mut self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: the range was checked to lie in the writable mapping, behind the cells. No Rust
        // reference to these bytes is ever made.
        unsafe {
            let to = self.region.base_mut().as_ptr().add(self.start() + offset);
            copy(from.as_ptr(), to, from.len());
        }
    }

    /// Copies the bytes at `offset` to `to`.
    ///
    /// # Panics
    ///
    /// If there are fewer bytes than `to` has room for.
    #[inline]
    pub fn copy_out(&mut self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        // SAFETY: the range was checked to lie in the mapping, behind the cells, and no Rust
        // reference to it exists; `to` is private memory.
        unsafe {
            let from = self.region.base().add(self.start() + offset);
            copy_racing(from, to.as_mut_ptr(), to.len());
        }
    }

    #[inline]
    fn start(&self) -> usize {
        self.cells * size_of::<Cell>()
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.bytes());
        assert!(inside, "{len} bytes at {offset} of {}", self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    fn pair(cells: usize, bytes: usize) -> (Cells, Cells) {
        let here = Cells::create("test", cells, bytes).unwrap();
        let there = Cells::open(here.fd().try_clone_to_owned().unwrap(), cells).unwrap();
        (here, there)
    }

    #[test]
    fn both_mappings_share_cells_and_bytes() {
        let (mut here, mut there) = pair(3, 1000);
        for index in 0..3 {
            for word in 0..CELL_WORDS {
                here.cell(index).words[word].store((index * 10 + word) as u64, Relaxed);
            }
        }
        let last = here.bytes() - 3;
        here.copy_in(last, b"end");
        assert_eq!(there.cell(2).words[7].load(Relaxed), 27);
        let mut bytes = [0; 3];
        there.copy_out(last, &mut bytes);
        assert_eq!(&bytes, b"end");
        assert_eq!(
            there.cell(2).words[7].load(Relaxed),
            27,
            "bytes do not reach into the cells"
        );
    }

    #[test]
    #[should_panic(expected = "cell 2 of 2")]
    fn missing_cell_panics() {
        pair(2, 1).0.cell(2);
    }

    #[test]
    #[should_panic(expected = "bytes at")]
    fn bytes_beyond_end_panic() {
        pair(1, 1).0.copy_in(usize::MAX, &[1, 2]);
    }

    #[test]
    fn too_many_cells_are_refused() {
        let here = Cells::create("test", 1, 1).unwrap();
        let fd = here.fd().try_clone_to_owned().unwrap();
        assert!(matches!(Cells::open(fd, 1 << 20), Err(RegionError::Length(_))));
    }
}
