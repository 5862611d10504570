//! The interest of a registration with a poll, in the terms of epoll(7).

use std::ops::{BitOr, BitOrAssign};

use toehold_stack::{Change, Readiness};

/// The events for which a registration is watched. Errors and hang-ups are told in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest(u16);

impl Interest {
    /// Data, the end of the stream, or a connection to accept (EPOLLIN).
    pub const READABLE: Interest = Interest(1);
    /// Room for data, or the end of a connection attempt (EPOLLOUT).
    pub const WRITABLE: Interest = Interest(2);
    /// Urgent data (EPOLLPRI).
    pub const PRIORITY: Interest = Interest(4);
    /// The end of the stream, told apart from data (EPOLLRDHUP).
    pub const READ_CLOSED: Interest = Interest(8);
    /// To be told once for each change, not as long as the level lasts (EPOLLET). A change is that
    /// more data or connections come, that there is room after it was missing, or that the state
    /// changes. The registration's making and changing count, too. What is told then is all that
    /// the source is ready for.
    pub const EDGE: Interest = Interest(16);
    /// To be told once, then no more until it is registered again, not even of errors
    /// (EPOLLONESHOT).
    pub const ONE_SHOT: Interest = Interest(32);
    /// Of the polls that watch the source so, and in which a thread rests, one is told of a
    /// change (EPOLLEXCLUSIVE).
    pub const EXCLUSIVE: Interest = Interest(64);

    /// A one-shot that was told: nothing is of interest.
    pub(super) const SPENT: Interest = Interest(128);

    /// An announcement of urgent data, whether or not they have come or were read (SIGURG).
    pub(crate) const ANNOUNCED: Interest = Interest(256);

    /// Interest in errors and hang-ups alone.
    pub const fn none() -> Interest {
        Interest(0)
    }

    /// Interest in the events of either.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub const fn add(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }

    const fn has(self, other: Interest) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether data to read are of interest.
    pub const fn is_readable(self) -> bool {
        self.has(Self::READABLE)
    }

    /// Whether room to write is of interest.
    pub const fn is_writable(self) -> bool {
        self.has(Self::WRITABLE)
    }

    /// Whether urgent data are of interest.
    pub const fn is_priority(self) -> bool {
        self.has(Self::PRIORITY)
    }

    /// Whether the end of the stream is of interest by itself.
    pub const fn is_read_closed(self) -> bool {
        self.has(Self::READ_CLOSED)
    }

    /// Whether it is told once for each change.
    pub const fn is_edge(self) -> bool {
        self.has(Self::EDGE)
    }

    /// Whether it is told once.
    pub const fn is_one_shot(self) -> bool {
        self.has(Self::ONE_SHOT)
    }

    /// Whether one poll of several is told.
    pub const fn is_exclusive(self) -> bool {
        self.has(Self::EXCLUSIVE)
    }

    pub(super) fn word(self) -> u32 {
        self.0.into()
    }

    pub(super) fn from_word(word: u32) -> Interest {
        Interest(word as u16)
    }

    /// Whether there may be something to tell after this change.
    #[inline]
    pub(super) fn concerns(self, change: Change) -> bool {
        if self.has(Self::SPENT) {
            return false;
        }
        let mut changes = Change::STATE;
        if self.has(Self::READABLE | Self::PRIORITY) {
            changes = changes.and(Change::DATA);
        }
        if self.is_writable() {
            changes = changes.and(Change::ROOM);
        }
        if self.has(Self::ANNOUNCED) {
            changes = changes.and(Change::URGENT);
        }
        change.is_among(changes)
    }

    /// The part of this readiness that is to be told; `None` if there is nothing to tell.
    pub fn select(self, readiness: Readiness) -> Option<Readiness> {
        let told = Readiness {
            readable: readiness.readable && self.is_readable(),
            writable: readiness.writable && self.is_writable(),
            urgent: readiness.urgent && self.is_priority(),
            read_closed: readiness.read_closed && self.is_read_closed(),
            announced: readiness.announced && self.has(Self::ANNOUNCED),
            ..readiness
        };
        (!self.has(Self::SPENT) && told != Readiness::default()).then_some(told)
    }
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        self.add(other)
    }
}

impl BitOrAssign for Interest {
    fn bitor_assign(&mut self, other: Interest) {
        *self = self.add(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_told_of_nothing() {
        let everything = Readiness {
            readable: true,
            writable: true,
            urgent: true,
            read_closed: true,
            hang_up: true,
            error: true,
            announced: true,
        };
        let all = Change::DATA
            .and(Change::ROOM)
            .and(Change::STATE)
            .and(Change::URGENT);
        assert_eq!(Interest::SPENT.select(everything), None);
        assert!(!Interest::SPENT.concerns(all));
        let told = Interest::none().select(everything);
        assert!(told.is_some_and(|told| told.hang_up && told.error && !told.readable && !told.read_closed));
        assert!(Interest::none().concerns(all) && !Interest::none().concerns(Change::DATA));
    }

    #[test]
    fn a_change_concerns_who_can_see_it() {
        let concerned = |interest: Interest| {
            [
                Change::NOTHING,
                Change::DATA,
                Change::ROOM,
                Change::STATE,
                Change::URGENT,
            ]
            .map(|change| interest.concerns(change))
        };
        assert_eq!(concerned(Interest::READABLE), [false, true, false, true, false]);
        assert_eq!(concerned(Interest::PRIORITY), [false, true, false, true, false]);
        assert_eq!(concerned(Interest::WRITABLE), [false, false, true, true, false]);
        assert_eq!(
            concerned(Interest::READ_CLOSED),
            [false, false, false, true, false]
        );
        assert_eq!(concerned(Interest::ANNOUNCED), [false, false, false, true, true]);
    }
}
