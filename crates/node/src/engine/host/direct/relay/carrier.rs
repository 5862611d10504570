//! The thread that carries the bytes of direct connections.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, PoisonError};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};
use toehold_shm::direct::{Beginning, ConnectionId, ThreadNumber, WaiterKind, WaiterNumber};

use super::super::super::ends::Lent;
use super::super::super::relay::{Caller, RelayEnd};
use super::super::closer::What;
use super::super::{Banks, ENGINE};
use super::end::{Course, Relay};
use super::owned::OwnedEnd;
use super::{Offered, Order};
use crate::direct::{Bank, DirectEnd, Ear, LOOK_AGAIN};

/// Bytes that are carried in one go.
const AT_ONCE: usize = 64 << 10;

/// Descriptors of which one look learns.
const EVENTS: usize = 64;

/// Rounds in which bytes that have arrived are still carried when the node ends.
const LAST_ROUNDS: usize = 1024;

/// The tokens of the doorbell and of the ear among the descriptors. The tokens of holders are their
/// numbers.
const BELL: u64 = u64::MAX;
const EAR: u64 = u64::MAX - 1;

/// Connections to forwarded listeners have tokens from this one on.
const CALLERS: u64 = 1 << 32;

/// Bytes that the peer of a forwarded connection may have on the way.
const WINDOW: u64 = 256 << 10;

pub(super) struct Carrier<'a> {
    pub(super) banks: &'a Banks,
    pub(super) thread: ThreadNumber,
    pub(super) waiter: WaiterNumber,
    pub(super) ear: Ear,
    /// The epoll of the sockets, the ear and the doorbell.
    descriptors: OwnedFd,
    /// The relays by token; that of a holder is its number.
    relays: BTreeMap<u64, Relay>,
    /// The token of each end, by slot and number.
    tokens: HashMap<(u16, u16), u64>,
    /// Tokens of ends to which something may have happened.
    due: BTreeSet<u64>,
    /// Ends whose owners are signalled, by slot and number.
    pub(super) owned: BTreeMap<(u16, u16), OwnedEnd>,
    /// Connections of forwarded listeners so far.
    callers: u32,
    buffer: Vec<u8>,
}

impl<'a> Carrier<'a> {
    /// A carrier of these banks. Returns `None` if the system has no descriptors left, or the node
    /// no numbers.
    pub(super) fn new(banks: &'a Banks) -> Option<Carrier<'a>> {
        let waiters = &banks.own.waiters;
        let thread = waiters.journal().claim(ENGINE)?;
        let waiter = waiters.claim(ENGINE, WaiterKind::Instance)?;
        waiters.set_on_descriptor(waiter, true);
        let ear = Ear::over(banks.own.bells.bell_of(waiter)?, waiter)?;
        let descriptors = epoll::create(CreateFlags::CLOEXEC).ok()?;
        let bell = &banks.relays.bell;
        for (descriptor, token) in [(bell.as_fd(), BELL), (ear.as_fd(), EAR)] {
            epoll::add(
                &descriptors,
                descriptor,
                EventData::new_u64(token),
                EventFlags::IN,
            )
            .ok()?;
        }
        Some(Carrier {
            banks,
            thread,
            waiter,
            ear,
            descriptors,
            relays: BTreeMap::new(),
            tokens: HashMap::new(),
            due: BTreeSet::new(),
            owned: BTreeMap::new(),
            callers: 0,
            buffer: vec![0; AT_ONCE],
        })
    }

    pub(super) fn run(mut self) {
        let mut last_rounds = 0;
        loop {
            let stops = self.banks.relays.stops.load(Acquire);
            self.take_orders();
            self.announce();
            if stops && last_rounds == 0 {
                self.due.extend(self.relays.keys());
            }
            for token in std::mem::take(&mut self.due) {
                match self.carry(token) {
                    Course::Waits => {}
                    Course::GoesOn => drop(self.due.insert(token)),
                    Course::IsOver => self.end(token),
                }
            }
            last_rounds += usize::from(stops);
            if stops && (self.due.is_empty() || last_rounds > LAST_ROUNDS) {
                return;
            }
            if self.due.is_empty() {
                self.wait();
            }
            self.look();
        }
    }

    fn take_orders(&mut self) {
        let new = &self.banks.relays.new;
        let new = std::mem::take(&mut *new.lock().unwrap_or_else(PoisonError::into_inner));
        for order in new {
            match order {
                Order::Holder(end, lent) => self.begin(end, lent),
                Order::Caller(offered, caller) => self.begin_forwarded(&offered, caller),
                Order::Owner(end, messenger) => self.own(end, messenger),
            }
        }
    }

    fn begin(&mut self, end: DirectEnd, lent: Lent) {
        let Some(bank) = self.banks.bank(end.slot) else {
            let _ = shutdown(lent.socket(), Shutdown::Both);
            return;
        };
        let connection = ConnectionId {
            number: end.number,
            generation: end.generation,
        };
        let token = u64::from(lent.number());
        self.watch(token, bank, connection, RelayEnd::Descriptor(lent));
    }

    fn begin_forwarded(&mut self, offered: &Offered, caller: Caller) {
        let Offered {
            bank,
            connection,
            record,
        } = offered;
        let beginning = Beginning {
            record: *record,
            window: WINDOW,
        };
        match bank.begin(self.thread, connection.number, &beginning) {
            Ok(end) => end.record_opening(self.thread, false),
            Err(_) => {
                caller.reset();
                return self.banks.refuse_offered(offered);
            }
        }
        let token = CALLERS | u64::from(self.callers);
        self.callers = self.callers.wrapping_add(1);
        self.watch(token, Arc::clone(bank), *connection, RelayEnd::Caller(caller));
    }

    fn watch(&mut self, token: u64, bank: Arc<Bank>, connection: ConnectionId, socket: RelayEnd) {
        let data = EventData::new_u64(token);
        let changes = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let watched = epoll::add(&self.descriptors, socket.socket(), data, changes);
        self.tokens.insert((bank.slot(), connection.number), token);
        let relay = Relay {
            is_heard: self.ear.listen(&bank),
            bank,
            connection,
            socket,
            is_delivered: false,
            is_sent: false,
            wants_room: false,
            is_socket_full: false,
        };
        self.relays.insert(token, relay);
        match watched {
            Ok(()) => drop(self.due.insert(token)),
            Err(_) => self.end(token),
        }
    }

    /// Sleeps until something happens.
    fn wait(&self) {
        let sleep = self.banks.own.waiters.begin_sleep(self.waiter, self.thread, []);
        let mut relays = self.relays.values();
        let mut owned = self.owned.values();
        if relays.all(|relay| relay.bank.signals.is_empty(self.waiter))
            && owned.all(|owned| owned.bank().signals.is_empty(self.waiter))
        {
            // Nothing tells when an end with an owner is closed.
            let hears_all = self.owned.is_empty() && self.relays.values().all(|relay| relay.is_heard);
            let longest = Timespec::try_from(LOOK_AGAIN).ok().filter(|_| !hears_all);
            let mut polled = [PollFd::new(&self.descriptors, PollFlags::IN)];
            // A signal ends the sleep early, which does no harm.
            let _ = poll(&mut polled, longest.as_ref());
        }
        drop(sleep);
    }

    /// Takes the events that have occurred, without waiting.
    fn look(&mut self) {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let found = epoll::wait(&self.descriptors, &mut events, Some(&Timespec::default()));
        for event in found.map(|(events, _)| &*events).unwrap_or_default() {
            match event.data.u64() {
                BELL => drop(self.banks.relays.bell.clear()),
                // Before the bits are taken.
                EAR => self.ear.silence(),
                token => drop(self.due.insert(token)),
            }
        }
        let (waiter, thread, waiters) = (self.waiter, self.thread, &self.banks.own.waiters);
        let (tokens, due, relays) = (&self.tokens, &mut self.due, &self.relays);
        let owned = self.owned.values().map(OwnedEnd::bank);
        let collect = || {
            for bank in relays.values().map(|relay| &relay.bank).chain(owned) {
                let slot = bank.slot();
                bank.signals.collect(waiter, |number| {
                    due.extend(tokens.get(&(slot, number)));
                });
            }
        };
        // No signal handler interrupts this thread.
        let _ = waiters.collecting(waiter, thread, collect);
        let unheard = relays.iter().filter(|(_, relay)| !relay.is_heard);
        due.extend(unheard.map(|(token, _)| token));
    }

    /// Carries some of the bytes that wait, both ways.
    fn carry(&mut self, token: u64) -> Course {
        let Some(relay) = self.relays.get_mut(&token) else {
            return Course::Waits;
        };
        let bank = Arc::clone(&relay.bank);
        let is_there = self.banks.table.is_there(bank.slot(), bank.generation());
        let end = match bank.end(relay.connection) {
            Ok(end) if bank.ends.generation(relay.connection.number) == relay.connection.generation => end,
            _ => return Course::IsOver,
        };
        let (thread, buffer) = (self.thread, &mut self.buffer);
        let out = match is_there {
            true => relay.carry_out(&end, thread, buffer),
            false => Course::Waits,
        };
        if out == Course::IsOver {
            return out;
        }
        match out.max(relay.carry_in(&end, thread, buffer)) {
            // The peer is gone, and what it has sent was delivered.
            Course::Waits if !is_there && !relay.is_socket_full => Course::IsOver,
            Course::Waits => relay.arm(&end, thread, self.waiter),
            course => course,
        }
    }

    /// Carries no more. A holder is watched as all others are: its end is closed with its last copy.
    fn end(&mut self, token: u64) {
        let Some(relay) = self.relays.remove(&token) else {
            return;
        };
        let ConnectionId { number, generation } = relay.connection;
        self.tokens.remove(&(relay.bank.slot(), number));
        if relay.bank.ends.generation(number) == generation
            && let Ok(end) = relay.bank.end(relay.connection)
        {
            let _ = end.disarm(self.thread, self.waiter);
        }
        let _ = epoll::delete(&self.descriptors, relay.socket.socket());
        match &relay.socket {
            RelayEnd::Descriptor(lent) => drop(shutdown(lent.socket(), Shutdown::Both)),
            // Nothing else has the connection.
            RelayEnd::Caller(_) => self.banks.close(&relay.bank, relay.connection, What::Close),
        }
    }
}
