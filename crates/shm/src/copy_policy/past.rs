//! Stores that bypass the caches.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm256_loadu_si256, _mm256_stream_si256,
};

use crate::copy::copy_racing;

/// Copies a slice into another of the same length past the caches: afterwards no cache holds any of
/// the destination.
///
/// # Panics
///
/// If the lengths differ.
pub fn copy_past_caches(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: `from` and `to` are slices of the same length, as asserted. `to` is exclusive, so
    // that they do not overlap.
    unsafe { stream_racing(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Copies `len` bytes past the caches, out of memory that another process may be writing.
///
/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes. They must not overlap, and no Rust
/// reference may exist through which `from` is written.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn stream_racing(from: *const u8, to: *mut u8, len: usize) {
    let head = to.align_offset(64).min(len);
    let lines = (len - head) / 64;
    let body = head + lines * 64;
    // SAFETY: the caller guarantees both places for the call. They have room for the lines, and the
    // destination's begin at a line; the feature was checked at run time.
    unsafe {
        copy_racing(from, to, head);
        copy_racing(from.add(body), to.add(body), len - body);
        if std::arch::is_x86_feature_detected!("avx") {
            stream_lines_256(from.add(head), to.add(head), lines);
        } else {
            stream_lines(from.add(head), to.add(head), lines);
        }
    }
    // SAFETY: the instruction touches no memory. Streaming stores are unordered with others until
    // here, and later publications must follow them.
    unsafe { _mm_sfence() };
}

/// Elsewhere all stores go through the caches.
///
/// # Safety
///
/// `from` must be readable and `to` writable for `len` bytes. They must not overlap, and no Rust
/// reference may exist through which `from` is written.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn stream_racing(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees what `copy_racing` requires, during the call.
    unsafe { copy_racing(from, to, len) };
}

/// Copies `lines` lines of 64 bytes past the caches.
///
/// # Safety
///
/// `from` must be readable and `to` writable for all of them, without overlap, and `to` aligned to
/// a line.
#[cfg(target_arch = "x86_64")]
unsafe fn stream_lines(from: *const u8, to: *mut u8, lines: usize) {
    for part in 0..lines * 4 {
        // SAFETY: the caller guarantees both places for all lines, and the alignment of `to`; a
        // part is a quarter of a line.
        unsafe {
            let value = _mm_loadu_si128(from.add(part * 16).cast::<__m128i>());
            _mm_stream_si128(to.add(part * 16).cast::<__m128i>(), value);
        }
    }
}

/// Copies `lines` lines of 64 bytes past the caches, in wider pieces.
///
/// # Safety
///
/// `from` must be readable and `to` writable for `lines` lines of 64 bytes, without overlap, and
/// `to` aligned to a line. The processor must have AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn stream_lines_256(from: *const u8, to: *mut u8, lines: usize) {
    for line in 0..lines {
        // SAFETY: the caller guarantees both places for all lines, the alignment of `to`, and a
        // processor with AVX.
        unsafe {
            let (source, destination) = (from.add(line * 64), to.add(line * 64));
            let first = _mm256_loadu_si256(source.cast::<__m256i>());
            let second = _mm256_loadu_si256(source.add(32).cast::<__m256i>());
            _mm256_stream_si256(destination.cast::<__m256i>(), first);
            _mm256_stream_si256(destination.add(32).cast::<__m256i>(), second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_copies_are_exact_at_every_alignment_and_length() {
        let from: Vec<u8> = (0..5000_u32).map(|i| (i * 31 + i / 256) as u8).collect();
        for offset in [0, 1, 15, 63] {
            for len in [0, 1, 63, 64, 65, 1024, 4097] {
                let mut to = vec![0; 5000];
                copy_past_caches(&from[offset..offset + len], &mut to[offset..offset + len]);
                assert_eq!(to[offset..offset + len], from[offset..offset + len]);
                assert!(
                    to[..offset]
                        .iter()
                        .chain(&to[offset + len..])
                        .all(|&byte| byte == 0)
                );
            }
        }
    }
}
