//! Bytes in several places, possibly in memory that another process writes.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crate::copy::{copy_racing, sum_racing};

/// Most places of one [`Gather`].
pub const MAX_PARTS: usize = 8;

/// From this length on, bypassing the caches may be faster.
#[cfg(not(any(loom, miri)))]
const LONG: usize = 4 << 10;

#[derive(Clone, Copy)]
struct Part {
    first: *const u8,
    len: usize,
}

/// Up to [`MAX_PARTS`] consecutive runs of bytes, e.g. the payload of a super-frame.
///
/// Another process may write the memory at the same time. Callers can therefore only copy the bytes
/// out; there is no way to borrow them.
#[derive(Clone, Copy)]
pub struct Gather<'a> {
    /// The first `count` are set, and none of them is empty.
    parts: [MaybeUninit<Part>; MAX_PARTS],
    count: usize,
    len: usize,
    _bytes: PhantomData<&'a [u8]>,
}

impl<'a> Gather<'a> {
    /// No bytes.
    pub const EMPTY: Self = Self {
        parts: [MaybeUninit::uninit(); MAX_PARTS],
        count: 0,
        len: 0,
        _bytes: PhantomData,
    };

    /// The bytes of a slice.
    #[inline]
    pub fn from_slice(bytes: &'a [u8]) -> Self {
        let mut gather = Self::EMPTY;
        gather.push(bytes);
        gather
    }

    /// Appends the bytes of a slice. False, without any change, if that would be one part too many.
    #[inline]
    pub fn push(&mut self, bytes: &'a [u8]) -> bool {
        // SAFETY: the slice is readable for 'a, and its borrow excludes writers.
        unsafe { self.push_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// Appends the parts of another gather. False, with only some of them appended, if there are
    /// too many.
    #[inline]
    pub fn append(&mut self, other: &Gather<'a>) -> bool {
        // SAFETY: the parts of `other` are readable for 'a, as the caller of its `push_raw`
        // guaranteed.
        other
            .parts()
            .all(|(first, len)| unsafe { self.push_raw(first, len) })
    }

    /// Appends `len` bytes at `first`. False, without any change, if that would be one part too
    /// many.
    ///
    /// # Safety
    ///
    /// The bytes must be readable for 'a. Another process, or another mapping, may write them
    /// meanwhile. A Rust reference to the same addresses must not.
    #[inline]
    pub unsafe fn push_raw(&mut self, first: *const u8, len: usize) -> bool {
        if len == 0 {
            return true;
        }
        let (Some(slot), Some(total)) = (self.parts.get_mut(self.count), self.len.checked_add(len)) else {
            return false;
        };
        slot.write(Part { first, len });
        self.count += 1;
        self.len = total;
        true
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies from the byte at `offset` on into `into`, as much as fits, and returns the number of
    /// bytes.
    #[inline]
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) -> usize {
        // SAFETY: `into` is borrowed mutably, so no part lies in its memory.
        unsafe { self.copy_to_place(offset, into.as_mut_ptr(), into.len()) }
    }

    /// Copies from the byte at `offset` on to a place for `len` bytes, as much as fits, and returns
    /// the number of bytes.
    ///
    /// # Safety
    ///
    /// The place must be writable for `len` bytes. No part may lie there, and no Rust reference to
    /// it may exist.
    #[inline]
    pub(crate) unsafe fn copy_to_place(&self, offset: usize, to: *mut u8, len: usize) -> usize {
        let mut done = 0;
        for (first, len) in self.range(offset, len) {
            // SAFETY: the part is readable while `self` exists; `range` yields at most `len` bytes
            // in all. The caller guarantees the destination.
            unsafe { copy_racing(first, to.add(done), len) };
            done += len;
        }
        done
    }

    /// Copies all bytes to the beginning of `into`, which another core will read. Bypasses the
    /// caches if that is faster.
    ///
    /// # Panics
    ///
    /// If `into` is shorter.
    #[inline]
    pub fn copy_away(&self, into: &mut [u8]) {
        #[cfg(not(any(loom, miri)))]
        if self.len >= LONG {
            return self.copy_long_away(into);
        }
        assert!(
            self.copy_to(0, into) == self.len,
            "there is room for {}",
            into.len()
        );
    }

    #[cfg(not(any(loom, miri)))]
    fn copy_long_away(&self, into: &mut [u8]) {
        use crate::copy_policy::{Way, in_faster_way, stream_racing};
        assert!(into.len() >= self.len, "there is room for {}", into.len());
        in_faster_way(self.len, |way| {
            let mut to = into.as_mut_ptr();
            for (first, len) in self.parts() {
                // SAFETY: the parts are readable while `self` exists, and together no longer than
                // `into`, which is borrowed mutably.
                unsafe {
                    match way {
                        Way::Cached => copy_racing(first, to, len),
                        Way::Streamed => stream_racing(first, to, len),
                    }
                    to = to.add(len);
                }
            }
        });
    }

    /// The bytes from `offset` on, at most `len`.
    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        let mut slice = Self::EMPTY;
        for (first, len) in self.range(offset, len) {
            // SAFETY: `first` points to `len` bytes of one of this value's parts, which stay
            // readable as long as the part.
            unsafe { slice.push_raw(first, len) };
        }
        slice
    }

    /// The runs of bytes in order, as address and length. None of them is empty.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = (*const u8, usize)> {
        self.filled().iter().map(|part| (part.first, part.len))
    }

    /// The ones'-complement sum of the bytes as big-endian 16-bit words (RFC 1071). A zero
    /// completes the last word of an odd length. The sum is folded to 16 bits and not complemented.
    /// Every byte is read once.
    pub fn checksum(&self) -> u32 {
        let mut sum = 0_u32;
        let mut odd = false;
        for (first, len) in self.parts() {
            // SAFETY: the part is readable while `self` exists, and no reference exists through
            // which it is written.
            let part = unsafe { sum_racing(first, len) };
            // Behind an odd number of bytes, high and low bytes change places (RFC 1071 §2 (B)).
            sum += u32::from(if odd { part.swap_bytes() } else { part });
            odd ^= len % 2 == 1;
        }
        let folded = (sum & 0xffff) + (sum >> 16);
        (folded & 0xffff) + (folded >> 16)
    }

    /// The runs of the bytes from `offset` on, at most `len` of them.
    #[inline]
    fn range(&self, offset: usize, len: usize) -> impl Iterator<Item = (*const u8, usize)> {
        let mut skip = offset;
        let mut left = len;
        self.filled().iter().filter_map(move |part| {
            if skip >= part.len {
                skip -= part.len;
                return None;
            }
            let taken = (part.len - skip).min(left);
            // `wrapping_add` keeps the pointer inside: skip < part.len.
            let first = part.first.wrapping_add(skip);
            skip = 0;
            left -= taken;
            (taken > 0).then_some((first, taken))
        })
    }

    #[inline]
    fn filled(&self) -> &[Part] {
        let filled = &self.parts[..self.count];
        // SAFETY: `push_raw` sets a part before it counts it, so the first `count` parts are
        // initialised.
        unsafe { &*(core::ptr::from_ref(filled) as *const [Part]) }
    }
}

impl Default for Gather<'_> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for Gather<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather")
            .field("len", &self.len)
            .field("parts", &self.count)
            .finish()
    }
}
