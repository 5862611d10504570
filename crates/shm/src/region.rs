//! A region: one piece of memory that several processes can map.
//!
//! This file owns the mapping, and the checks of a descriptor from another process. It never reads
//! the memory itself.

use core::ffi::c_void;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::Gather;

/// File system type of a memfd (`TMPFS_MAGIC`). Huge-page memfds have another: they can fault after
/// they were mapped, so this file rejects them.
const TMPFS: u64 = 0x0102_1994;

/// The rights of a process over a region that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read memory that another node writes. Its bytes are accessible as [`Gather`]s only.
    ReadOnly,
    /// Share the memory with other processes of the same node.
    ReadWrite,
}

/// Why a region could not be made, shared or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// A region of no bytes, or of more than the address space holds.
    #[error("a region cannot have {0} bytes")]
    Length(u64),
    /// The memory from another process is longer than its stated contents.
    #[error("the memory has {len} bytes, more than the allowed {most}")]
    TooLong {
        /// Bytes of the memory.
        len: u64,
        /// The bound.
        most: u64,
    },
    /// The kernel refused to make the memory.
    #[error("cannot make shared memory: {0} (is there enough memory, and are memfds allowed?)")]
    Create(#[source] Errno),
    /// The kernel refused to map the memory.
    #[error("cannot map {len} bytes of shared memory: {errno} (see `ulimit -v` and vm.max_map_count)")]
    Map {
        /// Bytes of the mapping.
        len: usize,
        /// The kernel's error.
        errno: Errno,
    },
    /// The descriptor is not a memory file, or it may fault after it was mapped.
    #[error("the descriptor is not a memfd")]
    NotMemory,
    /// The maker could still truncate the memory, which would kill its readers.
    #[error("the memfd is not sealed against shrinking")]
    NotSealed,
    /// The region lies in this process only.
    #[error("the region is private to this process and has no descriptor")]
    Private,
    /// The system could not open a descriptor for reading only.
    #[error("cannot reopen the memory for reading: {0} (is /proc mounted?)")]
    Reopen(Errno),
    /// The region was opened or carved before, so the maker of its state is unknown.
    #[error("the region was not created by this process, or carved before")]
    NotFresh,
    /// This process already has handles to this mapping.
    #[error("this process uses the mapping already")]
    InUse,
}

/// A mapped piece of memory, page-aligned, zero when created.
///
/// It is unmapped when dropped; every handle made from it keeps it alive.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    fd: Option<OwnedFd>,
    access: Access,
    /// Created here and not carved yet: still zero.
    fresh: bool,
    /// The process that has handles to this mapping; 0: none. A forked child has its parent's
    /// mapping, but not its handles.
    user: AtomicU32,
}

// SAFETY: a region is an address range that stays mapped until it is dropped, the same for every
// thread. `&Region` gives access only by raw copies out of memory that is mapped for reading only.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives access only by raw copies out of memory that is mapped for reading only,
// and stays mapped until it is dropped.
unsafe impl Sync for Region {}

impl Region {
    /// Creates memory of at least `len` bytes, rounded up to whole pages, that other processes can
    /// map. Its length is fixed. `name` appears in `/proc/PID/maps`.
    pub fn create(name: &str, len: usize) -> Result<Self, RegionError> {
        Self::create_memfd(name, len)
    }

    /// Creates memory of at least `len` bytes, rounded up to whole pages, for this process only.
    pub fn private(len: usize) -> Result<Self, RegionError> {
        let len = round_up_to_page(len)?;
        // SAFETY: the kernel chooses an unused address for a new mapping, so no memory in use is
        // affected.
        let base = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let base = base.map_err(|errno| RegionError::Map { len, errno })?;
        Ok(Self {
            base: non_null(base),
            len,
            fd: None,
            access: Access::ReadWrite,
            fresh: true,
            user: AtomicU32::new(0),
        })
    }

    /// Maps memory that another process made and sent as `fd`.
    ///
    /// The descriptor must be a memfd that can never shrink. Then no access to the mapping can
    /// fault, whatever the other process does. A memfd is sparse: its length costs the maker
    /// nothing. Open memory of another node with [`Region::open_within`] therefore.
    pub fn open(fd: OwnedFd, access: Access) -> Result<Self, RegionError> {
        Self::open_within(fd, access, isize::MAX as u64)
    }

    /// Maps memory that another process made, if it has at most `most` bytes, rounded up to whole
    /// pages. Longer memory is refused before it takes any address space.
    pub fn open_within(fd: OwnedFd, access: Access, most: u64) -> Result<Self, RegionError> {
        let size = sealed_len(&fd)?;
        let len = usize::try_from(size)
            .ok()
            .filter(|&len| (1..=isize::MAX as usize).contains(&len));
        let len = len.ok_or(RegionError::Length(size))?;
        let page = rustix::param::page_size() as u64;
        let most = most.checked_next_multiple_of(page).unwrap_or(most);
        if len as u64 > most {
            return Err(RegionError::TooLong {
                len: len as u64,
                most,
            });
        }
        let base = map_shared(&fd, 0, len, access)?;
        Ok(Self {
            base,
            len,
            fd: Some(fd),
            access,
            fresh: false,
            user: AtomicU32::new(0),
        })
    }

    /// Maps `len` bytes of a file or device for reading and writing, from `offset` on, a multiple
    /// of the page size. If another process truncates the file, accesses beyond its end are fatal.
    pub(crate) fn over(fd: OwnedFd, offset: u64, len: usize) -> Result<Self, RegionError> {
        let base = map_shared(&fd, offset, len, Access::ReadWrite)?;
        Ok(Self {
            base,
            len,
            fd: Some(fd),
            access: Access::ReadWrite,
            fresh: false,
            user: AtomicU32::new(0),
        })
    }

    fn create_memfd(name: &str, len: usize) -> Result<Self, RegionError> {
        let len = round_up_to_page(len)?;
        let fd = sealed_memfd(name, len as u64)?;
        let base = map_shared(&fd, 0, len, Access::ReadWrite)?;
        Ok(Self {
            base,
            len,
            fd: Some(fd),
            access: Access::ReadWrite,
            fresh: true,
            user: AtomicU32::new(0),
        })
    }

    /// Bytes of the mapping.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a region has at least one byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The access of this process to the memory.
    #[inline]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The descriptor, for processes of the same node; `None` if the region is private.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// A descriptor of the same memory for other nodes, which can be mapped for reading only. Other
    /// users cannot turn it into a writable one; a process of the same user can.
    pub fn read_only_fd(&self) -> Result<OwnedFd, RegionError> {
        let fd = self.fd.as_ref().ok_or(RegionError::Private)?;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
        fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(RegionError::Reopen)
    }

    /// First address of the mapping. Use it only to turn an address inside into an offset.
    #[inline]
    pub fn base(&self) -> *const u8 {
        self.base.as_ptr()
    }

    /// The `len` bytes at `offset` of memory that another node writes, for copies. `None` if they
    /// do not all lie in the region, or if the region is writable here; use its handles then.
    #[inline]
    pub fn gather(&self, offset: u64, len: u64) -> Option<Gather<'_>> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len as u64);
        if !inside || self.access != Access::ReadOnly {
            return None;
        }
        let mut gather = Gather::EMPTY;
        // SAFETY: the bytes lie in the mapping, which lives as long as `self`. The mapping is for
        // reading only, so no Rust reference to it can be mutable.
        unsafe { gather.push_raw(self.base.as_ptr().add(offset as usize), len as usize) };
        Some(gather)
    }

    /// Makes the pages of a part of the region present, so that their first use costs no page
    /// fault. Has no effect if the kernel does not support it.
    pub fn populate(&self, offset: usize, len: usize) {
        let advice = match self.access {
            Access::ReadOnly => Advice::LinuxPopulateRead,
            Access::ReadWrite => Advice::LinuxPopulateWrite,
        };
        self.advise(offset, len, advice);
    }

    /// Asks for huge pages in a part of the region. A hint: the kernel often refuses it for shared
    /// memory.
    pub(crate) fn prefer_huge_pages(&self, offset: usize, len: usize) {
        self.advise(offset, len, Advice::LinuxHugepage);
    }

    /// Returns the pages of a part of the region to the system: its bytes are zero at the next
    /// read. False if the system refuses, as for memory without a file.
    pub(crate) fn discard(&self, offset: usize, len: usize) -> bool {
        let page = rustix::param::page_size();
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let (start, end) = (offset.next_multiple_of(page), (offset + len) / page * page);
        if !inside || self.access != Access::ReadWrite || start >= end {
            return false;
        }
        // SAFETY: the range lies in this region's mapping. The caller intends the change of its
        // bytes, and all byte values are valid.
        let done = unsafe {
            let first = self.base.as_ptr().add(start).cast();
            mm::madvise(first, end - start, Advice::LinuxRemove)
        };
        done.is_ok()
    }

    fn advise(&self, offset: usize, len: usize, advice: Advice) {
        let page = rustix::param::page_size();
        let start = (offset / page * page).min(self.len);
        let end = offset.saturating_add(len).min(self.len);
        if start < end {
            // SAFETY: the range lies in this region's mapping, and the kinds of advice used here
            // change no content.
            let _ = unsafe { mm::madvise(self.base.as_ptr().add(start).cast(), end - start, advice) };
        }
    }

    /// Closes the descriptor; the memory stays mapped.
    pub fn close_fd(&mut self) {
        self.fd = None;
    }

    /// Unmaps the memory and keeps the descriptor, if there is one.
    pub fn into_fd(mut self) -> Option<OwnedFd> {
        self.fd.take()
    }

    pub(crate) fn base_mut(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns whether the memory is still zero, and marks it as used.
    pub(crate) fn take_fresh(&mut self) -> bool {
        core::mem::take(&mut self.fresh)
    }

    /// Returns whether this process has had no handles to this mapping, and marks it as used.
    pub(crate) fn take_use(&self) -> bool {
        let process = std::process::id();
        self.user.swap(process, Relaxed) != process
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: base and len are those of the mapping made in the constructor. Handles hold the
        // region in an `Arc`, so none of them is left.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

/// Creates a memory file of `len` bytes, whose length is sealed.
pub(crate) fn sealed_memfd(name: &str, len: u64) -> Result<OwnedFd, RegionError> {
    let fd = memfd(name).map_err(RegionError::Create)?;
    fs::ftruncate(&fd, len).map_err(RegionError::Create)?;
    // With this mode, another user cannot reopen the memory with more rights than the given
    // descriptor has.
    fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(RegionError::Create)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fs::fcntl_add_seals(&fd, seals).map_err(RegionError::Create)?;
    Ok(fd)
}

/// Length of a memory file that another process made, if it can never shrink.
pub(crate) fn sealed_len(fd: &OwnedFd) -> Result<u64, RegionError> {
    let seals = fs::fcntl_get_seals(fd).map_err(|_| RegionError::NotMemory)?;
    if fs::fstatfs(fd).map(|found| found.f_type as u64) != Ok(TMPFS) {
        return Err(RegionError::NotMemory);
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Err(RegionError::NotSealed);
    }
    let stat = fs::fstat(fd).map_err(|_| RegionError::NotMemory)?;
    Ok(stat.st_size as u64)
}

fn memfd(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3 the flag is unknown; this code does not depend on it.
        Err(Errno::INVAL) => fs::memfd_create(name, flags),
        made => made,
    }
}

fn map_shared(fd: &OwnedFd, offset: u64, len: usize, access: Access) -> Result<NonNull<u8>, RegionError> {
    let protection = match access {
        Access::ReadOnly => ProtFlags::READ,
        Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
    };
    // SAFETY: the kernel chooses an unused address for a new mapping, so no memory in use is
    // affected.
    let base = unsafe { mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, fd, offset) };
    base.map(non_null)
        .map_err(|errno| RegionError::Map { len, errno })
}

fn non_null(base: *mut c_void) -> NonNull<u8> {
    NonNull::new(base.cast()).expect("the kernel never maps at address 0 by itself")
}

fn round_up_to_page(len: usize) -> Result<usize, RegionError> {
    let page = rustix::param::page_size();
    let rounded = len
        .checked_next_multiple_of(page)
        .filter(|&len| len > 0 && len <= isize::MAX as usize);
    rounded.ok_or(RegionError::Length(len as u64))
}
