//! Adding, changing and ending registrations without the lease.

use std::sync::Arc;

use toehold_node::Interest;
use toehold_node::direct::Direct;
use toehold_shm::direct::{ListenerId, unwatch, watch};

use super::source::{DirectWatched, Identity, Source};
use super::{DirectSet, State};
use crate::listener::Listener;
use crate::poll::Token;
use crate::stream::Connected;

impl DirectSet {
    /// Watches something. Returns `false` if it is registered already.
    pub(in crate::poll) fn add(
        &self,
        identity: Identity,
        watched: DirectWatched,
        token: Token,
        interest: Interest,
    ) -> bool {
        let mut state = self.lock();
        if find(&state, identity).is_some() {
            return false;
        }
        state.last_key += 1;
        let key = state.last_key;
        match &watched {
            DirectWatched::Stream(stream) => self.add_stream(&mut state, key, stream.upgrade()),
            DirectWatched::Listener { id, .. } => self.add_listener(&mut state, key, *id, interest),
            DirectWatched::Poll(_) => state.nested.push(key),
            DirectWatched::Waker(_) => {}
        }
        let place = match &watched {
            DirectWatched::Stream(stream) => stream.upgrade().as_deref().and_then(place_of),
            _ => None,
        };
        let source = Source {
            watched,
            place,
            identity,
            token,
            interest,
            is_spent: false,
            is_queued: false,
        };
        state.sources.insert(key, source);
        state.by_identity.insert(identity, key);
        state.queue(key);
        drop(state);
        self.rouse();
        true
    }

    fn add_stream(&self, state: &mut State, key: u64, stream: Option<Arc<Connected>>) {
        let Some(Connected::Direct(connection)) = stream.as_deref() else {
            return;
        };
        let bank = connection.bank();
        let place = (bank.slot(), connection.id().number);
        state.by_connection.entry(place).or_default().push(key);
        let known = state.banks.iter_mut().find(|(known, _)| Arc::ptr_eq(known, bank));
        match known {
            Some((_, uses)) => *uses += 1,
            None => state.banks.push((Arc::clone(bank), 1)),
        }
    }

    fn add_listener(&self, state: &mut State, key: u64, id: Option<ListenerId>, interest: Interest) {
        if let Some(id) = id {
            state.by_listener.entry(id.number).or_default().push(key);
            watch(&self.waiters, id.number, self.waiter, interest.is_exclusive());
        }
    }

    /// Changes the events and the token of a registration. Returns `false` if the source is not
    /// registered.
    pub(in crate::poll) fn change(&self, identity: Identity, token: Token, interest: Interest) -> bool {
        let mut state = self.lock();
        let Some(key) = find(&state, identity) else {
            return false;
        };
        if let Some(source) = state.sources.get_mut(&key) {
            (source.token, source.interest, source.is_spent) = (token, interest, false);
        }
        state.queue(key);
        drop(state);
        self.rouse();
        true
    }

    /// Has a source looked at again, and a thread that waits as well.
    pub(in crate::poll) fn look_again(&self, identity: Identity) {
        let mut state = self.lock();
        if let Some(key) = find(&state, identity) {
            state.queue(key);
        }
        drop(state);
        self.rouse();
    }

    /// Ends watching something. Returns `false` if it is not registered.
    pub(in crate::poll) fn end(&self, identity: Identity) -> bool {
        let mut state = self.lock();
        match find(&state, identity) {
            Some(key) => {
                self.remove(&mut state, key);
                true
            }
            None => false,
        }
    }

    pub(super) fn remove(&self, state: &mut State, key: u64) {
        let Some(source) = state.sources.remove(&key) else {
            return;
        };
        match &source.watched {
            DirectWatched::Stream(stream) => self.remove_stream(state, key, (source.place, stream.upgrade())),
            DirectWatched::Listener { id, .. } => self.remove_listener(state, key, *id),
            DirectWatched::Poll(_) => state.nested.retain(|nested| *nested != key),
            DirectWatched::Waker(_) => {}
        }
        // A key that is queued leads nowhere from now on.
        state.by_identity.remove(&source.identity);
    }

    fn remove_stream(
        &self,
        state: &mut State,
        key: u64,
        (place, stream): (Option<(u16, u16)>, Option<Arc<Connected>>),
    ) {
        let Some((slot, number)) = place else { return };
        let keys = state.by_connection.get_mut(&(slot, number));
        let is_last = keys.is_some_and(|keys| {
            keys.retain(|known| *known != key);
            keys.is_empty()
        });
        if is_last {
            state.by_connection.remove(&(slot, number));
        }
        if let Some(at) = state.banks.iter().position(|(bank, _)| bank.slot() == slot) {
            state.banks[at].1 -= 1;
            if state.banks[at].1 == 0 {
                state.banks.swap_remove(at);
            }
        }
        if is_last
            && let Some(Connected::Direct(connection)) = stream.as_deref()
            && let Ok(call) = connection.enter()
        {
            let _ = call.end.disarm(call.thread, self.waiter);
        }
    }

    fn remove_listener(&self, state: &mut State, key: u64, id: Option<ListenerId>) {
        let Some(id) = id else { return };
        if let Some(keys) = state.by_listener.get_mut(&id.number) {
            keys.retain(|known| *known != key);
            if keys.is_empty() {
                state.by_listener.remove(&id.number);
                unwatch(&self.waiters, id.number, self.waiter);
            }
        }
        if state.by_listener.is_empty() {
            state.accepting = Arc::default();
        }
    }

    /// Looks up anew how peers know the listeners. `moved` is told of each that has been published
    /// since (`true`), or is no more, with its name, token and interest.
    pub(in crate::poll) fn refresh_listeners(
        &self,
        direct: &Direct,
        mut moved: impl FnMut(&Arc<Listener>, u32, (Token, Interest), bool),
    ) {
        let mut state = self.lock();
        let keys: Vec<u64> = state.sources.keys().copied().collect();
        for key in keys {
            let Some(source) = state.sources.get(&key) else {
                continue;
            };
            let DirectWatched::Listener { listener, id: former } = &source.watched else {
                continue;
            };
            let (former, Some(listener)) = (*former, listener.upgrade()) else {
                continue;
            };
            let present = listener.direct_id(direct);
            if present == former {
                continue;
            }
            let (name, asked) = (source.identity.name, (source.token, source.interest));
            self.remove_listener(&mut state, key, former);
            self.add_listener(&mut state, key, present, asked.1);
            if let Some(source) = state.sources.get_mut(&key)
                && let DirectWatched::Listener { id, .. } = &mut source.watched
            {
                *id = present;
            }
            state.queue(key);
            if former.is_some() != present.is_some() {
                moved(&listener, name, asked, present.is_some());
            }
        }
    }
}

fn find(state: &State, identity: Identity) -> Option<u64> {
    state.by_identity.get(&identity).copied()
}

/// Slot of the bank and number of a direct connection.
fn place_of(stream: &Connected) -> Option<(u16, u16)> {
    match stream {
        Connected::Direct(connection) => Some((connection.bank().slot(), connection.id().number)),
        Connected::Tcp(_) => None,
    }
}
