//! The one place that reads memory which another process may write.
//!
//! A peer's bytes can change during a copy. The following rules contain that:
//!
//! - Raw pointers alone refer to such bytes ([`crate::Gather`], ring records). No `&[u8]` to them
//!   ever exists, so the compiler assumes nothing about them.
//! - They are read once, into private memory. All decisions (headers, lengths, offsets) use the
//!   private copy. A hostile peer could have sent a torn copy as well; every bit pattern of a byte
//!   is valid.
//! - After the copy the compiler is told that the destination may hold anything. Otherwise it could
//!   replace a later read of the copy by another load of the source, and see another value than the
//!   checked one.
//! - Words that order accesses (positions, flags, record headers) are atomics.
//!
//! The race itself is outside of Rust's memory model, as all memory shared with another process:
//! the writer is no thread of this program.

/// Copies `len` bytes out of memory that another process may be writing.
///
/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes. They must not overlap, and no Rust
/// reference may exist through which `from` is written.
#[inline(always)]
pub(crate) unsafe fn copy_racing(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees that `from` is readable and `to` writable for `len` bytes,
    // without overlap, during the call.
    unsafe { copy(from, to, len) };
    settle(to);
}

/// Copies a slice into another of the same length.
///
/// # Panics
///
/// If the lengths differ.
#[cfg(test)]
pub(crate) fn copy_bytes(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: `from` and `to` are slices of the same length, as asserted. `to` is exclusive, so
    // that they do not overlap.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Copies from this length on use a loop of this file. libc's `memcpy` copies a few KiB and more
/// with `rep movsb`, which is slow on memory in another core's cache. It collapses if the
/// destination lies a little behind the source modulo 4 KiB. On Zen 4 it reaches 3.5 GB/s instead
/// of 46, for buffers as `malloc` places them.
const LONG: usize = 1024;

/// Copies `len` bytes that no other process writes meanwhile.
///
/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes, without overlap.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= LONG {
        // SAFETY: the caller guarantees that `from` is readable and `to` writable for `len` bytes,
        // without overlap; `len` ≥ 64.
        return unsafe { copy_long(from, to, len) };
    }
    // SAFETY: the caller guarantees that `from` is readable and `to` writable for `len` bytes,
    // without overlap, during the call.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
}

/// Copies 64 bytes, with vectors as wide as the caller's target features allow.
///
/// # Safety
///
/// `from` must be readable and `to` writable for 64 bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_line(from: *const u8, to: *mut u8) {
    // SAFETY: the caller guarantees that `from` is readable and `to` writable for 64 bytes during
    // the call; bytes need no alignment.
    unsafe { to.cast::<[u8; 64]>().write(from.cast::<[u8; 64]>().read()) };
}

/// Copies whole lines of the destination, and also the first and the last 64 bytes, which may
/// overlap with their neighbours.
///
/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes, without overlap; `len` must be at
/// least 64.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_lines(from: *const u8, to: *mut u8, len: usize) {
    debug_assert!(len >= 64);
    // SAFETY: every call has an offset of at most `len` − 64, so its 64 bytes lie in what the
    // caller guarantees.
    unsafe {
        copy_line(from, to);
        let mut at = 64 - to.addr() % 64;
        while at <= len - 64 {
            copy_line(from.add(at), to.add(at));
            at += 64;
        }
        copy_line(from.add(len - 64), to.add(len - 64));
    }
}

/// Copies with the widest stores of the processor. Wider stores take fewer entries in the store
/// queue, where they wait for lines of another core.
///
/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes, without overlap; `len` must be at
/// least 64.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees both places and `len` ≥ 64; the features were checked at run
    // time.
    unsafe {
        if std::arch::is_x86_feature_detected!("avx512f") {
            copy_lines_512(from, to, len);
        } else if std::arch::is_x86_feature_detected!("avx") {
            copy_lines_256(from, to, len);
        } else {
            copy_lines(from, to, len);
        }
    }
}

/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes, without overlap; `len` must be at
/// least 64. The processor must have AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn copy_lines_512(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees both places for the call, and a processor with AVX-512.
    unsafe { copy_lines(from, to, len) };
}

/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes, without overlap; `len` must be at
/// least 64. The processor must have AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_lines_256(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees both places for the call, and a processor with AVX.
    unsafe { copy_lines(from, to, len) };
}

/// Copies bytes that the other side of a link will read, and this one will not. Bypasses the caches
/// if that is faster. Other processes may read the place, or write to it.
///
/// # Safety
///
/// `to` must be writable for as many bytes as `from` has, and no Rust reference to them may exist.
#[inline]
pub(crate) unsafe fn copy_away(from: &[u8], to: *mut u8) {
    #[cfg(not(any(loom, miri)))]
    if from.len() >= LONG {
        // SAFETY: the caller guarantees that `to` is writable for `from.len()` bytes, without a
        // reference to them, during the call.
        return unsafe { crate::copy_policy::copy(from, to) };
    }
    // SAFETY: the caller guarantees that `to` is writable for `from.len()` bytes. No reference to
    // them exists, so the two do not overlap.
    unsafe { copy(from.as_ptr(), to, from.len()) };
}

/// Prefetches the lines of memory that will be written soon. Another core may have them; a store
/// that waits for them delays every store after it.
#[inline]
pub(crate) fn prepare_write(first: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        let mut at = 0;
        while at < len.min(FORESIGHT) {
            // SAFETY: a prefetch is a hint; it faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(first.wrapping_add(at).cast()) };
            at += 64;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, len);
}

/// A frequent writer will probably write as much as the last time. At most this many bytes are
/// prefetched before it does.
#[cfg(target_arch = "x86_64")]
const FORESIGHT: usize = 2048;

/// Makes the compiler forget its knowledge of the memory at `to`.
#[inline(always)]
fn settle(to: *mut u8) {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    // SAFETY: the assembly is empty. The compiler assumes that it may write the memory at `to`,
    // which is the purpose.
    unsafe {
        core::arch::asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    core::hint::black_box(to);
}

/// The ones'-complement sum of `len` bytes as big-endian 16-bit words, of memory that another
/// process may be writing. It equals the sum of a torn copy.
///
/// # Safety
///
/// `from` must be readable for `len` bytes, and no Rust reference may exist through which it is
/// written.
pub(crate) unsafe fn sum_racing(from: *const u8, len: usize) -> u16 {
    // The byte order affects only the byte order of the sum (RFC 1071 §2 (B)). The loop therefore
    // uses the machine's order and 32-bit words.
    let words = len / 4;
    let mut sum = 0_u64;
    for word in 0..words {
        // SAFETY: the word lies within the `len` bytes that the caller guarantees to be readable.
        sum += u64::from(unsafe { from.add(word * 4).cast::<u32>().read_unaligned() });
    }
    let mut last = [0_u8; 4];
    // SAFETY: fewer than 4 bytes remain of those that the caller guarantees; `last` has room for
    // them.
    unsafe { copy_racing(from.add(words * 4), last.as_mut_ptr(), len % 4) };
    sum += u64::from(u32::from_ne_bytes(last));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::to_be(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_exact_at_every_alignment() {
        let source: Vec<u8> = (0..5000_u32).map(|at| (at * 7 / 3) as u8).collect();
        for len in [
            0,
            1,
            63,
            64,
            65,
            LONG - 1,
            LONG,
            LONG + 1,
            LONG + 63,
            LONG + 64,
            LONG + 100,
            4096,
        ] {
            for (from, to) in (0..66).flat_map(|from| [(from, 0), (from, 17), (0, from), (5, from)]) {
                let mut target = vec![0xaa; len + 200];
                copy_bytes(&source[from..from + len], &mut target[to..to + len]);
                assert!(
                    target[..to]
                        .iter()
                        .chain(&target[to + len..])
                        .all(|&byte| byte == 0xaa)
                );
                assert_eq!(
                    target[to..to + len],
                    source[from..from + len],
                    "{len} bytes from {from} to {to}"
                );
            }
        }
    }
}
