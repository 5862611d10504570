//! When the engine takes a connection from a listener whose program may accept it on the node. The
//! connection has to have waited, and no thread may ever have waited for it there. A program that
//! waits for the kernel's connections past the library is told of no others.

use toehold_stack::{ConnectionId, Instant, ListenerId};

use crate::shard::Shard;

/// How long a program has to say first how it waits. Then it is looked at again after twice
/// that, and so on.
const FIRST_LOOK_NS: u64 = 100_000_000;

/// Looks at most. After them the listener counts as one that no peer connects to.
const LOOKS: u32 = 10;

/// How long the first connection waits that no thread waits for.
const PATIENCE_NS: u64 = 10_000_000;

/// The next step at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// No step before that time, unless another connection comes.
    Until(Option<Instant>),
    /// To take a connection.
    Take,
    /// No step any more: its program is told on the node, or it is closed.
    Never,
}

/// A listener whose connections the engine takes if no program does.
pub(super) struct Standby {
    holder: u32,
    /// The number of looks so far.
    looks: u32,
    next_look: Instant,
    /// The connection that waits first, and since when.
    first: Option<(ConnectionId, Instant)>,
    patience_ns: u64,
}

impl Standby {
    pub(super) fn new(holder: u32, now: Instant) -> Standby {
        Standby {
            holder,
            looks: 0,
            next_look: now.plus_nanos(FIRST_LOOK_NS),
            first: None,
            patience_ns: PATIENCE_NS,
        }
    }

    /// Whether the program has had the time to say how it waits. From now on another process is to
    /// be told of connections.
    pub(super) fn is_called(&self) -> bool {
        self.looks > 0
    }

    pub(super) fn turn(&mut self, shard: &Shard, id: ListenerId) -> Turn {
        let waits = match shard.stack.first_waiting(id) {
            Ok(waits) if !shard.waiting.holders.is_attended(self.holder) => waits,
            _ => return Turn::Never,
        };
        self.decide(waits, shard.now)
    }

    fn decide(&mut self, waits: Option<ConnectionId>, now: Instant) -> Turn {
        if self.looks <= LOOKS && now >= self.next_look {
            self.looks += 1;
            self.next_look = now.plus_nanos(FIRST_LOOK_NS << self.looks);
        }
        if !self.is_called() {
            return Turn::Until(Some(self.next_look));
        }
        let Some(waits) = waits else {
            self.first = None;
            return Turn::Until((self.looks <= LOOKS).then_some(self.next_look));
        };
        // A program that takes connections without being told is not helped by being told.
        let since = match self.first {
            Some((first, since)) if first == waits => since,
            _ => now,
        };
        let until = since.plus_nanos(self.patience_ns);
        if now < until {
            self.first = Some((waits, since));
            return Turn::Until(Some(until));
        }
        self.first = None;
        self.patience_ns = 0;
        Turn::Take
    }
}

#[cfg(test)]
mod tests {
    use toehold_stack::Event;

    use super::*;

    fn connection(number: u64) -> Option<ConnectionId> {
        match Event::from_word(number) {
            Event::Connection(id) => Some(id),
            Event::Listener(_) => unreachable!(),
        }
    }

    fn at(ns: u64) -> Instant {
        Instant(ns)
    }

    #[test]
    fn a_connection_is_taken_when_it_has_waited_and_later_ones_at_once() {
        let mut standby = Standby::new(0, at(0));
        let [one, other] = [1, 2].map(connection);
        let called = at(FIRST_LOOK_NS);
        assert_eq!(standby.decide(one, at(1)), Turn::Until(Some(called)));
        let taken = called.plus_nanos(PATIENCE_NS);
        assert_eq!(standby.decide(one, called), Turn::Until(Some(taken)));
        assert_eq!(standby.decide(one, taken), Turn::Take);
        assert_eq!(standby.decide(other, taken), Turn::Take);
    }

    #[test]
    fn who_accepts_without_being_told_keeps_its_connections() {
        let mut standby = Standby::new(0, at(0));
        let mut now = at(FIRST_LOOK_NS);
        for number in 1..100 {
            assert!(matches!(
                standby.decide(connection(number), now),
                Turn::Until(Some(_))
            ));
            now = now.plus_nanos(PATIENCE_NS - 1);
        }
    }

    #[test]
    fn a_listener_that_nobody_connects_to_costs_nothing_after_a_while() {
        let mut standby = Standby::new(0, at(0));
        let mut looks = 0;
        let mut now = at(0);
        while let Turn::Until(Some(next)) = standby.decide(None, now) {
            assert!(next > now);
            (now, looks) = (next, looks + 1);
        }
        assert_eq!(looks, LOOKS + 1);
    }
}
