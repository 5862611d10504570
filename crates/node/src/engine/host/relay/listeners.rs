//! Listeners whose connections are carried: all connections, or those that their programs do not
//! take.

use std::collections::BTreeMap;
use std::sync::Arc;

use toehold_stack::{Event, Instant, ListenerId};

use super::carrier::{CALLERS, Carrier, LISTENERS, Token};
use super::connection::{Course, End, Relay, enter, respond};
use super::forward::Forward;
use super::standby::{Standby, Turn};
use crate::callers::Forwarded;
use crate::clock;
use crate::shard::Interest;
use crate::wait::Gone;

/// When to look again for direct connections at a forwarded listener.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// A listener whose connections are carried.
pub(super) struct Listener {
    id: ListenerId,
    forward: Arc<Forward>,
    /// Set if only connections are carried that its program does not take.
    standby: Option<Standby>,
    is_watched: bool,
    /// The connection that was connected to the program's last, which may still wait for room
    /// there.
    last: Option<Token>,
    /// The time when the listener is to be looked at again, whatever happens.
    next_turn: Option<Instant>,
}

impl Listener {
    pub(super) fn is_watched(&self) -> bool {
        self.is_watched
    }
}

impl Carrier {
    /// Carries the bytes of peers that connect to a listener from now on.
    pub(super) fn listen(&mut self, holder: u32, forward: Arc<Forward>) -> Result<(), Gone> {
        let mut shard = self.shard.enter()?;
        shard.tick();
        // No program reports that a listener is closed.
        self.listeners
            .retain(|_, listener| shard.stack.accept_queue_len(listener.id).is_ok());
        let Some(Event::Listener(id)) = shard.waiting.holders.get(holder) else {
            return Ok(());
        };
        let standby = match forward.which {
            Forwarded::All => None,
            Forwarded::Unattended => Some(Standby::new(holder, shard.now)),
        };
        let token = LISTENERS | Token::from(holder);
        let former = self.listeners.get(&token).filter(|former| former.id == id);
        let forward = former.map_or(Arc::clone(&forward), |former| {
            Arc::new(forward.and_before(&former.forward))
        });
        let listener = Listener {
            id,
            forward,
            standby,
            is_watched: former.is_some_and(|former| former.is_watched),
            last: former.and_then(|former| former.last),
            next_turn: None,
        };
        self.listeners.insert(token, listener);
        self.due.insert(token);
        Ok(())
    }

    /// Connects a peer that has connected to a listener to the program's, if it is time to.
    pub(super) fn attend(&mut self, token: Token) -> Result<Course, Gone> {
        let shard = enter(&self.shard)?;
        let Some(listener) = self.listeners.get_mut(&token) else {
            return Ok(Course::Waits);
        };
        let standby = listener.standby.as_mut();
        let turn = standby.map_or(Turn::Take, |standby| standby.turn(&shard, listener.id));
        if listener.standby.is_none() && self.direct.is_some() {
            // A peer that has found the listener before it was hidden may offer a connection yet.
            listener.next_turn = Some(shard.now.plus_nanos(LOOK_AGAIN_NS));
        }
        let is_called = listener.standby.as_ref().is_none_or(Standby::is_called);
        if is_called && !listener.is_watched && turn != Turn::Never {
            listener.is_watched = true;
            let id = listener.id;
            drop(shard);
            let watched = self.register(token, Event::Listener(id), Interest::READABLE | Interest::EDGE)?;
            return Ok(match watched {
                true => Course::GoesOn,
                // There is no room to learn of peers that connect.
                false => Course::IsOver,
            });
        }
        match turn {
            // A peer that comes then waits at the node's listener, until that is full as well.
            Turn::Take if is_connecting(&self.relays, listener.last) => Ok(Course::Waits),
            Turn::Take => {
                drop(shard);
                self.accept(token)
            }
            Turn::Until(next_turn) => {
                listener.next_turn = next_turn;
                drop(shard);
                match is_called {
                    true => self.accept_direct(token),
                    false => Ok(Course::Waits),
                }
            }
            Turn::Never => Ok(Course::IsOver),
        }
    }

    /// Connects a peer that has connected to a listener to the program's.
    fn accept(&mut self, token: Token) -> Result<Course, Gone> {
        let Some(Listener { id, forward, .. }) = self.listeners.get(&token) else {
            return Ok(Course::Waits);
        };
        let mut shard = enter(&self.shard)?;
        let id = match shard.stack.accept(*id) {
            Ok(id) => id,
            // Or it is closed.
            Err(_) => {
                drop(shard);
                return self.accept_direct(token);
            }
        };
        shard.make_inline(id);
        shard.waiting.holders.count_caller(true);
        let ends = (shard.stack.local_addr(id), shard.stack.peer_addr(id));
        respond(&self.shard, &mut shard);
        drop(shard);
        let caller = match ends {
            (Ok(local), Ok(peer)) => Forward::call(forward, local, peer).ok(),
            _ => None,
        };
        match caller {
            Some(caller) => {
                let number = CALLERS | Token::from(self.callers);
                self.callers = self.callers.wrapping_add(1);
                if let Some(listener) = self.listeners.get_mut(&token) {
                    listener.last = Some(number);
                }
                self.watch(number, Relay::new(id, End::Caller(caller)))?;
            }
            // The peer is reset, as it would be without a listener.
            None => {
                let mut shard = enter(&self.shard)?;
                shard.waiting.holders.count_caller(false);
                let _ = shard.stack.abort(id);
                respond(&self.shard, &mut shard);
            }
        }
        Ok(Course::GoesOn)
    }

    /// Connects a direct connection that waits at a listener to the program's: one that was offered
    /// before the engine forwarded the listener.
    fn accept_direct(&self, token: Token) -> Result<Course, Gone> {
        let (Some(listener), Some((banks, alarm))) = (self.listeners.get(&token), &self.direct) else {
            return Ok(Course::Waits);
        };
        let id = self.shard.enter()?.direct_listener(listener.id);
        let Some(offered) = id.and_then(|id| banks.take_offered(id)) else {
            return Ok(Course::Waits);
        };
        let [local, peer] = offered.ends();
        match Forward::call(&listener.forward, local, peer) {
            Ok(caller) => {
                // Without a thread the connection waits for the next one.
                let _ = banks.forward(offered, caller, alarm);
            }
            Err(_) => banks.refuse_offered(&offered),
        }
        Ok(Course::GoesOn)
    }

    /// Notes that something has happened to a caller that was connected to a listener. Perhaps
    /// there is room for the next one.
    pub(super) fn note_room(&mut self, caller: Token) {
        for (token, listener) in &mut self.listeners {
            if listener.last == Some(caller) && !is_connecting(&self.relays, Some(caller)) {
                listener.last = None;
                self.due.insert(*token);
            }
        }
    }

    /// Takes no more connections from a listener.
    pub(super) fn leave(&mut self, token: Token) -> Result<(), Gone> {
        let Some(Listener { id, .. }) = self.listeners.remove(&token) else {
            return Ok(());
        };
        self.deregister(Event::Listener(id))?;
        self.close_idle_poll()
    }

    /// When a listener is to be looked at next, whatever happens.
    pub(super) fn next_turn(&self) -> Option<Instant> {
        self.listeners
            .values()
            .filter_map(|listener| listener.next_turn)
            .min()
    }

    /// Notes which listeners are to be looked at by now.
    pub(super) fn take_turns(&mut self) {
        let now = clock::now();
        for (token, listener) in &mut self.listeners {
            if listener.next_turn.take_if(|at| *at <= now).is_some() {
                self.due.insert(*token);
            }
        }
        self.sweep(now);
    }
}

/// Whether a caller waits for room at the program's listener.
fn is_connecting(relays: &BTreeMap<Token, Relay>, caller: Option<Token>) -> bool {
    let relay = caller.and_then(|caller| relays.get(&caller));
    relay.is_some_and(|relay| relay.end.is_connecting())
}
