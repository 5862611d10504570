//! Memory that this process shares with the kernel: the rings of a socket, and their frames. No
//! other process has it.

use core::ffi::c_void;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::Gather;

/// A page-aligned mapping. It is unmapped when dropped.
///
/// Bytes that the kernel may be writing are accessible as [`Gather`]s and atomics only.
pub struct KernelMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range that stays mapped until it is dropped, the same for every thread.
// `&KernelMemory` gives access by atomics and copies only.
unsafe impl Send for KernelMemory {}
// SAFETY: `&KernelMemory` gives access by atomics and copies only, to memory that stays mapped
// until it is dropped.
unsafe impl Sync for KernelMemory {}

impl KernelMemory {
    /// Creates zeroed memory of `len` bytes whose address the kernel is told. A fork does not move
    /// it away from the parent.
    pub fn new(len: usize) -> Result<KernelMemory, Errno> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an unused address for a new mapping, so no memory in use is
        // affected.
        let base =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        Ok(KernelMemory::mapped(base?, len))
    }

    /// Maps `len` bytes that the kernel keeps for a descriptor, from `offset` on. Use it for
    /// sockets, not for files: the kernel must not remove the memory while it is mapped.
    pub fn of(descriptor: BorrowedFd<'_>, offset: u64, len: usize) -> Result<KernelMemory, Errno> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an unused address for a new mapping, so no memory in use is
        // affected.
        let base = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mm::mmap(ptr::null_mut(), len, access, flags, descriptor, offset)
        };
        Ok(KernelMemory::mapped(base?, len))
    }

    fn mapped(base: *mut c_void, len: usize) -> KernelMemory {
        let base = NonNull::new(base.cast()).expect("no mapping is at address zero");
        KernelMemory { base, len }
    }

    /// The address of the memory, for the kernel.
    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// Bytes of the memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The word of 32 bits at this offset, if it lies aligned in the memory.
    #[inline]
    pub fn word(&self, at: usize) -> Option<&AtomicU32> {
        let first = self.place(at, 4)?;
        // SAFETY: four aligned bytes of the mapping, which both sides access as an atomic; every
        // bit pattern is valid.
        Some(unsafe { AtomicU32::from_ptr(first.cast()) })
    }

    /// The word of 64 bits at this offset, if it lies aligned in the memory.
    #[inline]
    pub fn long_word(&self, at: usize) -> Option<&AtomicU64> {
        let first = self.place(at, 8)?;
        // SAFETY: eight aligned bytes of the mapping, which both sides access as an atomic; every
        // bit pattern is valid.
        Some(unsafe { AtomicU64::from_ptr(first.cast()) })
    }

    /// The `len` bytes at this offset, if they lie in the memory.
    #[inline]
    pub fn gather(&self, at: usize, len: usize) -> Option<Gather<'_>> {
        let mut gather = Gather::EMPTY;
        let first = self.bytes(at, len)?;
        // SAFETY: the bytes are mapped as long as `self` is borrowed. No reference to them exists,
        // and the borrow excludes writes by this process.
        unsafe { gather.push_raw(first, len) };
        Some(gather)
    }

    /// Copies bytes into the memory. False, without any change, if they do not fit.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> bool {
        let Some(to) = self.bytes(at, bytes.len()) else {
            return false;
        };
        // SAFETY: `at` and the length were checked to lie in the mapping, to which no reference
        // exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        true
    }

    /// Copies a gather's bytes into the memory. False, without any change, if they do not fit.
    #[inline]
    pub fn write_gather(&mut self, at: usize, bytes: &Gather<'_>) -> bool {
        let Some(to) = self.bytes(at, bytes.len()) else {
            return false;
        };
        let mut done = 0;
        for (first, len) in bytes.parts() {
            // SAFETY: a part is readable as its gather guarantees, and the mapping has enough bytes
            // left. The part does not lie in this memory, which is borrowed mutably.
            unsafe { crate::copy::copy_racing(first, to.add(done), len) };
            done += len;
        }
        true
    }

    fn place(&self, at: usize, size: usize) -> Option<*mut u8> {
        self.bytes(at, size).filter(|_| at.is_multiple_of(size))
    }

    fn bytes(&self, at: usize, len: usize) -> Option<*mut u8> {
        let end = at.checked_add(len)?;
        (end <= self.len).then(|| self.base.as_ptr().wrapping_add(at))
    }
}

impl Drop for KernelMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no borrow of it is left.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl fmt::Debug for KernelMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelMemory").field("len", &self.len).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn access_stays_within_memory() {
        let mut memory = KernelMemory::new(4096).unwrap();
        assert!(memory.word(4092).is_some() && memory.long_word(4088).is_some());
        assert!(memory.word(4096).is_none() && memory.long_word(4092).is_none());
        assert!(memory.word(2).is_none(), "not aligned");
        assert!(memory.write(4090, b"sixsix") && !memory.write(4090, b"seven77"));
        let parts = [&b"two"[..], b"parts"];
        let mut gather = Gather::EMPTY;
        parts.iter().for_each(|part| assert!(gather.push(part)));
        assert!(memory.write_gather(8, &gather) && !memory.write_gather(4090, &gather));
        let mut read = [0; 8];
        memory.gather(8, 8).unwrap().copy_to(0, &mut read);
        assert_eq!(&read, b"twoparts");
        assert!(memory.gather(4090, 7).is_none() && memory.gather(usize::MAX, 2).is_none());
        memory.word(8).unwrap().store(0x0a0b_0c0d, Ordering::Relaxed);
        memory.gather(8, 8).unwrap().copy_to(0, &mut read);
        assert_eq!(&read[..4], &0x0a0b_0c0du32.to_ne_bytes());
    }
}
