//! Rarely used facts about a connection, kept outside of its control block.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Tcp;
use crate::socket::SocketError;
use crate::time::Instant;

/// Answers a second of a connection to unexpected segments without data.
const STRAYS_A_SECOND: u8 = 32;

/// Facts about a connection that only unusual segments touch. All zeroes: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Cold {
    /// The millisecond, modulo 2³², of `soft_error`.
    soft_error_at: u32,
    /// The second, modulo 2¹⁶, in which `strays` counts.
    second: u16,
    /// Unexpected segments without data that were answered in that second.
    strays: u8,
    /// The last error that the network reported about the path, a [`SocketError`]; 0: none.
    soft_error: u8,
    /// Facts about Fast Open, see `fast_open_client`.
    pub(super) fast_open: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Cold>() == 12);

impl Cold {
    /// Whether one more unexpected segment is answered. The bound prevents that two ends answer
    /// each other's unexpected segments forever.
    fn answers_stray(&mut self, now: Instant) -> bool {
        let second = (now.0 / 1_000_000_000) as u16;
        if self.second != second {
            (self.second, self.strays) = (second, 0);
        }
        let answers = self.strays < STRAYS_A_SECOND;
        self.strays += u8::from(answers);
        answers
    }
}

impl Tcp {
    /// Clears the facts about a control block's former connection.
    pub(super) fn forget_cold(&mut self, index: u32) {
        self.cold[index as usize] = Cold::default();
    }

    /// Whether a connection answers one more unexpected segment without data.
    pub(super) fn answers_stray(&mut self, now: Instant, index: u32) -> bool {
        self.cold[index as usize].answers_stray(now)
    }

    /// Notes an error that may be temporary. It is the reason if the connection times out.
    //= RFC 1122 §4.2.3.9 (soft errors: the connection goes on, and the information is kept)
    pub(super) fn note_soft_error(&mut self, now: Instant, index: u32, error: SocketError) {
        let cold = &mut self.cold[index as usize];
        cold.soft_error = error as u8;
        cold.soft_error_at = now.millis() as u32;
    }

    /// The error of a connection that ends without an answer. It is the network's last error since
    /// the peer was heard, or a timeout.
    pub(super) fn timeout_error(&self, index: u32) -> SocketError {
        self.soft_error(index).unwrap_or(SocketError::TimedOut)
    }

    /// The network's last error since the peer was heard.
    fn soft_error(&self, index: u32) -> Option<SocketError> {
        let cold = &self.cold[index as usize];
        let heard_at = self.pcbs[index].last_received.millis() as u32;
        let is_news = cold.soft_error_at.wrapping_sub(heard_at) as i32 >= 0;
        SocketError::from_code(cold.soft_error).filter(|_| is_news)
    }

    /// Takes the network's last error since the peer was heard.
    //= RFC 1122 §4.2.3.9 (it should be made available to the program)
    pub(crate) fn take_soft_error(&mut self, index: u32) -> Option<SocketError> {
        let error = self.soft_error(index);
        self.cold[index as usize].soft_error = 0;
        error
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
