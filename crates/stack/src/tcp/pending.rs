//! A listener's count of connections that Fast Open opened and whose handshake is not done.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::time::Instant;

/// Time for which a connection that its peer reset still counts, in seconds. A host that answers a
/// forged SYN with a reset must not make room for the next SYN.
//= RFC 7413 §5.1 (resets must not let an attacker around the limit of pending requests)
const RESET_COUNTS_S: u32 = 60;

/// A listener's count of connections whose handshake is not done.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Pending {
    /// Most pending connections; 0: Fast Open is off.
    pub(super) limit: u32,
    count: u32,
    /// Pending connections that their peers reset lately.
    resets: u32,
    /// When the last reset arrived, in seconds.
    reset_at_s: u32,
}

impl Pending {
    /// Clears the count.
    pub(super) fn forget(&mut self) {
        self.count = 0;
    }

    /// Counts one more pending connection.
    pub(super) fn begin(&mut self) {
        self.count = self.count.wrapping_add(1);
    }

    /// Counts the end of a pending connection.
    pub(super) fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Sets the most pending connections; 0 turns Fast Open off.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.count == 0
    }

    pub(super) fn is_full(&self, now: Instant) -> bool {
        let lately = seconds(now).wrapping_sub(self.reset_at_s) < RESET_COUNTS_S;
        let resets = if lately { self.resets } else { 0 };
        self.count.saturating_add(resets) >= self.limit
    }

    pub(super) fn note_reset(&mut self, now: Instant) {
        let now = seconds(now);
        if now.wrapping_sub(self.reset_at_s) >= RESET_COUNTS_S {
            self.resets = 0;
        }
        self.resets = self.resets.saturating_add(1);
        self.reset_at_s = now;
    }
}

fn seconds(now: Instant) -> u32 {
    (now.0 / 1_000_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_counts_against_limit_for_a_minute() {
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let mut pending = Pending {
            limit: 2,
            ..Pending::default()
        };
        assert!(!pending.is_full(at(1000)));
        pending.note_reset(at(1000));
        assert!(!pending.is_full(at(1000)));
        pending.note_reset(at(1030));
        assert!(pending.is_full(at(1089)));
        assert!(!pending.is_full(at(1090)));
        pending.note_reset(at(1090));
        assert!(!pending.is_full(at(1091)));
    }
}
