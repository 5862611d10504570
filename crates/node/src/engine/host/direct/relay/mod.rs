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

mod carrier;
mod end;
mod owned;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use toehold_shm::Doorbell;
use toehold_shm::direct::{ConnectionId, ListenerId, Record, Side};

use self::carrier::Carrier;
use super::super::ends::Lent;
use super::super::life::start;
use super::super::relay::{Caller, Messenger};
use super::closer::What;
use super::{Banks, ENGINE};
use crate::clock;
use crate::direct::{Bank, DirectEnd, Entry, OWN, may_come};

/// How long the node's end waits for bytes that are still carried.
const LONGEST_END: Duration = Duration::from_secs(1);

/// Connections of a queue that one call refuses at most.
const REFUSALS: usize = 64;

/// The orders of other threads to the one that carries.
#[derive(Debug)]
pub(super) struct RelayOrders {
    new: Mutex<Vec<Order>>,
    bell: Doorbell,
    has_begun: AtomicBool,
    stops: AtomicBool,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// An order to carry.
#[derive(Debug)]
enum Order {
    /// The bytes of a holder's connection.
    Holder(DirectEnd, Lent),
    /// The bytes of a connection to a forwarded listener.
    Caller(Offered, Caller),
    /// Signals to the owner of an end, that urgent data were announced.
    Owner(DirectEnd, Messenger),
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

    /// Signals the owner of an end from now on whenever its peer announces urgent data.
    ///
    /// # Errors
    ///
    /// If the system refuses the thread.
    pub(in crate::engine::host) fn own(
        self: &Arc<Self>,
        end: DirectEnd,
        messenger: Messenger,
        alarm: &Sender<()>,
    ) -> std::io::Result<()> {
        self.order(Order::Owner(end, messenger), alarm)
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

    /// Takes the next connection that waits at a listener. Returns `None` if none waits.
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
                if bank.is_for(connection, &theirs, listener) && may_come {
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

    /// Carries the bytes that wait, and ends. Does not wait for a process that is stopped.
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
