//! Which memory cannot be a program's, told from its address alone: the first page, which
//! nobody has, and what is the kernel's or nobody's at the other end.

/// The end of the first page, of the smallest size that there is.
const FIRST: usize = 1 << 12;

/// A program's addresses have fewer bits than this, whatever the tables of its pages.
const BITS: u32 = if cfg!(target_arch = "x86_64") { 56 } else { 52 };

/// Whether so many values that lie at an address would lie outside of any program's memory.
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

/// Whether so many values that lie at an address would reach into the kernel's memory. Calls that may not have to touch
/// a buffer look for nothing else beforehand.
#[inline]
pub fn is_beyond<T>(at: *const T, count: usize) -> bool {
    let end = at.addr().checked_add(count.saturating_mul(size_of::<T>()));
    end.is_none_or(|end| end > 1 << BITS)
}
