//! Prefetches memory into the caches.

/// Fetches the cache line at the beginning of a value, without waiting. A caller that looks up
/// several values fetches all of them first, so that the memory accesses overlap.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_line(core::ptr::from_ref(value).cast());
}

#[inline(always)]
fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Fetches all cache lines of a value.
#[inline(always)]
pub fn prefetch_all<T>(value: &T) {
    const LINE: usize = 64;
    let first = core::ptr::from_ref(value).cast::<u8>();
    let mut line = first.wrapping_sub(first.addr() % LINE);
    while line.addr() < first.addr() + size_of::<T>() {
        prefetch_line(line);
        line = line.wrapping_add(LINE);
    }
}
