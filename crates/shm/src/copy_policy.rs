//! Long copies into memory that another core will read.
//!
//! If the two cores share no near cache, a store first has to fetch its line from the reader's
//! cache, one after the other. That reaches 16 to 30 Gb/s, while stores that bypass the caches
//! reach 100. If the cores share one, the opposite is true: after bypassing stores the reader finds
//! nothing in its caches. On a virtual machine this changes from one minute to the next. So the
//! policy times both ways now and then, and streams where that is clearly faster.
//!
//! The cost of a copy depends on how the copies before it were made, since memory is used again and
//! again. After streaming, none of it is in a cache, and the first cached copies are slow on any
//! cores. So the policy tries a way until it has passed through the memory, and only then times it.

mod choice;
mod past;

pub use choice::{Choice, Way};
pub use past::copy_past_caches;
pub(crate) use past::stream_racing;

/// One policy for copies of a few KiB, and one for longer copies.
static CHOICES: [Choice; 2] = [Choice::new(), Choice::new()];

/// Copies from this length on are long.
const LONGER: usize = 8 << 10;

/// Copies a slice to a place in the way that is faster now.
///
/// # Safety
///
/// `to` must be writable for as many bytes as `from` has, and no Rust reference to them may exist.
pub(crate) unsafe fn copy(from: &[u8], to: *mut u8) {
    // SAFETY: the caller guarantees that the place is writable for the slice's length. No reference
    // to the place exists, so the two do not overlap.
    in_faster_way(from.len(), |way| unsafe {
        match way {
            Way::Cached => crate::copy::copy(from.as_ptr(), to, from.len()),
            Way::Streamed => stream_racing(from.as_ptr(), to, from.len()),
        }
    });
}

/// Lets `copy` make a copy of `len` bytes in the way that is faster now.
pub(crate) fn in_faster_way(len: usize, copy: impl FnOnce(Way)) {
    let choice = &CHOICES[usize::from(len >= LONGER)];
    let attempt = choice.begin(len);
    copy(attempt.way());
    choice.end(attempt, len);
}
