//! Long copies into memory that another core will read.
//!
//! Where the two cores share no cache near them, a store has to fetch its line from
//! the reader's cache first, one after the other: 16 to 30 Gb/s, where stores that
//! go past the caches reach 100. Where they do share one, it is the other way
//! round: the reader finds nothing in its caches. On a virtual machine this changes
//! from one minute to the next. So both ways are timed now and then, and streaming
//! is taken where it is clearly faster.
//!
//! What one copy costs depends on how those before it were made, since memory is used
//! again and again: after streaming, none of it is in a cache, and the first cached
//! copies are slow wherever the cores are. So a way is tried for long enough to have
//! gone through the memory, and timed only then.

mod choice;
mod past;

pub use choice::{Choice, Way};
pub use past::copy_past_caches;
pub(crate) use past::stream_racing;

/// Copies of a few KiB and longer ones fare differently.
static CHOICES: [Choice; 2] = [Choice::new(), Choice::new()];

/// Copies from this length on are long.
const LONGER: usize = 8 << 10;

/// Copies a slice to a place in the way that is faster now.
///
/// # Safety
///
/// As for [`copy_away`](crate::copy::copy_away).
pub(crate) unsafe fn copy(from: &[u8], to: *mut u8) {
    // SAFETY: demanded of the caller; no reference to the place exists, so the two are apart.
    in_faster_way(from.len(), |way| unsafe {
        match way {
            Way::Cached => crate::copy::copy(from.as_ptr(), to, from.len()),
            Way::Streamed => stream_racing(from.as_ptr(), to, from.len()),
        }
    });
}

/// Has a copy of so many bytes made in the way that is faster now.
pub(crate) fn in_faster_way(len: usize, copy: impl FnOnce(Way)) {
    let choice = &CHOICES[usize::from(len >= LONGER)];
    let attempt = choice.begin(len);
    copy(attempt.way());
    choice.end(attempt, len);
}
