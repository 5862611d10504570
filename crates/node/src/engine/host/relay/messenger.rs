//! Signals that tell of urgent data (SIGURG). The kernel sends one to the owner of a connection,
//! and knows neither a node's connections nor what they get. So the program makes a pair of Unix
//! sockets, of which the first has the connection's owner, and leaves both to the engine. Whenever
//! the peer announces urgent data, the engine sends an urgent byte from the second to the first.
//! The kernel then signals the owner as always. The kernel knows which process may signal which
//! other one. The connection's own descriptor is as it was, and the program need not be in any
//! call.

use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendFlags};
use toehold_stack::{ConnectionId, Event, Instant};

use super::carrier::{Carrier, MESSENGERS, Token};
use super::connection::{Course, enter, respond};
use crate::clock;
use crate::shard::Interest;
use crate::wait::Gone;

/// How often the engine looks which connections are closed: no program reports that.
const SWEEP_NS: u64 = 1_000_000_000;

/// A pair of sockets that makes the kernel signal the owner of a connection.
#[derive(Debug)]
pub(in crate::engine::host) struct Messenger {
    owned: OwnedFd,
    other: OwnedFd,
}

impl Messenger {
    /// Makes a messenger of two connected Unix sockets, of which the first has the owner.
    pub(in crate::engine::host) fn new([owned, other]: [OwnedFd; 2]) -> Messenger {
        Messenger { owned, other }
    }

    pub(in crate::engine::host) fn signal(&self) {
        // A kernel that has no urgent data there signals no process; and nothing stays behind.
        let _ = rustix::net::send(
            &self.other,
            b"!",
            SendFlags::OOB | SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
        let _ = rustix::net::recv(&self.owned, &mut [0; 1][..], RecvFlags::OOB | RecvFlags::DONTWAIT);
    }
}

/// A connection that has an owner.
pub(super) struct Owned {
    id: ConnectionId,
    messenger: Messenger,
}

impl Carrier {
    /// Has the owner of a holder's connection signalled from now on, and no former one.
    pub(super) fn own(&mut self, holder: u32, messenger: Messenger) -> Result<(), Gone> {
        let shard = enter(&self.shard)?;
        let Some(Event::Connection(id)) = shard.waiting.holders.get(holder) else {
            return Ok(());
        };
        let token = MESSENGERS | Token::from(holder);
        if let Some(present) = self.owned.get_mut(&token).filter(|present| present.id == id) {
            present.messenger = messenger;
            return Ok(());
        }
        drop(shard);
        let changes = Interest::ANNOUNCED | Interest::EDGE;
        if self.register(token, Event::Connection(id), changes)? {
            self.owned.insert(token, Owned { id, messenger });
            self.next_sweep.get_or_insert(clock::now().plus_nanos(SWEEP_NS));
            return Ok(());
        }
        // There is no room to learn of announcements.
        let mut shard = enter(&self.shard)?;
        let _ = shard.stack.set_owned(id, false);
        respond(&self.shard, &mut shard);
        Ok(())
    }

    /// Signals the owner of a connection, if urgent data were announced.
    pub(super) fn announce(&mut self, token: Token) -> Result<Course, Gone> {
        let Some(Owned { id, messenger }) = self.owned.get(&token) else {
            return Ok(Course::Waits);
        };
        let mut shard = enter(&self.shard)?;
        let Ok(announced) = shard.stack.take_announcement(*id) else {
            // It is closed, or has another name since the engine carries its bytes.
            return Ok(Course::IsOver);
        };
        if announced {
            // A program that is about to read past the mark is interrupted before that.
            messenger.signal();
            respond(&self.shard, &mut shard);
        }
        Ok(Course::Waits)
    }

    /// Signals no owner any more.
    pub(super) fn disown(&mut self, token: Token) -> Result<(), Gone> {
        let Some(Owned { id, .. }) = self.owned.remove(&token) else {
            return Ok(());
        };
        self.deregister(Event::Connection(id))?;
        self.close_idle_poll()
    }

    /// When to look next which connections are closed.
    pub(super) fn next_sweep(&self) -> Option<Instant> {
        self.next_sweep
    }

    /// Notes that all are to be looked at, if it is time to.
    pub(super) fn sweep(&mut self, now: Instant) {
        if self.next_sweep.take_if(|at| *at <= now).is_some() && !self.owned.is_empty() {
            self.due.extend(self.owned.keys());
            self.next_sweep = Some(now.plus_nanos(SWEEP_NS));
        }
    }
}
