//! The two halves of the fence between a sender and a sleeper.
//!
//! Each side stores a value and then loads the other side's value; between the two every side needs
//! a fence. A sender pays for its fence with every burst: it waits until another core has given up
//! all written lines. That takes half a microsecond for a kilobyte. A sleeper's fence costs nothing
//! that matters. Therefore the sleeper makes the kernel execute a fence in every thread of every
//! process that has registered (`membarrier(2)`, GLOBAL_EXPEDITED). The senders are among them, and
//! only keep the compiler from reordering.
//!
//! `membarrier` interrupts every processor on which such a thread runs, for about ten microseconds.
//! A thread that sleeps for nearly every message would spend more on it than on all the rest. So a
//! frequent sleeper asks the senders in its sleeping word to fence themselves. The first sleep with
//! that request still fences everywhere. A sender may have published before that fence; then the
//! sleeper sees the record from then on. Otherwise the sender reads the word after the fence, and
//! sees the request. The sleeper withdraws the request after as many records without a sleep. A
//! sender of a stream, or to a spinning receiver, therefore fences a few times at most.

use core::sync::atomic::Ordering::SeqCst;

use super::protocol::fence;

/// Registers this process. Returns `false` if the system cannot, or refuses.
#[cfg(not(any(loom, miri)))]
pub(super) fn agree() -> bool {
    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
    use std::sync::OnceLock;

    static AGREED: OnceLock<bool> = OnceLock::new();
    *AGREED.get_or_init(|| {
        let needed = MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED;
        membarrier_query().contains(needed) && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
    })
}

#[cfg(any(loom, miri))]
pub(super) fn agree() -> bool {
    false
}

/// The sleeper's half, once for any number of rings. Call it between
/// [`announce_sleep`](super::Consumer::announce_sleep) and
/// [`confirm_sleep`](super::Consumer::confirm_sleep). `everywhere`: one of the rings needs a fence
/// in all processes. Its sleep was announced so, or its producer waits and has
/// [promised](super::Rings::fences_everywhere) it. Returns `false` if the thread must not sleep,
/// because it may not be woken.
pub fn fence_before_sleep(everywhere: bool) -> bool {
    sleeper(everywhere)
}

/// The sender's half; `light` if the sleeper fences for both.
#[inline]
pub(super) fn sender(light: bool) {
    if light {
        core::sync::atomic::compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
}

/// The sleeper's half; `heavy` if senders rely on it. Returns `false` if the fence is not available
/// any more. A sleeper may not be woken then.
pub(super) fn sleeper(heavy: bool) -> bool {
    fence(SeqCst);
    !heavy || everywhere()
}

#[cfg(not(any(loom, miri)))]
fn everywhere() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

#[cfg(any(loom, miri))]
fn everywhere() -> bool {
    true
}
