//! Connections whose bytes the engine carries between the stack and their descriptors. They are for
//! programs that cannot use the stack themselves: without the library, or behind a filter of system
//! calls. To them the descriptor is a connected Unix socket, of which the engine has the other end.
//!
//! Bytes on the way are in the stack's queues and in the kernel's, and never here in between. They
//! are taken from the one when the other one has them. So nothing is lost with a program's death. A
//! slow program holds up its peer as it would without a relay.

mod carrier;
mod connection;
mod forward;
mod listeners;
mod messenger;
mod standby;

pub(super) use self::connection::End as RelayEnd;
pub(super) use self::forward::{Caller, Forward};
pub(super) use self::messenger::Messenger;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use toehold_shm::Doorbell;

use self::carrier::Carrier;
use super::direct::Banks;
use super::ends::Lent;
use super::life::{join, start};
use crate::direct::DirectEnd;
use crate::shards::{OneShard, Shards};

/// The relays of a life.
pub(super) struct Relays {
    shards: Arc<Shards>,
    direct: Option<Arc<Banks>>,
    alarm: Sender<()>,
    /// The carriers by shard, of shards that ever had one.
    carriers: Mutex<Carriers>,
}

type Carriers = BTreeMap<u8, (Arc<Orders>, JoinHandle<()>)>;

/// An order to carry.
enum Order {
    /// The bytes of a holder's connection.
    Connection(Lent),
    /// The bytes of peers that connect to a holder's listener.
    Listener(u32, Arc<Forward>),
    /// Signals to the owner of a holder's connection, that urgent data were announced.
    Owner(u32, Messenger),
}

/// The orders of the control thread to one that carries.
struct Orders {
    new: Mutex<Vec<Order>>,
    bell: Doorbell,
    stop: AtomicBool,
}

impl Orders {
    fn take(&self) -> Vec<Order> {
        std::mem::take(&mut *self.new.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Relays {
    pub(super) fn new(shards: &Arc<Shards>, direct: Option<&Arc<Banks>>, alarm: &Sender<()>) -> Relays {
        Relays {
            shards: Arc::clone(shards),
            direct: direct.cloned(),
            alarm: alarm.clone(),
            carriers: Mutex::default(),
        }
    }

    fn carriers(&self) -> MutexGuard<'_, Carriers> {
        self.carriers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries from now on for a holder whose connection is in that shard.
    pub(super) fn begin(&self, shard: u8, end: Lent) -> std::io::Result<()> {
        self.order(shard.min(self.shards.count() - 1), Order::Connection(end))
    }

    /// Carries from now on for a holder of a direct connection.
    pub(super) fn begin_direct(&self, direct: &Arc<Banks>, of: DirectEnd, end: Lent) -> std::io::Result<()> {
        direct.relay(of, end, &self.alarm)
    }

    /// Signals the owner of a direct connection from now on.
    pub(super) fn own_direct(
        &self,
        direct: &Arc<Banks>,
        of: DirectEnd,
        messenger: Messenger,
    ) -> std::io::Result<()> {
        direct.own(of, messenger, &self.alarm)
    }

    /// Signals the owner of a holder's connection from now on, which is in that shard.
    pub(super) fn own(&self, shard: u8, holder: u32, messenger: Messenger) -> std::io::Result<()> {
        self.order(
            shard.min(self.shards.count() - 1),
            Order::Owner(holder, messenger),
        )
    }

    /// Carries for peers that connect to a holder's listener, in whatever shard.
    pub(super) fn forward(&self, holder: u32, forward: Forward) -> std::io::Result<()> {
        let forward = Arc::new(forward);
        let mut shards = 0..self.shards.count();
        shards.try_for_each(|index| self.order(index, Order::Listener(holder, Arc::clone(&forward))))
    }

    fn order(&self, index: u8, order: Order) -> std::io::Result<()> {
        let mut carriers = self.carriers();
        let orders = match carriers.get(&index) {
            Some((orders, _)) => Arc::clone(orders),
            None => {
                let (orders, thread) = self.employ(index)?;
                carriers.insert(index, (Arc::clone(&orders), thread));
                orders
            }
        };
        orders
            .new
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(order);
        orders.bell.ring();
        Ok(())
    }

    fn employ(&self, index: u8) -> std::io::Result<(Arc<Orders>, JoinHandle<()>)> {
        let orders = Arc::new(Orders {
            new: Mutex::default(),
            bell: Doorbell::new()?,
            stop: AtomicBool::new(false),
        });
        let shards = Arc::clone(&self.shards);
        let direct = self.direct.clone().map(|banks| (banks, self.alarm.clone()));
        let carrier = Carrier::new(OneShard { shards, index }, direct, Arc::clone(&orders))?;
        let thread = start("toehold-relay", &self.alarm, move || {
            // If the shard is gone, there is nothing to carry.
            let _ = carrier.run();
        });
        Ok((orders, thread.map_err(std::io::Error::other)?))
    }

    /// Whether a thread has ended that was not told to.
    pub(super) fn are_over(&self) -> bool {
        self.carriers().values().any(|(_, thread)| thread.is_finished())
    }

    /// Carries the bytes that wait, and ends.
    pub(super) fn end(&self) {
        let carriers = std::mem::take(&mut *self.carriers());
        for (orders, thread) in carriers.into_values() {
            orders.stop.store(true, Release);
            orders.bell.ring();
            join(thread);
        }
    }
}
