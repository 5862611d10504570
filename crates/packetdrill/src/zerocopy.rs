//! Reports about sends with MSG_ZEROCOPY.
//!
//! The stack copies what it is given, and a report says so. What a script can
//! see is when reports come, how they are numbered and how they are merged.

use core::ffi::c_int;
use std::collections::VecDeque;

use libc::{sockaddr_in, sockaddr_in6};

/// A range of sends whose bytes are not needed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// Number of the first send.
    pub(crate) first: u32,
    /// Number of the last send.
    pub(crate) last: u32,
}

/// A report in the form of `sock_extended_err`, which says that the bytes were copied. The address
/// of an offender follows, which is empty.
pub(crate) fn extended_error(report: Report, domain: c_int) -> Vec<u8> {
    const ORIGIN_ZEROCOPY: u8 = 5;
    const CODE_COPIED: u8 = 1;
    let offender = if domain == libc::AF_INET {
        size_of::<sockaddr_in>()
    } else {
        size_of::<sockaddr_in6>()
    };
    let mut bytes = vec![0; 16 + offender];
    bytes[4] = ORIGIN_ZEROCOPY;
    bytes[6] = CODE_COPIED;
    bytes[8..12].copy_from_slice(&report.first.to_ne_bytes());
    bytes[12..16].copy_from_slice(&report.last.to_ne_bytes());
    bytes
}

/// The numbered sends of a socket.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    /// Whether the program asked for reports (SO_ZEROCOPY).
    pub(crate) wanted: bool,
    next: u32,
    /// Number of a send, and how many bytes of the stream its end is behind the beginning.
    pending: VecDeque<(u32, u64)>,
    ready: VecDeque<Report>,
    reported: u64,
}

impl Completions {
    /// The settings that an accepted socket takes over from its listener.
    pub(crate) fn inherited(&self) -> Self {
        Self {
            wanted: self.wanted,
            ..Self::default()
        }
    }

    /// Numbers a send that ends at this byte of the stream.
    pub(crate) fn add(&mut self, end: u64) {
        self.pending.push_back((self.next, end));
        self.next = self.next.wrapping_add(1);
    }

    /// The peer has acknowledged this many bytes of the stream.
    pub(crate) fn acknowledged(&mut self, bytes: u64) {
        while let Some(&(number, end)) = self.pending.front()
            && end <= bytes
        {
            self.pending.pop_front();
            self.reported += 1;
            match self.ready.back_mut() {
                Some(report) if report.last.wrapping_add(1) == number => report.last = number,
                _ => self.ready.push_back(Report {
                    first: number,
                    last: number,
                }),
            }
        }
    }

    /// Takes the oldest report.
    pub(crate) fn take(&mut self) -> Option<Report> {
        self.ready.pop_front()
    }

    /// Whether a report waits.
    pub(crate) fn is_reported(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many sends have been reported.
    pub(crate) fn reports(&self) -> u64 {
        self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_sends_are_reported_together() {
        let mut completions = Completions::default();
        for end in [10, 20, 30] {
            completions.add(end);
        }
        completions.acknowledged(5);
        assert!(!completions.is_reported());
        completions.acknowledged(25);
        assert_eq!(completions.take(), Some(Report { first: 0, last: 1 }));
        completions.acknowledged(30);
        assert_eq!(completions.take(), Some(Report { first: 2, last: 2 }));
        assert_eq!(completions.take(), None);
    }
}
