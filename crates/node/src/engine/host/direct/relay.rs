//! Ends of direct connections whose bytes the engine carries to and from their descriptors.
//!
//! This is for programs that cannot map the node's memory: without the library, or behind a filter
//! of system calls. To them the descriptor is a connected Unix socket, of which the engine has the other end.
//! Connections that wait at a listener which the engine forwards are carried to the kernel's listener.
//!
//! Bytes are removed from a ring or a socket when the other one has them. So nothing is lost with
//! a program's death, and a slow program holds up its peer as it would without a relay. A byte of
//! urgent data goes among the others.
//!
//! One thread carries for all ends. It takes locks of ends, and so waits for a process that is
//! stopped while it has one of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use toehold_shm::Doorbell;
use toehold_shm::direct::{
    Beginning, ConnectionId, End, ListenerId, ReceiveError, Record, SendError, Side, StreamState, Take,
    ThreadNumber, WaiterKind, WaiterNumber, Wish,
};

use super::super::ends::{Lent, is_alone};
use super::super::life::start;
use super::super::relay::{Caller, RelayEnd};
use super::closer::What;
use super::{Banks, ENGINE};
use crate::clock;
use crate::direct::{Bank, DirectEnd, Ear, Entry, LOOK_AGAIN, OWN, may_come};

/// Bytes that are carried in one go.
const AT_ONCE: usize = 64 << 10;

/// Descriptors of which one look learns.
const EVENTS: usize = 64;

/// Rounds in which what is there is still carried when the node ends.
const LAST_ROUNDS: usize = 1024;

/// How long the node's end waits for these.
const LONGEST_END: Duration = Duration::from_secs(1);

/// What stands for the doorbell and for the ear among the descriptors. Holders have their numbers.
const BELL: u64 = u64::MAX;
const EAR: u64 = u64::MAX - 1;

/// Connections to forwarded listeners have tokens from this one on.
const CALLERS: u64 = 1 << 32;

/// Connections of a queue that one call refuses at most.
const REFUSALS: usize = 64;

/// Bytes that the peer of a forwarded connection may have on the way.
const WINDOW: u64 = 256 << 10;

/// What other threads say to the one that carries.
#[derive(Debug)]
pub(super) struct RelayOrders {
    new: Mutex<Vec<Order>>,
    bell: Doorbell,
    has_begun: AtomicBool,
    stops: AtomicBool,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// What is to be carried.
#[derive(Debug)]
enum Order {
    /// The bytes of a holder's connection.
    Holder(DirectEnd, Lent),
    /// Those of a connection to a forwarded listener.
    Caller(Offered, Caller),
}

/// A connection that waited at a listener, and that the engine has taken. This side's end is not
/// made yet.
#[derive(Debug)]
pub(in crate::engine::host) struct Offered {
    bank: Arc<Bank>,
    connection: ConnectionId,
    record: Record,
}

impl Offered {
    /// This side's address, and the other side's.
    pub(in crate::engine::host) fn ends(&self) -> [SocketAddr; 2] {
        [self.record.local, self.record.remote]
    }
}

impl RelayOrders {
    pub(super) fn new() -> Result<RelayOrders, Errno> {
        Ok(RelayOrders {
            new: Mutex::default(),
            bell: Doorbell::new()?,
            has_begun: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        })
    }
}

impl Banks {
    /// Carries the bytes of an end to and from a holder's descriptor from now on. `alarm` is told if
    /// the thread that does so ends.
    ///
    /// # Errors
    ///
    /// If the system refuses the thread.
    pub(in crate::engine::host) fn relay(
        self: &Arc<Self>,
        end: DirectEnd,
        lent: Lent,
        alarm: &Sender<()>,
    ) -> std::io::Result<()> {
        self.order(Order::Holder(end, lent), alarm)
    }

    /// Carries the bytes of a connection that was [taken](Banks::take_offered) to and from the program's
    /// listener from now on.
    ///
    /// # Errors
    ///
    /// If the system refuses the thread.
    pub(in crate::engine::host) fn forward(
        self: &Arc<Self>,
        offered: Offered,
        caller: Caller,
        alarm: &Sender<()>,
    ) -> std::io::Result<()> {
        self.order(Order::Caller(offered, caller), alarm)
    }

    fn order(self: &Arc<Self>, order: Order, alarm: &Sender<()>) -> std::io::Result<()> {
        let orders = &self.relays;
        orders
            .new
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(order);
        orders.bell.ring();
        if orders.has_begun.swap(true, AcqRel) {
            return Ok(());
        }
        let banks = Arc::clone(self);
        let thread = start("toehold-relay", alarm, move || banks.run_relay());
        if thread.is_err() {
            // The next order tries again.
            orders.has_begun.store(false, Release);
        }
        thread.map(drop).map_err(std::io::Error::other)
    }

    /// Takes the next connection that waits at a listener. `None`: none waits.
    pub(in crate::engine::host) fn take_offered(&self, listener: ListenerId) -> Option<Offered> {
        let accepting = self.all().into_iter().filter(|bank| bank.side == Side::Accepting);
        for bank in accepting {
            for _ in 0..REFUSALS {
                let Some((connection, theirs)) = bank.take(listener, ENGINE) else {
                    break;
                };
                let record = Record {
                    local: theirs.remote,
                    remote: theirs.local,
                    listener: None,
                    options: 0,
                    opened_ns: clock::now().0,
                    ..theirs
                };
                let offered = Offered {
                    bank: Arc::clone(&bank),
                    connection,
                    record,
                };
                let entry = self.table.get(bank.slot());
                let may_come = entry.is_some_and(|entry| self.may_come(&entry, offered.ends()));
                if theirs.listener == Some(listener) && may_come {
                    return Some(offered);
                }
                self.refuse_offered(&offered);
            }
        }
        None
    }

    /// Refuses a connection that was taken.
    pub(in crate::engine::host) fn refuse_offered(&self, offered: &Offered) {
        self.close(&offered.bank, offered.connection, What::Refuse);
    }

    fn may_come(&self, entry: &Entry, ends: [SocketAddr; 2]) -> bool {
        let own = self.table.get(OWN[0]).map(|own| own.addresses);
        may_come(own.as_ref(), entry, ends)
    }

    /// Carries until the end of this life of the node.
    fn run_relay(&self) {
        match Carrier::new(self) {
            Some(carrier) => carrier.run(),
            // The next one may be luckier.
            None => self.relays.has_begun.store(false, Release),
        }
        let new = std::mem::take(&mut *self.relays.new.lock().unwrap_or_else(PoisonError::into_inner));
        for order in new {
            if let Order::Holder(_, lent) = order {
                let _ = shutdown(lent.socket(), Shutdown::Both);
            }
        }
        *self
            .relays
            .has_ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.relays.ended.notify_all();
    }

    /// Carries what is there, and ends. Does not wait for a process that is stopped.
    pub(in crate::engine::host) fn stop_relay(&self) {
        let orders = &self.relays;
        orders.stops.store(true, Release);
        orders.bell.ring();
        if orders.has_begun.load(Acquire) {
            let ended = orders.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = orders
                .ended
                .wait_timeout_while(ended, LONGEST_END, |ended| !*ended);
        }
    }
}

/// How it goes on with an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Course {
    /// Something has to happen first.
    Waits,
    GoesOn,
    IsOver,
}

/// An end whose bytes are carried.
struct Relay {
    bank: Arc<Bank>,
    connection: ConnectionId,
    socket: RelayEnd,
    /// The ear hears of it.
    is_heard: bool,
    /// The peer will send no more, and the program knows.
    is_delivered: bool,
    /// The program will send no more, and the peer knows.
    is_sent: bool,
    /// What the program has sent waits for room in the ring.
    wants_room: bool,
    /// What the peer has sent waits for room in the socket.
    is_socket_full: bool,
}

struct Carrier<'a> {
    banks: &'a Banks,
    thread: ThreadNumber,
    waiter: WaiterNumber,
    ear: Ear,
    /// The sockets, the ear and the doorbell.
    descriptors: OwnedFd,
    /// By token: that of a holder is its number.
    relays: BTreeMap<u64, Relay>,
    /// The token of each end: by slot and number.
    tokens: HashMap<(u16, u16), u64>,
    /// Tokens of ends to which something may have happened.
    due: BTreeSet<u64>,
    /// Connections of forwarded listeners so far.
    callers: u32,
    buffer: Vec<u8>,
}

impl<'a> Carrier<'a> {
    /// `None`: the system has no descriptors left, or the node no numbers.
    fn new(banks: &'a Banks) -> Option<Carrier<'a>> {
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
            callers: 0,
            buffer: vec![0; AT_ONCE],
        })
    }

    fn run(mut self) {
        let mut last_rounds = 0;
        loop {
            let stops = self.banks.relays.stops.load(Acquire);
            self.take_orders();
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
        if bank.begin(self.thread, connection.number, &beginning).is_err() {
            caller.reset();
            return self.banks.refuse_offered(offered);
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
        if relays.all(|relay| relay.bank.signals.is_empty(self.waiter)) {
            let hears_all = self.relays.values().all(|relay| relay.is_heard);
            let longest = Timespec::try_from(LOOK_AGAIN).ok().filter(|_| !hears_all);
            let mut polled = [PollFd::new(&self.descriptors, PollFlags::IN)];
            // A signal ends the sleep early, which does no harm.
            let _ = poll(&mut polled, longest.as_ref());
        }
        drop(sleep);
    }

    /// Learns what has happened, without waiting.
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
        let collect = || {
            for relay in relays.values() {
                let slot = relay.bank.slot();
                relay.bank.signals.collect(waiter, |number| {
                    due.extend(tokens.get(&(slot, number)));
                });
            }
        };
        // No signal handler interrupts this thread.
        let _ = waiters.collecting(waiter, thread, collect);
        let unheard = relays.iter().filter(|(_, relay)| !relay.is_heard);
        due.extend(unheard.map(|(token, _)| token));
    }

    /// Carries some of what is there, both ways.
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

impl Relay {
    /// From the program to its peer.
    fn carry_out(&mut self, end: &End<'_>, thread: ThreadNumber, buffer: &mut [u8]) -> Course {
        let socket = self.socket.socket();
        if self.is_sent {
            return match is_alone(socket) {
                true => Course::IsOver,
                false => Course::Waits,
            };
        }
        self.wants_room = false;
        let bytes = match recv(socket, &mut *buffer, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => {
                self.is_sent = true;
                let _ = end.shut_write(thread);
                return Course::GoesOn;
            }
            Ok((_, len)) => &buffer[..len],
            Err(Errno::AGAIN | Errno::INTR) => return Course::Waits,
            Err(_) => {
                // It has left without reading everything.
                let _ = end.reset(thread);
                return Course::IsOver;
            }
        };
        match end.send(thread, &[IoSlice::new(bytes)]) {
            Ok(sent) => {
                let taken = recv(socket, &mut buffer[..sent], RecvFlags::DONTWAIT);
                debug_assert!(taken.is_ok());
                Course::GoesOn
            }
            Err(SendError::Full) => {
                self.wants_room = true;
                Course::Waits
            }
            Err(SendError::Closed | SendError::Shut) => {
                // The program's next bytes fail with EPIPE; those before are lost, as over TCP.
                self.is_sent = true;
                let _ = shutdown(socket, Shutdown::Read);
                Course::GoesOn
            }
            Err(SendError::Offence(_) | SendError::Reentered(_)) => Course::IsOver,
        }
    }

    /// From its peer to the program.
    fn carry_in(&mut self, end: &End<'_>, thread: ThreadNumber, buffer: &mut [u8]) -> Course {
        if self.is_delivered {
            return Course::Waits;
        }
        self.is_socket_full = false;
        let socket = self.socket.socket();
        let received = end.receive(thread, &mut [IoSliceMut::new(buffer)], Take::Peek, u64::MAX);
        let taken = match received {
            // To end it before it is connected would be to give up.
            Ok(0) if self.socket.is_connecting() => return Course::Waits,
            Ok(0) => {
                self.is_delivered = true;
                let _ = shutdown(socket, Shutdown::Write);
                return Course::Waits;
            }
            Ok(len) => match send(socket, &buffer[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => sent,
                Err(Errno::AGAIN | Errno::INTR) => {
                    self.is_socket_full = true;
                    return Course::Waits;
                }
                Err(_) if is_alone(socket) => {
                    if let RelayEnd::Caller(_) = self.socket {
                        // The program will never read what the peer has sent.
                        let _ = end.reset(thread);
                    }
                    return Course::IsOver;
                }
                // It wants to read no more, and the peer does not have to know.
                Err(_) => len,
            },
            Err(ReceiveError::Empty) => return Course::Waits,
            Err(_) => {
                if let RelayEnd::Caller(caller) = &self.socket {
                    caller.reset();
                }
                return Course::IsOver;
            }
        };
        let taken = end.receive(
            thread,
            &mut [IoSliceMut::new(&mut buffer[..taken])],
            Take::Remove,
            u64::MAX,
        );
        debug_assert!(taken.is_ok());
        Course::GoesOn
    }

    /// Has the waiter told of what it waits for. It may be there already.
    fn arm(&self, end: &End<'_>, thread: ThreadNumber, waiter: WaiterNumber) -> Course {
        let reads = !self.is_delivered && !self.is_socket_full;
        let wish = Wish {
            read: reads.then_some(1),
            edge: false,
            room: self.wants_room,
        };
        let Ok(look) = end.arm(thread, waiter, wish) else {
            return Course::IsOver;
        };
        let may_read = reads && (look.readable > 0 || look.peer != StreamState::Open);
        let may_write = self.wants_room && (look.has_room || look.is_peer_closed);
        match may_read || may_write {
            true => Course::GoesOn,
            false => Course::Waits,
        }
    }
}
