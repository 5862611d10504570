//! Halves of a bank: the memory that one side writes and the other side reads.

use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::bank::{
    ARM_LINES, ArmLine, BYTES, CONNECTIONS, Class, EXTENT, EXTENTS, HALF_LEN, HALF_LINES_LEN, Kind,
    READ_LINES, RECORD_LINES, RING_BYTES, ReadLine, RecordLine, WRITE_LINES, WriteLine,
};
use super::memory::{Mapping, Memory, MemoryError};
use super::record::Record;
use crate::Access;

/// Bytes of an extent.
const EXTENT_LEN: usize = EXTENT * RING_BYTES;

/// This node's half of a bank: the lines and byte rings of its ends.
///
/// Every process of the node maps it for writing. Its length is fixed and it is sparse: only
/// rings that were used have memory. A clone is of the same mapping.
///
/// ```
/// use toehold_shm::direct::{Half, PeerHalf};
///
/// let ours = Half::create("toehold-half", 0x1234)?;
/// let theirs = PeerHalf::open(ours.read_only_fd()?)?;
/// assert_eq!(theirs.incarnation(), 0x1234);
/// # Ok::<(), toehold_shm::direct::MemoryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Half {
    mapped: Arc<Mapped>,
}

/// The peer's half of a bank, which this process can only read. A clone is of the same mapping.
#[derive(Debug, Clone)]
pub struct PeerHalf {
    mapped: Arc<Mapped>,
}

impl Half {
    /// Makes a half in which no connection was ever opened. `name` shows up in
    /// `/proc/PID/maps`; `incarnation` is a random number that tells the half from any other.
    ///
    /// # Errors
    ///
    /// If the kernel makes no memory file, or this process has too few addresses.
    pub fn create(name: &str, incarnation: u64) -> Result<Half, MemoryError> {
        Memory::create(name, Kind::Half, HALF_LEN, HALF_LINES_LEN, incarnation).map(Half::over)
    }

    /// Maps a half of this node that another of its processes has made.
    ///
    /// # Errors
    ///
    /// If the descriptor is of something else, or this process has too few addresses.
    pub fn open(fd: OwnedFd) -> Result<Half, MemoryError> {
        Memory::open(fd, Kind::Half, HALF_LEN, HALF_LINES_LEN, Access::ReadWrite).map(Half::over)
    }

    fn over(memory: Memory) -> Half {
        Half {
            mapped: Mapped::new(memory),
        }
    }

    /// The half as the other side has it. For a node's bank with itself, whose two sides map
    /// each half once.
    pub fn as_peer(&self) -> PeerHalf {
        PeerHalf {
            mapped: Arc::clone(&self.mapped),
        }
    }

    /// The descriptor, for processes of this node.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapped.memory.fd()
    }

    /// A descriptor for the peer, which other users can map for reading only.
    ///
    /// # Errors
    ///
    /// If `/proc` is not mounted.
    pub fn read_only_fd(&self) -> Result<OwnedFd, MemoryError> {
        self.mapped.memory.read_only_fd()
    }

    /// The random number that tells this half from any other.
    pub fn incarnation(&self) -> u64 {
        self.mapped.memory.incarnation()
    }

    /// Maps the rings of a connection. Returns at once if they are mapped.
    ///
    /// # Errors
    ///
    /// If this process has too few addresses, or the program has closed the descriptor.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub fn map(&self, number: u16) -> Result<(), MemoryError> {
        self.mapped.bytes(number).map(drop)
    }

    /// Gives the pages of a connection's rings back. Only for a number whose connection has
    /// ended at both sides. Returns `false` if the system refuses.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub fn release_pages(&self, number: u16) -> bool {
        assert!(usize::from(number) < CONNECTIONS, "connection {number}");
        let offset = BYTES as u64 + u64::from(number) * RING_BYTES as u64;
        self.mapped.memory.punch(offset, RING_BYTES as u64)
    }

    /// Gives the pages back that lie between the rings of a connection, and in those of which
    /// `is_unused` says so. Returns `false` if the system refuses.
    pub(super) fn release_between(&self, number: u16, is_unused: impl Fn(Class) -> bool) -> bool {
        let mut first = 0;
        let mut all = true;
        let used = Class::ALL.into_iter().filter(|&class| !is_unused(class));
        for class in used {
            all &= self.punch(number, first, (class.offset() - first) as u64);
            first = class.offset() + class.bytes() as usize;
        }
        all & (first == RING_BYTES || self.punch(number, first, (RING_BYTES - first) as u64))
    }

    /// Gives the pages of all rings of a connection back that are larger than one of this class.
    /// Returns `false` if the system refuses.
    pub(super) fn release_larger(&self, number: u16, class: Class) -> bool {
        // Each ring ends where the next one, four times as large, begins or before.
        let first = class.offset() + class.bytes() as usize;
        self.punch(number, first, (RING_BYTES - first) as u64)
    }

    fn punch(&self, number: u16, at: usize, len: u64) -> bool {
        debug_assert!(usize::from(number) < CONNECTIONS && at as u64 + len <= RING_BYTES as u64);
        let ring = BYTES as u64 + u64::from(number) * RING_BYTES as u64;
        self.mapped.memory.punch(ring + at as u64, len)
    }

    /// Says which connection a number stands for from now on, the generation last.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub fn set_record(&self, number: u16, record: &Record) {
        self.mapped.record_line(number).write(record);
    }

    /// This side's record of a number's connection of that generation; `None` if the record is of
    /// another generation.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub fn record(&self, number: u16, generation: u32) -> Option<Record> {
        self.mapped.record_line(number).read(generation)
    }

    /// Bytes of memory that the half has at present, pages that a peer has read included.
    pub fn memory_used(&self) -> u64 {
        self.mapped.memory.used().unwrap_or(0)
    }
}

impl PeerHalf {
    /// Maps the other side's half for reading. Only memory is accepted that can never shrink
    /// and has the length of a half, so that no access to it faults.
    ///
    /// # Errors
    ///
    /// If the descriptor is of something else, or this process has too few addresses.
    pub fn open(fd: OwnedFd) -> Result<PeerHalf, MemoryError> {
        let memory = Memory::open(fd, Kind::Half, HALF_LEN, HALF_LINES_LEN, Access::ReadOnly)?;
        Ok(PeerHalf {
            mapped: Mapped::new(memory),
        })
    }

    /// The descriptor, for other processes of this node.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapped.memory.fd()
    }

    /// The number that the peer says its half is told from others by. It may change.
    pub fn incarnation(&self) -> u64 {
        self.mapped.memory.incarnation()
    }

    /// Maps the rings of a connection. Returns at once if they are mapped.
    ///
    /// # Errors
    ///
    /// If this process has too few addresses, or the program has closed the descriptor.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub fn map(&self, number: u16) -> Result<(), MemoryError> {
        self.mapped.bytes(number).map(drop)
    }

    /// The peer's record of a number's connection of that generation; `None` if the record is of
    /// another generation, or malformed. Addresses may be any: the caller checks them.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub fn record(&self, number: u16, generation: u32) -> Option<Record> {
        self.mapped.record_line(number).read(generation)
    }
}

/// A half's lines, and the extents of its bytes as far as this process has mapped them.
struct Mapped {
    memory: Memory,
    extents: [AtomicPtr<u8>; EXTENTS],
}

impl Mapped {
    fn new(memory: Memory) -> Arc<Mapped> {
        Arc::new(Mapped {
            memory,
            extents: [const { AtomicPtr::new(ptr::null_mut()) }; EXTENTS],
        })
    }

    /// Where the rings of a connection lie: [`RING_BYTES`] bytes.
    #[inline]
    fn bytes(&self, number: u16) -> Result<NonNull<u8>, MemoryError> {
        let number = usize::from(number);
        assert!(number < CONNECTIONS, "connection {number}");
        let extent = &self.extents[number / EXTENT];
        let base = match NonNull::new(extent.load(Acquire)) {
            Some(base) => base,
            None => self.map_extent(number / EXTENT)?,
        };
        // SAFETY: the extent at `base` has `EXTENT * RING_BYTES` bytes, and the remainder is below
        // `EXTENT`.
        Ok(unsafe { base.add(number % EXTENT * RING_BYTES) })
    }

    #[inline]
    fn record_line(&self, number: u16) -> &RecordLine {
        self.memory.line(RECORD_LINES, number.into(), CONNECTIONS)
    }

    #[cold]
    fn map_extent(&self, extent: usize) -> Result<NonNull<u8>, MemoryError> {
        let offset = (BYTES + extent * EXTENT_LEN) as u64;
        let mapping = self.memory.map(offset, EXTENT_LEN)?;
        let base = mapping.base();
        let first = self.extents[extent].compare_exchange(ptr::null_mut(), base.as_ptr(), AcqRel, Acquire);
        match first {
            Ok(_) => Ok(mapping.into_base()),
            // Another thread was faster; this mapping ends here.
            Err(theirs) => Ok(NonNull::new(theirs).unwrap_or(base)),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        for extent in &self.extents {
            if let Some(base) = NonNull::new(extent.load(Relaxed)) {
                // SAFETY: a pointer in the table is that of a mapping of this length that was
                // let go of; no handle is left that could use it.
                drop(unsafe { Mapping::from_base(base, EXTENT_LEN) });
            }
        }
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// Lines of one connection's end, as they lie in a half.
macro_rules! lines_of {
    ($half:ident) => {
        impl $half {
            #[inline]
            pub(super) fn write_line(&self, number: u16) -> &WriteLine {
                self.mapped
                    .memory
                    .line(WRITE_LINES, number.into(), CONNECTIONS)
            }

            #[inline]
            pub(super) fn read_line(&self, number: u16) -> &ReadLine {
                self.mapped
                    .memory
                    .line(READ_LINES, number.into(), CONNECTIONS)
            }

            #[inline]
            pub(super) fn arm_line(&self, number: u16) -> &ArmLine {
                self.mapped
                    .memory
                    .line(ARM_LINES, number.into(), CONNECTIONS)
            }

            #[inline]
            pub(super) fn bytes(&self, number: u16) -> Result<NonNull<u8>, MemoryError> {
                self.mapped.bytes(number)
            }
        }
    };
}

lines_of!(Half);
lines_of!(PeerHalf);

#[cfg(test)]
impl Half {
    pub(super) fn record_line(&self, number: u16) -> &RecordLine {
        self.mapped.record_line(number)
    }
}

impl PeerHalf {
    #[inline]
    pub(super) fn record_line(&self, number: u16) -> &RecordLine {
        self.mapped.record_line(number)
    }
}
