//! A registration without the lease: the watched source, and the events to report.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use toehold_node::Interest;
use toehold_node::direct::Direct;
use toehold_shm::direct::{ListenerId, ThreadNumber, WaiterNumber, Wish};
use toehold_stack::Readiness;

use crate::listener::Listener;
use crate::poll::Token;
use crate::poll::set::Set;
use crate::stream::{Connected, direct};

/// A source that is watched without the lease.
pub(in crate::poll) enum DirectWatched {
    Stream(Weak<Connected>),
    Listener {
        listener: Weak<Listener>,
        /// The id by which peers know the listener; `None` if it takes connections over TCP only,
        /// and the node's shards tell of them.
        id: Option<ListenerId>,
    },
    /// A poll in this one.
    Poll(Weak<Set>),
    /// A waker, which is set until it is told of.
    Waker(Arc<AtomicBool>),
}

/// Tells sources from one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::poll) struct Identity {
    pub(in crate::poll) address: usize,
    pub(in crate::poll) name: u32,
}

pub(super) struct Source {
    pub(super) watched: DirectWatched,
    /// Slot of the bank and number of a connection.
    pub(super) place: Option<(u16, u16)>,
    pub(super) identity: Identity,
    pub(super) token: Token,
    pub(super) interest: Interest,
    /// The source was reported, and is reported once.
    pub(super) is_spent: bool,
    pub(super) is_queued: bool,
}

/// The result of a look at a source.
pub(super) enum SourceLook {
    Nothing,
    Ready(Readiness),
    /// The program has dropped the source.
    Dropped,
}

impl Source {
    /// Looks at the source. If there is nothing to tell, the waiter is told when there is.
    pub(super) fn look(&self, direct: &Direct, thread: ThreadNumber, waiter: WaiterNumber) -> SourceLook {
        let interest = self.interest;
        match &self.watched {
            DirectWatched::Stream(stream) => match stream.upgrade() {
                None => SourceLook::Dropped,
                Some(_) if self.is_spent => SourceLook::Nothing,
                Some(stream) => look_at_stream(&stream, interest, thread, waiter),
            },
            _ => self.peek(direct),
        }
    }

    /// Looks at the source, and leaves it as it is.
    pub(super) fn peek(&self, direct: &Direct) -> SourceLook {
        let readable = |is: bool| Readiness {
            readable: is,
            ..Readiness::default()
        };
        let readiness = match &self.watched {
            DirectWatched::Stream(stream) => match stream.upgrade().as_deref() {
                Some(Connected::Direct(connection)) => connection.readiness().unwrap_or(LOST),
                _ => return SourceLook::Dropped,
            },
            DirectWatched::Listener { listener, .. } => match listener.upgrade() {
                Some(listener) => readable(listener.has_direct()),
                None => return SourceLook::Dropped,
            },
            DirectWatched::Poll(set) => match set.upgrade() {
                Some(set) => readable(set.direct.as_ref().is_some_and(|set| set.is_ready(direct))),
                None => return SourceLook::Dropped,
            },
            DirectWatched::Waker(is_set) => readable(is_set.load(Relaxed)),
        };
        match self.interest.select(readiness) {
            Some(told) if !self.is_spent => SourceLook::Ready(told),
            _ => SourceLook::Nothing,
        }
    }

    /// Notes that the source was told of. Returns whether it is to be looked at again without being
    /// asked to.
    pub(super) fn told(&mut self) -> bool {
        if let DirectWatched::Waker(is_set) = &self.watched {
            is_set.store(false, Relaxed);
            return false;
        }
        self.is_spent = self.interest.is_one_shot();
        !self.is_spent && !self.interest.is_edge()
    }
}

/// The readiness of a connection whose node is gone.
const LOST: Readiness = Readiness {
    readable: true,
    writable: true,
    urgent: false,
    read_closed: true,
    hang_up: true,
    error: true,
    announced: false,
};

fn look_at_stream(
    stream: &Connected,
    interest: Interest,
    thread: ThreadNumber,
    waiter: WaiterNumber,
) -> SourceLook {
    let Connected::Direct(connection) = stream else {
        return SourceLook::Dropped;
    };
    let Ok(call) = connection.enter() else {
        return interest
            .select(LOST)
            .map_or(SourceLook::Nothing, SourceLook::Ready);
    };
    let low = u64::from(connection.description().low_water());
    let present = || direct::look(&call, connection).readiness(low);
    if !interest.is_edge()
        && let Some(told) = interest.select(present())
    {
        return SourceLook::Ready(told);
    }
    let wish = Wish {
        read: (interest.is_readable() || interest.is_priority()).then_some(low),
        edge: interest.is_edge(),
        room: interest.is_writable() && !call.end.look().has_room,
    };
    if call.end.arm(thread, waiter, wish).is_err() {
        // It cannot be told: it is looked at again by each call.
        return interest
            .select(present())
            .map_or(SourceLook::Nothing, SourceLook::Ready);
    }
    interest
        .select(present())
        .map_or(SourceLook::Nothing, SourceLook::Ready)
}
