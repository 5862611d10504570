//! Connections whose bytes the engine carries between the stack and their descriptors, for
//! programs that cannot use the stack themselves: without the library, or behind a filter
//! of system calls. To them the descriptor is a connected Unix socket, of which the engine
//! has the other end.
//!
//! What is on the way is in the stack's queues and in the kernel's, and never here in
//! between: bytes are taken from the one when the other one has them. So nothing is lost with
//! a program's death, and a slow program holds up its peer as it would without a relay.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use toehold_shm::Doorbell;
use toehold_stack::{ConnectionId, Event, ReceiveFlags, SocketError};

use super::ends::{Lent, is_alone};
use super::life::{join, start};
use crate::shard::{Interest, Shard, Subscription};
use crate::shards::{OneShard, Shards};
use crate::wait::{Beside, Glance, Gone, Guard, Operation, SpinBudget};

/// Bytes that are carried in one go.
const AT_ONCE: usize = 64 << 10;

/// Descriptors of which one look learns.
const EVENTS: usize = 64;

/// What stands for the doorbell among the descriptors.
const BELL: u64 = u64::MAX;

/// The relays of a life.
pub(super) struct Relays {
    shards: Arc<Shards>,
    alarm: Sender<()>,
    /// By shard, of those that ever had one.
    carriers: Mutex<Carriers>,
}

type Carriers = BTreeMap<u8, (Arc<Orders>, JoinHandle<()>)>;

/// What the control thread says to one that carries.
struct Orders {
    new: Mutex<Vec<Lent>>,
    bell: Doorbell,
    stop: AtomicBool,
}

impl Orders {
    fn take(&self) -> Vec<Lent> {
        std::mem::take(&mut *self.new.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Relays {
    pub(super) fn new(shards: &Arc<Shards>, alarm: &Sender<()>) -> Relays {
        Relays {
            shards: Arc::clone(shards),
            alarm: alarm.clone(),
            carriers: Mutex::default(),
        }
    }

    fn carriers(&self) -> MutexGuard<'_, Carriers> {
        self.carriers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries from now on for a holder whose connection is in that shard.
    pub(super) fn begin(&self, shard: u8, end: Lent) -> std::io::Result<()> {
        let index = shard.min(self.shards.count() - 1);
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
            .push(end);
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
        let carrier = Carrier::new(OneShard { shards, index }, Arc::clone(&orders))?;
        let thread = start("toehold-relay", &self.alarm, move || {
            // If the shard is gone, there is nothing to carry.
            let _ = carrier.run();
        });
        Ok((orders, thread.map_err(std::io::Error::other)?))
    }

    /// Whether a thread has ended that nobody has told to.
    pub(super) fn are_over(&self) -> bool {
        self.carriers().values().any(|(_, thread)| thread.is_finished())
    }

    /// Carries what is there, and ends.
    pub(super) fn end(&self) {
        let carriers = std::mem::take(&mut *self.carriers());
        for (orders, thread) in carriers.into_values() {
            orders.stop.store(true, Release);
            orders.bell.ring();
            join(thread);
        }
    }
}

/// A connection whose bytes are carried.
struct Relay {
    id: ConnectionId,
    end: Lent,
    /// The peer will send no more, and the program knows.
    is_delivered: bool,
    /// The program will send no more, and the stack knows.
    is_sent: bool,
}

/// How it goes on with one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Course {
    /// Something has to happen first.
    Waits,
    GoesOn,
    IsOver,
}

/// Who carries the bytes of a shard's connections.
struct Carrier {
    shard: OneShard,
    orders: Arc<Orders>,
    /// The ends and the doorbell.
    descriptors: OwnedFd,
    /// The poll that watches the connections, while there are any.
    poll: Option<u32>,
    /// By the numbers of their holders.
    relays: BTreeMap<u32, Relay>,
    /// Those that something may have happened to.
    due: BTreeSet<u32>,
    spin: SpinBudget,
    buffer: Vec<u8>,
}

impl Carrier {
    fn new(shard: OneShard, orders: Arc<Orders>) -> Result<Carrier, Errno> {
        let descriptors = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = EventData::new_u64(BELL);
        epoll::add(&descriptors, &orders.bell, bell, EventFlags::IN)?;
        Ok(Carrier {
            shard,
            orders,
            descriptors,
            poll: None,
            relays: BTreeMap::new(),
            due: BTreeSet::new(),
            spin: SpinBudget::new(),
            buffer: vec![0; AT_ONCE],
        })
    }

    fn run(mut self) -> Result<(), Gone> {
        loop {
            let stops = self.orders.stop.load(Acquire);
            self.take_orders()?;
            if stops {
                self.due.extend(self.relays.keys());
            }
            for number in std::mem::take(&mut self.due) {
                match self.carry(number)? {
                    Course::Waits => {}
                    Course::GoesOn => drop(self.due.insert(number)),
                    Course::IsOver => self.end(number)?,
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
        for end in self.orders.take() {
            let number = end.number();
            let mut shard = self.shard.enter()?;
            let source = shard.waiting.holders.relayed(number);
            let Some(Event::Connection(id)) = source else {
                continue;
            };
            let changes = Interest::READABLE | Interest::WRITABLE | Interest::EDGE;
            self.poll = self.poll.or_else(|| shard.open_poll());
            let registered = self
                .poll
                .and_then(|poll| shard.register(poll, Event::Connection(id), number.into(), changes));
            drop(shard);
            let data = EventData::new_u64(number.into());
            let changes = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            let watched = epoll::add(&self.descriptors, end.socket(), data, changes);
            let relay = Relay {
                id,
                end,
                is_delivered: false,
                is_sent: false,
            };
            self.relays.insert(number, relay);
            match registered.is_some() && watched.is_ok() {
                true => drop(self.due.insert(number)),
                // There is no room to learn what happens to it.
                false => self.end(number)?,
            }
        }
        Ok(())
    }

    /// Waits until something happens.
    fn wait(&mut self) -> Result<(), Gone> {
        let Some(poll) = self.poll else {
            let mut state = [PollFd::new(&self.descriptors, PollFlags::IN)];
            // A signal ends the sleep early, which does no harm.
            let _ = rustix::event::poll(&mut state, None);
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
            self.shard.block(&mut shard, &mut operation, &self.spin, None)?;
        }
        self.shard.settle(&mut shard);
        Ok(())
    }

    /// Learns what has happened, without waiting.
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
                number => drop(self.due.insert(number as u32)),
            }
        }
        if let Some(poll) = self.poll {
            collect(&mut *self.shard.enter()?, poll, &mut self.due);
        }
        Ok(())
    }

    /// Carries some of what is there, both ways.
    fn carry(&mut self, number: u32) -> Result<Course, Gone> {
        let Carrier {
            shard,
            relays,
            buffer,
            ..
        } = self;
        let Some(relay) = relays.get_mut(&number) else {
            return Ok(Course::Waits);
        };
        let out = relay.carry_out(shard, buffer)?;
        Ok(match out {
            Course::IsOver => out,
            _ => out.max(relay.carry_in(shard, buffer)?),
        })
    }

    /// Carries no more. The end is watched as those of all other holders: nobody
    /// will have the other one, or nothing will come from it.
    fn end(&mut self, number: u32) -> Result<(), Gone> {
        let Some(Relay { id, end, .. }) = self.relays.remove(&number) else {
            return Ok(());
        };
        let mut shard = self.shard.enter()?;
        shard.forget(Event::Connection(id));
        if let Some(poll) = self.poll.take_if(|_| self.relays.is_empty()) {
            shard.close_poll(poll);
        }
        self.shard.settle(&mut shard);
        drop(shard);
        let _ = epoll::delete(&self.descriptors, end.socket());
        let _ = rustix::net::shutdown(end.socket(), Shutdown::Both);
        Ok(())
    }
}

impl Relay {
    /// From the program to its peer.
    fn carry_out(&mut self, way: &OneShard, buffer: &mut [u8]) -> Result<Course, Gone> {
        let socket = self.end.socket();
        if self.is_sent {
            return Ok(match is_alone(socket) {
                true => Course::IsOver,
                false => Course::Waits,
            });
        }
        let peeked = rustix::net::recv(socket, &mut *buffer, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let bytes = match peeked {
            Ok((_, 0)) => {
                self.is_sent = true;
                let mut shard = enter(way)?;
                let now = shard.now;
                // One that has failed is told of on the other way.
                let _ = shard.stack.shutdown(now, self.id, toehold_stack::Shutdown::Write);
                respond(way, &mut shard);
                return Ok(Course::GoesOn);
            }
            Ok((_, len)) => &buffer[..len],
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Course::Waits),
            Err(_) => {
                // It has left without reading everything.
                let mut shard = enter(way)?;
                let _ = shard.stack.abort(self.id);
                respond(way, &mut shard);
                return Ok(Course::IsOver);
            }
        };
        let mut shard = enter(way)?;
        let queued = shard
            .stack
            .send(self.id, bytes, toehold_stack::SendFlags::default());
        respond(way, &mut shard);
        drop(shard);
        match queued {
            Ok(queued) => {
                let taken = rustix::net::recv(socket, &mut buffer[..queued], RecvFlags::DONTWAIT);
                debug_assert!(taken.is_ok());
                Ok(Course::GoesOn)
            }
            Err(error) => Ok(course(error)),
        }
    }

    /// From its peer to the program.
    fn carry_in(&mut self, way: &OneShard, buffer: &mut [u8]) -> Result<Course, Gone> {
        if self.is_delivered {
            return Ok(Course::Waits);
        }
        let peek = ReceiveFlags {
            peek: true,
            urgent: false,
        };
        let mut shard = enter(way)?;
        let received = shard.stack.receive(self.id, buffer, peek);
        respond(way, &mut shard);
        drop(shard);
        let socket = self.end.socket();
        let sent = match received {
            Ok(0) => {
                self.is_delivered = true;
                let _ = rustix::net::shutdown(socket, Shutdown::Write);
                return Ok(Course::Waits);
            }
            Ok(len) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match rustix::net::send(socket, &buffer[..len], flags) {
                    Ok(sent) => sent,
                    Err(Errno::AGAIN | Errno::INTR) => return Ok(Course::Waits),
                    Err(_) if is_alone(socket) => return Ok(Course::IsOver),
                    // It wants to read no more, and the peer does not have to know.
                    Err(_) => len,
                }
            }
            Err(error) => return Ok(course(error)),
        };
        let mut shard = enter(way)?;
        let taken = shard
            .stack
            .receive(self.id, &mut buffer[..sent], ReceiveFlags::default());
        debug_assert_eq!(taken, Ok(sent));
        respond(way, &mut shard);
        Ok(Course::GoesOn)
    }
}

fn enter(way: &OneShard) -> Result<Guard<'_>, Gone> {
    let mut shard = way.enter()?;
    shard.tick();
    Ok(shard)
}

fn respond(way: &OneShard, shard: &mut Guard<'_>) {
    shard.respond();
    way.settle(shard);
}

/// What an error of the stack's means for what is carried.
fn course(error: SocketError) -> Course {
    match error {
        SocketError::WouldBlock | SocketError::InProgress | SocketError::Taken => Course::Waits,
        _ => Course::IsOver,
    }
}

/// Notes whose connections have changed. Whether there are any.
fn collect(shard: &mut Shard, poll: u32, due: &mut BTreeSet<u32>) -> bool {
    let mut any = false;
    shard.collect(poll, EVENTS, &mut |number, _| {
        due.insert(number as u32);
        any = true;
    });
    any
}

/// Waits for the connections and the ends.
struct Wait<'a> {
    poll: u32,
    due: &'a mut BTreeSet<u32>,
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
