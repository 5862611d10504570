//! The thread that carries the bytes of a shard's connections.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc::Sender;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::Shutdown;
use toehold_stack::{Event, Instant};

use super::connection::{Course, End, Relay, enter, respond};
use super::listeners::Listener;
use super::messenger::Owned;
use super::{Order, Orders};
use crate::clock;
use crate::engine::host::direct::Banks;
use crate::engine::host::ends::Lent;
use crate::shard::{Interest, Shard, Subscription, Told};
use crate::shards::OneShard;
use crate::wait::{Beside, Glance, Gone, Operation, SpinBudget};

/// Bytes that are carried in one go.
const AT_ONCE: usize = 64 << 10;

/// Descriptors of which one look learns.
const EVENTS: usize = 64;

/// The number of an end, a listener or an owner in this thread.
pub(super) type Token = u64;

/// The token of the doorbell among the descriptors.
const BELL: Token = Token::MAX;

/// The first token of a connection of a listener. Those of holders' connections are the holders'
/// numbers.
pub(super) const CALLERS: Token = 1 << 32;

/// The first token of a listener, whose tokens are their holders' numbers from here on.
pub(super) const LISTENERS: Token = 1 << 33;

/// The first token of a connection whose owner is signalled.
pub(super) const MESSENGERS: Token = 1 << 34;

/// Carries the bytes of a shard's connections.
pub(super) struct Carrier {
    pub(super) shard: OneShard,
    /// The node's direct connections, and the channel that is told if the thread that carries them
    /// ends.
    pub(super) direct: Option<(Arc<Banks>, Sender<()>)>,
    orders: Arc<Orders>,
    /// The epoll of the ends and the doorbell.
    descriptors: OwnedFd,
    /// The poll that watches the connections, while there are any.
    pub(super) poll: Option<u32>,
    pub(super) relays: BTreeMap<Token, Relay>,
    pub(super) listeners: BTreeMap<Token, Listener>,
    /// Connections whose owners are signalled, and when to look which of them are closed.
    pub(super) owned: BTreeMap<Token, Owned>,
    pub(super) next_sweep: Option<Instant>,
    /// The tokens to which something may have happened.
    pub(super) due: BTreeSet<Token>,
    /// Connections of listeners so far.
    pub(super) callers: u32,
    spin: SpinBudget,
    buffer: Vec<u8>,
}

impl Carrier {
    pub(super) fn new(
        shard: OneShard,
        direct: Option<(Arc<Banks>, Sender<()>)>,
        orders: Arc<Orders>,
    ) -> Result<Carrier, Errno> {
        let descriptors = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = EventData::new_u64(BELL);
        epoll::add(&descriptors, &orders.bell, bell, EventFlags::IN)?;
        Ok(Carrier {
            shard,
            direct,
            orders,
            descriptors,
            poll: None,
            relays: BTreeMap::new(),
            listeners: BTreeMap::new(),
            owned: BTreeMap::new(),
            next_sweep: None,
            callers: 0,
            due: BTreeSet::new(),
            spin: SpinBudget::new(),
            buffer: vec![0; AT_ONCE],
        })
    }

    pub(super) fn run(mut self) -> Result<(), Gone> {
        loop {
            let stops = self.orders.stop.load(Acquire);
            self.take_orders()?;
            if stops {
                self.due.extend(self.relays.keys());
            }
            for token in std::mem::take(&mut self.due) {
                match self.carry(token)? {
                    Course::Waits => {}
                    Course::GoesOn => drop(self.due.insert(token)),
                    Course::IsOver => self.end(token)?,
                }
            }
            if stops && self.due.is_empty() {
                return Ok(());
            }
            if self.due.is_empty() {
                self.wait()?;
            }
            self.look()?;
        }
    }

    fn take_orders(&mut self) -> Result<(), Gone> {
        for order in self.orders.take() {
            match order {
                Order::Connection(end) => self.begin(end)?,
                Order::Listener(holder, forward) => self.listen(holder, forward)?,
                Order::Owner(holder, messenger) => self.own(holder, messenger)?,
            }
        }
        Ok(())
    }

    fn begin(&mut self, end: Lent) -> Result<(), Gone> {
        let number = end.number();
        let source = self.shard.enter()?.waiting.holders.relayed(number);
        match source {
            Some(Event::Connection(id)) => self.watch(number.into(), Relay::new(id, End::Descriptor(end))),
            _ => Ok(()),
        }
    }

    /// Carries the bytes of a connection from now on.
    pub(super) fn watch(&mut self, token: Token, relay: Relay) -> Result<(), Gone> {
        let changes = Interest::READABLE | Interest::WRITABLE | Interest::EDGE;
        let registered = self.register(token, Event::Connection(relay.id), changes)?;
        let data = EventData::new_u64(token);
        let changes = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let watched = epoll::add(&self.descriptors, relay.end.socket(), data, changes);
        self.relays.insert(token, relay);
        match registered && watched.is_ok() {
            true => drop(self.due.insert(token)),
            // There is no room to learn what happens to it.
            false => self.end(token)?,
        }
        Ok(())
    }

    pub(super) fn register(&mut self, token: Token, source: Event, changes: Interest) -> Result<bool, Gone> {
        let mut shard = self.shard.enter()?;
        self.poll = self.poll.or_else(|| shard.open_kept_poll());
        let registered = self
            .poll
            .and_then(|poll| shard.register(poll, (source, 0, 0), token, changes));
        Ok(registered.is_some())
    }

    /// Ends the poll's watching of a source.
    pub(super) fn deregister(&mut self, source: Event) -> Result<(), Gone> {
        let mut shard = self.shard.enter()?;
        let registration = self.poll.and_then(|poll| shard.registration(poll, source, 0));
        if let Some(registration) = registration {
            shard.deregister(registration);
        }
        Ok(())
    }

    /// Closes the poll, if it watches nothing any more.
    pub(super) fn close_idle_poll(&mut self) -> Result<(), Gone> {
        let is_idle = self.relays.is_empty()
            && self.owned.is_empty()
            && !self.listeners.values().any(Listener::is_watched);
        if let Some(poll) = self.poll.take_if(|_| is_idle) {
            self.shard.enter()?.close_poll(poll);
        }
        Ok(())
    }

    /// Waits until something happens.
    fn wait(&mut self) -> Result<(), Gone> {
        let until = self.next_turn().into_iter().chain(self.next_sweep()).min();
        let Some(poll) = self.poll else {
            let mut state = [PollFd::new(&self.descriptors, PollFlags::IN)];
            let left = until.and_then(|until| Timespec::try_from(until.since(clock::now())).ok());
            // A signal ends the sleep early, which does no harm.
            let _ = rustix::event::poll(&mut state, left.as_ref());
            return Ok(());
        };
        let beside = [Beside::new(self.descriptors.as_fd(), PollFlags::IN)];
        let mut operation = Wait {
            poll,
            due: &mut self.due,
            glance: Glance::new(&beside),
        };
        let mut shard = self.shard.enter()?;
        if operation.attempt(&mut shard).is_none() {
            self.shard.block(&mut shard, &mut operation, &self.spin, until)?;
        }
        self.shard.settle(&mut shard);
        Ok(())
    }

    /// Takes the events that have occurred, without waiting.
    fn look(&mut self) -> Result<(), Gone> {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A signal; the next time will do.
        let found = epoll::wait(&self.descriptors, &mut events, Some(&at_once));
        for event in found.map(|(events, _)| &*events).unwrap_or_default() {
            match event.data.u64() {
                BELL => drop(self.orders.bell.clear()),
                token => drop(self.due.insert(token)),
            }
        }
        if let Some(poll) = self.poll {
            collect(&mut *self.shard.enter()?, poll, &mut self.due);
        }
        self.take_turns();
        Ok(())
    }

    /// Carries some of the bytes that wait.
    fn carry(&mut self, token: Token) -> Result<Course, Gone> {
        if token & LISTENERS != 0 {
            return self.attend(token);
        }
        if token & MESSENGERS != 0 {
            return self.announce(token);
        }
        if token & CALLERS != 0 {
            self.note_room(token);
        }
        let relay = self.relays.get_mut(&token);
        relay.map_or(Ok(Course::Waits), |relay| {
            relay.carry(&self.shard, &mut self.buffer)
        })
    }

    /// Carries no more. A descriptor's end is watched as those of all other holders: no process
    /// will have the other one, or nothing will come from it.
    fn end(&mut self, token: Token) -> Result<(), Gone> {
        if token & LISTENERS != 0 {
            return self.leave(token);
        }
        if token & MESSENGERS != 0 {
            return self.disown(token);
        }
        let Some(Relay { id, end, .. }) = self.relays.remove(&token) else {
            return Ok(());
        };
        if token & CALLERS != 0 {
            self.note_room(token);
        }
        let mut shard = enter(&self.shard)?;
        match end {
            End::Descriptor(_) => shard.forget(Event::Connection(id)),
            // No other process has the connection.
            End::Caller(_) => {
                shard.waiting.holders.count_caller(false);
                shard.close(Event::Connection(id));
            }
        }
        respond(&self.shard, &mut shard);
        drop(shard);
        self.close_idle_poll()?;
        let _ = epoll::delete(&self.descriptors, end.socket());
        if let End::Descriptor(lent) = &end {
            let _ = rustix::net::shutdown(lent.socket(), Shutdown::Both);
        }
        Ok(())
    }
}

/// Notes whose connections have changed. Whether there are any.
fn collect(shard: &mut Shard, poll: u32, due: &mut BTreeSet<Token>) -> bool {
    let mut any = false;
    shard.collect(poll, EVENTS, &mut |Told { token, .. }| {
        due.insert(token);
        any = true;
    });
    any
}

/// Waits for the connections and the ends.
struct Wait<'a> {
    poll: u32,
    due: &'a mut BTreeSet<Token>,
    glance: Glance<'a>,
}

impl Operation for Wait<'_> {
    type Output = ();

    fn attempt(&mut self, shard: &mut Shard) -> Option<()> {
        let some = collect(shard, self.poll, self.due) || self.glance.finds(shard.now);
        some.then_some(())
    }

    fn subscription(&self) -> Subscription {
        Subscription::Poll(self.poll)
    }

    fn beside(&self) -> &[Beside<'_>] {
        self.glance.beside()
    }
}
