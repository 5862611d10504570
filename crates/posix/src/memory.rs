//! Recognises addresses that no program's memory can have: the first page, and the
//! kernel's half of the address space.

/// The end of the first page, for the smallest page size.
const FIRST: usize = 1 << 12;

/// Bits of a program's addresses, with any number of page-table levels.
const BITS: u32 = if cfg!(target_arch = "x86_64") { 56 } else { 52 };

/// Returns whether `count` values at an address would lie outside of any
/// program's memory.
///
/// ```
/// use toehold_posix::memory::is_outside;
///
/// let bytes = [0_u8; 9];
/// assert!(!is_outside(bytes.as_ptr(), 9));
/// assert!(is_outside(core::ptr::null::<u8>(), 1));
/// assert!(is_outside(core::ptr::without_provenance::<u8>(usize::MAX), 1));
/// assert!(is_outside(bytes.as_ptr(), usize::MAX));
/// ```
#[inline]
pub fn is_outside<T>(at: *const T, count: usize) -> bool {
    at.addr() < FIRST || is_beyond(at, count)
}

/// Returns whether `count` values at an address would reach into the kernel's
/// memory. Calls that may not touch a buffer check nothing else in advance.
#[inline]
pub fn is_beyond<T>(at: *const T, count: usize) -> bool {
    let end = at.addr().checked_add(count.saturating_mul(size_of::<T>()));
    end.is_none_or(|end| end > 1 << BITS)
}
