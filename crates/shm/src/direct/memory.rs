//! Sparse memory files, of which a process maps pieces when it first uses them.
//!
//! A bank has 64 GiB of addresses and a few pages of memory. So a piece is mapped without
//! filling it (even in a process that locks its memory), and no core dump has it.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};

use super::bank::{HEADER_LEN, Header, Kind, MAGIC, VERSION};
use crate::futex::fence;
use crate::region;
use crate::{Access, RegionError};

use core::sync::atomic::Ordering::{Relaxed, Release};

/// Why memory of direct connections could not be made, opened or mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The memory could not be made or is none that may be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The memory has another length than its kind.
    #[error("the memory has {len} bytes instead of {expected}")]
    Length {
        /// Bytes of the memory.
        len: u64,
        /// Bytes that memory of this kind has.
        expected: u64,
    },
    /// The memory does not begin as memory of its kind does.
    #[error("the memory is none of direct connections")]
    Foreign,
    /// The peer's build lays memory out otherwise.
    #[error("the memory is of version {0}, this build knows {VERSION} only")]
    Version(u32),
    /// The descriptor now stands for something else: the program has closed it.
    #[error("the descriptor of the memory was closed")]
    Closed,
}

/// A sealed memory file of a fixed length.
#[derive(Debug)]
pub(super) struct Memory {
    fd: OwnedFd,
    len: u64,
    access: Access,
    /// Device and inode, by which a descriptor that the program has closed is noticed.
    identity: (u64, u64),
    /// The piece from the beginning on that is always mapped.
    start: Mapping,
}

impl Memory {
    /// Makes memory of `len` bytes, all zero, and maps the first `mapped` of them.
    pub(super) fn create(
        name: &str,
        kind: Kind,
        len: u64,
        mapped: usize,
        incarnation: u64,
    ) -> Result<Memory, MemoryError> {
        let fd = region::sealed_memfd(name, len)?;
        let memory = Memory::over(fd, len, mapped, Access::ReadWrite)?;
        let header = memory.header();
        header.version.store(VERSION, Relaxed);
        header.kind.store(kind as u32, Relaxed);
        header.incarnation.store(incarnation, Relaxed);
        header.magic.store(MAGIC, Release);
        Ok(memory)
    }

    /// Opens memory that another process made, after having checked that no access to it can
    /// fault. Nothing in it is believed but that its header says which kind it is.
    pub(super) fn open(
        fd: OwnedFd,
        kind: Kind,
        len: u64,
        mapped: usize,
        access: Access,
    ) -> Result<Memory, MemoryError> {
        let found = region::sealed_len(&fd)?;
        if found != len {
            return Err(MemoryError::Length {
                len: found,
                expected: len,
            });
        }
        let memory = Memory::over(fd, len, mapped, access)?;
        let header = memory.header();
        if header.magic.load(Relaxed) != MAGIC {
            return Err(MemoryError::Foreign);
        }
        fence(core::sync::atomic::Ordering::Acquire);
        let version = header.version.load(Relaxed);
        if version != VERSION {
            return Err(MemoryError::Version(version));
        }
        if header.kind.load(Relaxed) != kind as u32 {
            return Err(MemoryError::Foreign);
        }
        Ok(memory)
    }

    fn over(fd: OwnedFd, len: u64, mapped: usize, access: Access) -> Result<Memory, MemoryError> {
        debug_assert!(mapped >= HEADER_LEN && mapped as u64 <= len);
        let identity = identity(&fd).map_err(RegionError::Create)?;
        let start = Mapping::new(&fd, 0, mapped, access)?;
        Ok(Memory {
            fd,
            len,
            access,
            identity,
            start,
        })
    }

    /// Maps another piece, which must lie in the file.
    pub(super) fn map(&self, offset: u64, len: usize) -> Result<Mapping, MemoryError> {
        debug_assert!(offset + len as u64 <= self.len);
        if identity(&self.fd) != Ok(self.identity) {
            return Err(MemoryError::Closed);
        }
        Ok(Mapping::new(&self.fd, offset, len, self.access)?)
    }

    /// Gives the pages of a piece back: its bytes are zero when next read. Works in a process
    /// that locks its memory, too. Returns `false` if the system refuses.
    pub(super) fn punch(&self, offset: u64, len: u64) -> bool {
        use fs::FallocateFlags;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        identity(&self.fd) == Ok(self.identity) && fs::fallocate(&self.fd, flags, offset, len).is_ok()
    }

    /// Bytes of memory that the file has at present.
    pub(super) fn used(&self) -> Result<u64, Errno> {
        Ok(fs::fstat(&self.fd)?.st_blocks as u64 * 512)
    }

    /// The descriptor, for processes of the same node.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A descriptor with which other users can map the memory for reading only.
    pub(super) fn read_only_fd(&self) -> Result<OwnedFd, MemoryError> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let opened = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Ok(opened.map_err(RegionError::Reopen)?)
    }

    /// The random number that tells this memory from any other.
    pub(super) fn incarnation(&self) -> u64 {
        self.header().incarnation.load(Relaxed)
    }

    pub(super) fn header(&self) -> &Header {
        self.line(0, 0, 1)
    }

    /// Line `index` of the `count` ones that begin at `offset` of the mapped piece.
    ///
    /// # Panics
    ///
    /// If there are not as many. No number of a peer's may come here unchecked.
    #[inline(always)]
    pub(super) fn line<T: Line>(&self, offset: usize, index: usize, count: usize) -> &T {
        assert!(index < count, "line {index} of {count}");
        debug_assert!(offset + count * size_of::<T>() <= self.start.len);
        debug_assert!(offset.is_multiple_of(align_of::<T>()));
        // SAFETY: the layout places `count` lines of this type at `offset` of the piece, which
        // is mapped as long as `self` and begins at a page. `Line` types consist of atomics, for
        // which every bit pattern is a value and which others may change. A line of memory that
        // is mapped for reading is only loaded from, by words of at most 8 bytes.
        unsafe { &*self.start.base.as_ptr().add(offset).cast::<T>().add(index) }
    }
}

/// A type that consists of atomic words alone.
///
/// # Safety
///
/// Every bit pattern must be a value, and nothing but atomics may lie in it.
pub(super) unsafe trait Line {}

macro_rules! lines {
    ($($line:ident),*) => {
        $(
            // SAFETY: the structure consists of atomics alone, for which every bit pattern is a
            // value.
            unsafe impl Line for super::bank::$line {}
        )*
    };
}

lines!(
    Header,
    WriteLine,
    ReadLine,
    ArmLine,
    RecordLine,
    ReadyLine,
    BellLine,
    QueueLine,
    EntryLine,
    WatchLine,
    WaiterLine,
    AudienceLine,
    NumberLine,
    EndLines,
    JournalLine,
    LocalLine,
    PortLine
);
// SAFETY: an array of atomic words has no padding, and every bit pattern is a value at any time.
unsafe impl<const N: usize> Line for [crate::futex::AtomicU64; N] {}
// SAFETY: an array of atomic words has no padding, and every bit pattern is a value at any time.
unsafe impl<const N: usize> Line for [crate::futex::AtomicU32; N] {}

fn identity(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A mapped piece of a memory file. It is unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range that stays mapped until it is dropped, which is the same for every
// thread. What is in it is accessed as atomics, or by raw copies under a lock.
unsafe impl Send for Mapping {}
// SAFETY: a shared `Mapping` gives out an address range that stays mapped until it is dropped. The
// memory is accessed as atomics, or by raw copies under a lock.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: &OwnedFd, offset: u64, len: usize, access: Access) -> Result<Mapping, RegionError> {
        let failed = |errno| RegionError::Map { len, errno };
        // SAFETY: the kernel chooses an unused address for a new mapping.
        let base = unsafe {
            mm::mmap(
                ptr::null_mut(),
                len,
                ProtFlags::empty(),
                MapFlags::SHARED,
                fd,
                offset,
            )
        };
        let base = NonNull::new(base.map_err(failed)?.cast()).ok_or(failed(Errno::NOMEM))?;
        let mapping = Mapping { base, len };
        let protection = match access {
            Access::ReadOnly => MprotectFlags::READ,
            Access::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        let address = base.as_ptr().cast::<c_void>();
        // SAFETY: the range is the new mapping, which nothing uses yet. Unlocked before it can be
        // accessed, it stays empty in a process that locks its memory.
        unsafe {
            let _ = mm::munlock(address, len);
            let _ = mm::madvise(address, len, Advice::LinuxDontDump);
            mm::mprotect(address, len, protection).map_err(failed)?;
        }
        Ok(mapping)
    }

    /// First address. Valid as long as the mapping.
    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Lets go of the mapping without unmapping it.
    pub(super) fn into_base(self) -> NonNull<u8> {
        core::mem::ManuallyDrop::new(self).base
    }

    /// Takes a mapping back that was let go of.
    ///
    /// # Safety
    ///
    /// `base` must come from [`Mapping::into_base`] of a mapping of `len` bytes, once.
    pub(super) unsafe fn from_base(base: NonNull<u8>, len: usize) -> Mapping {
        Mapping { base, len }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of the mapping; the dropping owner has no pointer left.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
