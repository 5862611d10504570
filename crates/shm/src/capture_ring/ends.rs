//! The two ends of a capture ring.

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::Arc;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::positions::Positions;
use crate::carve::{Carver, OutOfMemory, PIECE_ALIGN, piece_bytes};
use crate::copy::copy_racing;
use crate::{Gather, Region, Words};

/// The description of a record beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Label {
    /// The time when it was appended.
    pub timestamp_ns: u64,
    /// Bytes before the record was cut.
    pub original_len: u32,
    /// The writer's note to the reader.
    pub kind: u32,
}

/// Precedes a record's bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    label: Label,
    /// Records lost since the ring was made.
    lost: u64,
    /// Bytes that follow; [`REWIND`] if none follow before the ring's end.
    len: u32,
    unused: u32,
}

const HEADER: usize = size_of::<Header>();
const _: () = assert!(HEADER == 32 && PIECE_ALIGN.is_multiple_of(HEADER));

/// The next record is at the ring's beginning.
const REWIND: u32 = u32::MAX;

/// A header and the bytes of a record, rounded up to whole headers, so that no header crosses the
/// end.
const fn room_for(len: usize) -> usize {
    HEADER + len.next_multiple_of(HEADER)
}

/// Positions count bytes since the ring was made, and never go back.
const WRITTEN: usize = 0;
const LOST: usize = 1;

/// The writer's end. One thread of all processes at a time uses it: the holder of the lease, or of
/// another lock.
pub struct Tape {
    first: NonNull<u8>,
    capacity: usize,
    /// Bytes kept of each record; 0 while there is no reader.
    limit: Words,
    /// For the writer: its position, and its lost records.
    written: Words<AtomicU64>,
    /// For the reader: its position.
    taken: Words<AtomicU64>,
    region: Arc<Region>,
}

// SAFETY: the bytes stay mapped as long as the handle. Only `&mut Tape` writes them, which the
// lease or another lock makes the only one; readers treat them as raw memory.
unsafe impl Send for Tape {}

impl Tape {
    /// Bytes that [`Carver::tape`] takes from a region.
    pub fn bytes_needed(capacity: usize) -> usize {
        Words::bytes_needed(1)
            + Words::wide_bytes_needed(2)
            + Words::wide_bytes_needed(1)
            + piece_bytes::<u8>(capacity, PIECE_ALIGN)
    }

    /// Whether there is a reader: otherwise there is no need to append.
    #[inline]
    pub fn is_played(&self) -> bool {
        self.limit.word(0).load(Relaxed) != 0
    }

    /// Appends a record of `beginning` and `rest`, or as much of them as the reader wants.
    pub fn append(&mut self, timestamp_ns: u64, kind: u32, beginning: &[u8], rest: &Gather<'_>) {
        let whole = beginning.len() + rest.len();
        let limit = self.limit.word(0).load(Relaxed) as usize;
        let len = whole.min(limit);
        let Some((at, next)) = self.make_room(room_for(len)) else {
            return self.lose();
        };
        let header = Header {
            label: Label {
                timestamp_ns,
                original_len: u32::try_from(whole).unwrap_or(u32::MAX),
                kind,
            },
            lost: self.written.word(LOST).load(Relaxed),
            len: len as u32,
            unused: 0,
        };
        let (head, bytes) = self.bytes_mut(at, HEADER + len).split_at_mut(HEADER);
        head.copy_from_slice(header.as_bytes());
        let (first, behind) = bytes.split_at_mut(beginning.len().min(len));
        first.copy_from_slice(&beginning[..first.len()]);
        rest.copy_to(0, behind);
        self.positions().publish(next);
    }

    fn lose(&self) {
        self.written.word(LOST).fetch_add(1, Relaxed);
    }

    /// What threads need of the ring that do not append at present.
    pub fn status(&self) -> TapeStatus {
        TapeStatus {
            limit: self.limit.clone(),
            written: self.written.clone(),
        }
    }

    /// The place of a record that takes `needed` bytes, and the position behind it.
    fn make_room(&mut self, needed: usize) -> Option<(usize, u64)> {
        // Nonsense here was written by a faulty process of the node. The ring may be useless then,
        // but access stays within its bounds.
        let (written, taken) = self.positions().to_write();
        let written = written & !(HEADER as u64 - 1);
        let used = usize::try_from(written.wrapping_sub(taken)).ok()?;
        let free = self.capacity.checked_sub(used)?;
        let at = (written % self.capacity as u64) as usize;
        let to_end = self.capacity - at;
        if needed <= to_end {
            return (needed <= free).then(|| (at, written.wrapping_add(needed as u64)));
        }
        if to_end + needed > free {
            return None;
        }
        let rewind = Header {
            len: REWIND,
            ..Header::new_zeroed()
        };
        self.bytes_mut(at, HEADER).copy_from_slice(rewind.as_bytes());
        Some((0, written.wrapping_add((to_end + needed) as u64)))
    }

    fn positions(&self) -> Positions<'_> {
        Positions {
            written: self.written.word(WRITTEN),
            taken: self.taken.word(0),
        }
    }

    fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= self.capacity && len <= self.capacity - at);
        // SAFETY: the part lies in the piece, which stays mapped as long as `self`. It has not been
        // published, so readers, which make no references, do not read it. `&mut self` makes this
        // reference the only one.
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr().add(at), len) }
    }

    /// The tape's reader, for one thread at a time: two would take each other's records.
    pub fn reader(&self) -> TapeReader {
        TapeReader {
            first: self.first,
            capacity: self.capacity,
            limit: self.limit.clone(),
            written: self.written.clone(),
            taken: self.taken.clone(),
            position: 0,
            lost: 0,
            _region: Arc::clone(&self.region),
        }
    }
}

impl fmt::Debug for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tape")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Whether a [`Tape`] has a reader, and how many records it lost. Any thread may use it at any time.
#[derive(Debug, Clone)]
pub struct TapeStatus {
    limit: Words,
    written: Words<AtomicU64>,
}

impl TapeStatus {
    /// Whether there is a reader: otherwise there is no need to append.
    #[inline]
    pub fn is_played(&self) -> bool {
        self.limit.word(0).load(Relaxed) != 0
    }

    /// Counts a record as lost.
    pub fn lose(&self) {
        self.written.word(LOST).fetch_add(1, Relaxed);
    }
}

/// The reader's end of a [`Tape`]. Use only one of its clones at a time.
#[derive(Clone)]
pub struct TapeReader {
    first: NonNull<u8>,
    capacity: usize,
    limit: Words,
    written: Words<AtomicU64>,
    taken: Words<AtomicU64>,
    position: u64,
    /// Lost records that were reported.
    lost: u64,
    _region: Arc<Region>,
}

// SAFETY: the bytes stay mapped as long as the handle, and are read as raw memory.
unsafe impl Send for TapeReader {}

impl TapeReader {
    fn positions(&self) -> Positions<'_> {
        Positions {
            written: self.written.word(WRITTEN),
            taken: self.taken.word(0),
        }
    }

    /// Begins: from now on the writer keeps the first `limit` bytes of each record.
    pub fn start(&mut self, limit: u32) {
        // Late records for an earlier reader are skipped.
        self.position = self.positions().readable();
        self.lost = self.written.word(LOST).load(Relaxed);
        self.positions().take(self.position);
        self.limit.word(0).store(limit, Release);
    }

    /// Ends the recording. The records so far stay readable.
    pub fn stop(&mut self) {
        self.limit.word(0).store(0, Relaxed);
    }

    /// Appends the bytes of the oldest record to `into`, if there is one, and returns its label.
    /// The number counts the records lost since the one before.
    pub fn read(&mut self, into: &mut Vec<u8>) -> Option<(Label, u64)> {
        let written = self.positions().readable();
        let available = written.wrapping_sub(self.position);
        if available == 0 {
            return None;
        }
        match self.take(available, into) {
            Some((header, next)) => {
                self.advance(next);
                Some((header.label, self.count_lost(header.lost)))
            }
            None => {
                // Nonsense: a faulty process wrote it. Continue behind it.
                self.advance(written);
                self.lost = self.lost.wrapping_sub(1);
                None
            }
        }
    }

    /// Records lost since the last record that was read.
    pub fn lost(&mut self) -> u64 {
        let lost = self.written.word(LOST).load(Relaxed);
        self.count_lost(lost)
    }

    fn count_lost(&mut self, lost: u64) -> u64 {
        let more = lost.wrapping_sub(self.lost);
        self.lost = lost;
        more
    }

    fn advance(&mut self, position: u64) {
        self.position = position;
        self.positions().take(position);
    }

    /// Copies the record at the present position, and returns the position of the next one. `None`
    /// if there is no valid record.
    fn take(&self, available: u64, into: &mut Vec<u8>) -> Option<(Header, u64)> {
        let mut available = usize::try_from(available).ok().filter(|&n| n <= self.capacity)?;
        let mut position = self.position;
        let mut header = self.header(position, available)?;
        if header.len == REWIND {
            let to_end = self.capacity - (position % self.capacity as u64) as usize;
            available = available.checked_sub(to_end)?;
            position = position.wrapping_add(to_end as u64);
            header = self.header(position, available)?;
        }
        let len = header.len as usize;
        let at = (position % self.capacity as u64) as usize;
        let needed = room_for(len);
        if needed > available || needed > self.capacity - at {
            return None;
        }
        let start = into.len();
        into.resize(start + len, 0);
        self.copy_out(at + HEADER, &mut into[start..]);
        Some((header, position.wrapping_add(needed as u64)))
    }

    fn header(&self, position: u64, available: usize) -> Option<Header> {
        let at = (position % self.capacity as u64) as usize;
        if available < HEADER || !at.is_multiple_of(HEADER) {
            return None;
        }
        let mut header = Header::new_zeroed();
        self.copy_out(at, header.as_mut_bytes());
        Some(header)
    }

    fn copy_out(&self, at: usize, into: &mut [u8]) {
        assert!(at <= self.capacity && into.len() <= self.capacity - at);
        // SAFETY: the part lies in the piece, which stays mapped as long as `self`. It has been
        // published, so no reference to it is left; `into` is private memory.
        unsafe { copy_racing(self.first.as_ptr().add(at), into.as_mut_ptr(), into.len()) };
    }
}

impl fmt::Debug for TapeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapeReader")
            .field("capacity", &self.capacity)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Carver {
    /// A capture ring of `capacity` bytes.
    ///
    /// # Panics
    ///
    /// If `capacity` is no power of two, or less than 4096.
    pub fn tape(&mut self, capacity: usize) -> Result<Tape, OutOfMemory> {
        assert!(capacity.is_power_of_two() && capacity >= 4096);
        let limit = self.words(1)?;
        let written = self.wide_words(2)?;
        let taken = self.wide_words(1)?;
        let (first, _) = self.take::<u8>(capacity, PIECE_ALIGN)?;
        Ok(Tape {
            first,
            capacity,
            limit,
            written,
            taken,
            region: self.mapping(),
        })
    }
}
