//! Single words in a region that all of its processes access at any time.
//!
//! A [`Table`](crate::Table) gives out `&mut`, so its user must be alone. Words are for state
//! beyond that border, such as the holder of the lease and the sleepers.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use crate::carve::{Carver, OutOfMemory, PIECE_ALIGN, piece_bytes};
use crate::{Access, Plain, Region};

mod sealed {
    pub trait Sealed {}
}

/// An atomic type for [`Words`].
pub trait Word: sealed::Sealed + Send + Sync {
    /// The type of its value.
    type Value: Plain;
}

impl sealed::Sealed for AtomicU32 {}
impl Word for AtomicU32 {
    type Value = u32;
}

impl sealed::Sealed for AtomicU64 {}
impl Word for AtomicU64 {
    type Value = u64;
}

/// Words of memory that several processes change at any time, zero when fresh.
///
/// A handle is cheap to clone, and every clone, in every process, refers to the same words. They
/// can hold any value at any time: another process of the node may have written nonsense.
///
/// ```
/// use core::sync::atomic::Ordering::Relaxed;
/// use toehold_shm::{Carver, Region, Words};
///
/// let mut carver = Carver::new(Region::private(Words::bytes_needed(2))?)?;
/// let here = carver.words(2)?;
/// let there = here.clone();
/// here.word(1).store(7, Relaxed);
/// assert_eq!(there.word(1).load(Relaxed), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Words<W: Word = AtomicU32> {
    first: NonNull<W>,
    len: usize,
    /// The distance of two words, in words.
    stride: usize,
    region: Arc<Region>,
}

// SAFETY: words are atomics in memory that stays mapped as long as the handle, and are only ever
// accessed as atomics. The carver gives out each piece once, and to another process as words again.
unsafe impl<W: Word> Send for Words<W> {}
// SAFETY: words are atomics in memory that stays mapped as long as the handle, and are only ever
// accessed as atomics.
unsafe impl<W: Word> Sync for Words<W> {}

impl Words<AtomicU32> {
    /// The cache does not couple words at this distance.
    const APART: usize = PIECE_ALIGN / size_of::<AtomicU32>();

    /// Bytes that [`Carver::words`] takes from a region.
    pub fn bytes_needed(len: usize) -> usize {
        piece_bytes::<AtomicU32>(len, PIECE_ALIGN)
    }

    /// Bytes that [`Carver::spaced_words`] takes from a region.
    pub fn spaced_bytes_needed(len: usize) -> usize {
        piece_bytes::<AtomicU32>(len.saturating_mul(Self::APART), PIECE_ALIGN)
    }
}

impl Words<AtomicU64> {
    /// Bytes that [`Carver::wide_words`] takes from a region.
    pub fn wide_bytes_needed(len: usize) -> usize {
        piece_bytes::<AtomicU64>(len, PIECE_ALIGN)
    }
}

impl Words<AtomicU64> {
    /// All of a region as words, the first of which holds `mark`. A region that this process
    /// created and has not carved gets the mark; an opened region must have it. `None` if the
    /// region has another use, or is for reading only.
    pub fn all_of(mut region: Region, mark: u64) -> Option<Self> {
        if region.access() != Access::ReadWrite {
            return None;
        }
        let fresh = region.take_fresh();
        let words = Self {
            first: region.base_mut().cast(),
            len: region.len() / size_of::<u64>(),
            stride: 1,
            region: Arc::new(region),
        };
        let first = words.get(0)?;
        if fresh {
            first.store(mark, Ordering::Release);
        }
        (first.load(Ordering::Acquire) == mark).then_some(words)
    }
}

impl<W: Word> Words<W> {
    /// The memory of the words.
    pub fn region(&self) -> &Region {
        &self.region
    }

    fn carve(carver: &mut Carver, len: usize, stride: usize) -> Result<Self, OutOfMemory> {
        const {
            assert!(size_of::<W>() == size_of::<W::Value>());
            assert!(align_of::<W>() <= PIECE_ALIGN);
        }
        let (first, _) = carver.take::<W::Value>(len.saturating_mul(stride), PIECE_ALIGN)?;
        Ok(Self {
            first: first.cast(),
            len,
            stride,
            region: carver.mapping(),
        })
    }

    /// The number of words.
    #[inline]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a number of words is fixed when carved"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The word with this index; `None` if there are fewer words.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&W> {
        // SAFETY: the piece has `len` × `stride` words, aligned, in the mapping that this handle
        // keeps alive. Every bit pattern is valid for an atomic, and other processes may write it
        // at the same time.
        (index < self.len).then(|| unsafe { self.first.add(index * self.stride).as_ref() })
    }

    /// The word with this index.
    ///
    /// # Panics
    ///
    /// If there are fewer words.
    #[inline]
    pub fn word(&self, index: usize) -> &W {
        self.get(index)
            .unwrap_or_else(|| panic!("word {index} of {}", self.len))
    }
}

impl<W: Word> Clone for Words<W> {
    fn clone(&self) -> Self {
        Self {
            first: self.first,
            len: self.len,
            stride: self.stride,
            region: Arc::clone(&self.region),
        }
    }
}

impl<W: Word> fmt::Debug for Words<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words")
            .field("len", &self.len)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Carver {
    /// `len` words of 32 bits side by side, for words that change seldom or together.
    pub fn words(&mut self, len: usize) -> Result<Words, OutOfMemory> {
        Words::carve(self, len, 1)
    }

    /// `len` words of 32 bits, each on its own 128 bytes, for words that different threads write at
    /// the same time.
    pub fn spaced_words(&mut self, len: usize) -> Result<Words, OutOfMemory> {
        Words::carve(self, len, Words::APART)
    }

    /// `len` words of 64 bits side by side.
    pub fn wide_words(&mut self, len: usize) -> Result<Words<AtomicU64>, OutOfMemory> {
        Words::carve(self, len, 1)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn words_have_expected_offsets() {
        let needed = Words::bytes_needed(5) + Words::spaced_bytes_needed(3) + Words::wide_bytes_needed(2);
        let mut carver = Carver::new(Region::private(needed).unwrap()).unwrap();
        let dense = carver.words(5).unwrap();
        let spaced = carver.spaced_words(3).unwrap();
        let wide = carver.wide_words(2).unwrap();
        let distance = |from: &AtomicU32, to: &AtomicU32| to.as_ptr().addr() - from.as_ptr().addr();
        assert_eq!(distance(dense.word(0), dense.word(4)), 16);
        assert_eq!(distance(dense.word(0), spaced.word(0)), 128);
        assert_eq!(distance(spaced.word(0), spaced.word(2)), 256);
        let from = spaced.word(0).as_ptr().addr();
        assert_eq!(wide.word(0).as_ptr().addr() - from, 3 * 128);
        wide.word(1).store(u64::MAX, Relaxed);
        assert!(wide.get(2).is_none());
        assert!((0..5).all(|index| dense.word(index).load(Relaxed) == 0));
    }

    #[test]
    #[should_panic(expected = "word 2 of 2")]
    fn missing_word_panics() {
        let mut carver = Carver::new(Region::private(4096).unwrap()).unwrap();
        carver.words(2).unwrap().word(2);
    }

    #[test]
    fn region_of_words_is_recognised_by_mark() {
        let region = Region::create("toehold-words", 4096).unwrap();
        let descriptor = region.fd().unwrap().try_clone_to_owned().unwrap();
        let opened = |access| Region::open(descriptor.try_clone().unwrap(), access).unwrap();
        assert!(Words::all_of(opened(Access::ReadWrite), 7).is_none());
        let words = Words::all_of(region, 7).unwrap();
        assert!(Words::all_of(opened(Access::ReadOnly), 7).is_none());
        assert!(Words::all_of(opened(Access::ReadWrite), 8).is_none());
        let there = Words::all_of(opened(Access::ReadWrite), 7).unwrap();
        there.word(511).fetch_add(3, Relaxed);
        assert_eq!((words.word(511).load(Relaxed), words.len()), (3, 512));
    }

    #[test]
    fn too_many_words_are_refused() {
        let mut carver = Carver::new(Region::private(4096).unwrap()).unwrap();
        assert!(carver.words(1025).is_err());
        assert!(carver.spaced_words(usize::MAX).is_err());
        assert!(carver.spaced_words(32).is_ok());
    }
}
