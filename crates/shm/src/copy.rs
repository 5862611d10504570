//! The one place where memory that somebody else may write is read.
//!
//! A peer's bytes can change while they are copied. That is contained as follows:
//!
//! - Such bytes are known by raw pointers only ([`crate::Gather`], ring records);
//!   no `&[u8]` to them ever exists, so the compiler may assume nothing of them.
//! - They are read once, into private memory, and everything that decides
//!   anything (headers, lengths, offsets) decides on the private copy. A copy
//!   torn by a racing writer is as good as any other bytes a hostile peer could
//!   have sent; every bit pattern of a byte is valid.
//! - After the copy the compiler is told that the destination may hold anything.
//!   Without that it could take a later look at the copy as leave to load the
//!   source again, and see another value than the one that was checked.
//! - Words that order accesses (positions, flags, record headers) are atomics.
//!
//! The race itself lies outside of what Rust defines, as all memory shared with
//! another process does: the writer is no thread of this program.

/// Copies `len` bytes out of memory that somebody else may be writing.
///
/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes; they must not
/// overlap, and no Rust reference may exist through which `from` is written.
#[inline(always)]
pub(crate) unsafe fn copy_racing(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: demanded of the caller.
    unsafe { copy_strides(from, to, len) };
    settle(to);
}

/// Copies a slice into another of the same length.
///
/// # Panics
///
/// If the lengths differ.
#[inline]
pub(crate) fn copy_bytes(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: two slices of the same length, one of them exclusive.
    unsafe { copy_strides(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Longer copies than this are made in parts. libc copies 8 KiB and more with
/// `rep movsb`, which on memory that another core has in its cache takes half
/// as long again as its vector loop (measured between two cores of an EPYC: 40
/// against 60 Gb/s from program to program).
const STRIDE: usize = 4096;

/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes, without overlap.
#[inline(always)]
unsafe fn copy_strides(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    while len - done > STRIDE {
        // SAFETY: within `len`, which the caller vouches for.
        unsafe { core::ptr::copy_nonoverlapping(from.add(done), to.add(done), STRIDE) };
        done += STRIDE;
    }
    // SAFETY: likewise.
    unsafe { core::ptr::copy_nonoverlapping(from.add(done), to.add(done), len - done) };
}

/// Makes the compiler forget what it knows of the memory at `to`.
#[inline(always)]
fn settle(to: *mut u8) {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    // SAFETY: no instruction at all; being allowed to write memory that it was
    // given the address of is the point.
    unsafe {
        core::arch::asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    core::hint::black_box(to);
}

/// The ones'-complement sum of `len` bytes as big-endian 16-bit words, of memory
/// that somebody else may be writing: as good as a sum of a torn copy.
///
/// # Safety
///
/// `from` must be readable for `len` bytes, and no Rust reference may exist
/// through which it is written.
pub(crate) unsafe fn sum_racing(from: *const u8, len: usize) -> u16 {
    // The sum is the same in either byte order, but for its own (RFC 1071 §2 (B)):
    // so it is taken in the machine's, over 32-bit words.
    let words = len / 4;
    let mut sum = 0_u64;
    for word in 0..words {
        // SAFETY: within the `len` bytes the caller vouches for.
        sum += u64::from(unsafe { from.add(word * 4).cast::<u32>().read_unaligned() });
    }
    let mut last = [0_u8; 4];
    // SAFETY: the rest of the bytes, fewer than 4.
    unsafe { copy_racing(from.add(words * 4), last.as_mut_ptr(), len % 4) };
    sum += u64::from(u32::from_ne_bytes(last));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::to_be(sum as u16)
}
