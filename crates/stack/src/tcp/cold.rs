//! Rarely used facts about a connection, kept outside of its control block.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pcb::Pcb;
use crate::socket::SocketError;
use crate::time::Instant;

/// Answers a second of a connection to unexpected segments without data.
const STRAYS_A_SECOND: u8 = 32;

/// Facts about a connection that only unusual segments touch. All zeroes: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Cold {
    /// The millisecond, modulo 2³², of `soft_error`.
    soft_error_at: u32,
    /// The second, modulo 2¹⁶, in which `strays` counts.
    second: u16,
    /// Unexpected segments without data that were answered in that second.
    strays: u8,
    /// The last error that the network reported about the path, a [`SocketError`]; 0: none.
    soft_error: u8,
    /// Facts about Fast Open, see `fast_open_client`.
    fast_open: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Cold>() == 12);

impl Cold {
    /// Whether one more unexpected segment is answered. The bound prevents that two ends answer
    /// each other's unexpected segments forever.
    pub(super) fn answers_stray(&mut self, now: Instant) -> bool {
        let second = (now.0 / 1_000_000_000) as u16;
        if self.second != second {
            (self.second, self.strays) = (second, 0);
        }
        let answers = self.strays < STRAYS_A_SECOND;
        self.strays += u8::from(answers);
        answers
    }

    /// Notes an error that may be temporary. It is the reason if the connection times out.
    //= RFC 1122 §4.2.3.9 (soft errors: the connection goes on, and the information is kept)
    pub(super) fn note_soft_error(&mut self, now: Instant, error: SocketError) {
        self.soft_error = error as u8;
        self.soft_error_at = now.millis() as u32;
    }

    /// The error of a connection that ends without an answer. It is the network's last error since
    /// the peer was heard, or a timeout.
    pub(super) fn timeout_error(&self, pcb: &Pcb) -> SocketError {
        self.soft_error(pcb).unwrap_or(SocketError::TimedOut)
    }

    /// The network's last error since the peer was heard.
    fn soft_error(&self, pcb: &Pcb) -> Option<SocketError> {
        let heard_at = pcb.last_received.millis() as u32;
        let is_news = self.soft_error_at.wrapping_sub(heard_at) as i32 >= 0;
        SocketError::from_code(self.soft_error).filter(|_| is_news)
    }

    /// Takes the network's last error since the peer was heard.
    //= RFC 1122 §4.2.3.9 (it should be made available to the program)
    pub(crate) fn take_soft_error(&mut self, pcb: &Pcb) -> Option<SocketError> {
        let error = self.soft_error(pcb);
        self.soft_error = 0;
        error
    }

    /// Facts about Fast Open, see `fast_open_client`.
    pub(super) fn fast_open(&self) -> u16 {
        self.fast_open
    }

    /// Notes facts about Fast Open.
    pub(super) fn set_fast_open(&mut self, bits: u16) {
        self.fast_open |= bits;
    }

    /// Forgets facts about Fast Open.
    pub(super) fn clear_fast_open(&mut self, bits: u16) {
        self.fast_open &= !bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keepalive probes of a peer arrive a second apart, and each is answered.
    #[test]
    fn stray_beyond_limit_is_answered_in_next_second() {
        let mut cold = Cold::default();
        let second = |n: u64| Instant(n * 1_000_000_000);
        for _ in 0..STRAYS_A_SECOND {
            assert!(cold.answers_stray(second(7)));
        }
        assert!(!cold.answers_stray(second(7)));
        for n in 8..200_000 {
            assert!(cold.answers_stray(second(n)), "in second {n}");
        }
    }
}
