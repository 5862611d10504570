//! The two halves of the fence between one that sends and one that falls asleep.
//!
//! Each of them stores something and then looks at what the other has stored, and
//! between the two every side needs a fence. A sender pays for its half with every
//! burst: it has to wait until another core has let go of all the lines that were
//! written, half a microsecond for a kilobyte. A sleeper's half costs nothing that
//! matters. So the sleeper makes the kernel put a fence into every thread of every
//! process that agreed to it (`membarrier(2)`, GLOBAL_EXPEDITED), the senders'
//! among them, and the senders only keep the compiler from reordering.
//!
//! That interrupts every processor on which such a thread runs, for ten microseconds or
//! so. A sleeper that is woken for one message after the other would spend more on it
//! than on all the rest. So one that sleeps often asks the senders in its sleeping word to
//! fence themselves. The first sleep with that request still fences everywhere. Every
//! sender then either had published before that fence, and what it published is seen by
//! the sleeper from then on, or it looks at the word after it, and sees the request.
//! The request is taken back as soon as many records come without a sleep, so that who
//! sends a stream, or to somebody who spins, fences a few times at most.

use core::sync::atomic::Ordering::SeqCst;

use super::protocol::fence;

/// Makes this process take part. False: the system cannot, or will not.
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

/// The sleeper's half, once for however many rings it sleeps on: between
/// [`announce_sleep`](super::Consumer::announce_sleep) and
/// [`confirm_sleep`](super::Consumer::confirm_sleep). `everywhere`: one of the rings needs
/// that, for its sleep was announced so or its producer waits and has
/// [promised](super::Rings::fences_everywhere) it. False: do not sleep, whoever sleeps now
/// may not be woken.
pub fn fence_before_sleep(everywhere: bool) -> bool {
    sleeper(everywhere)
}

/// The sender's half; `light` if the sleeper makes up for it.
#[inline]
pub(super) fn sender(light: bool) {
    if light {
        core::sync::atomic::compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
}

/// The sleeper's half; `heavy` if senders rely on it. False: it cannot be had any
/// more, and whoever sleeps now may not be woken.
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
