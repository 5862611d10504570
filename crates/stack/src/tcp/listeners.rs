//! All listeners of a stack, and their index by port.

use core::ops::{Index, IndexMut};

use toehold_shm::{Carver, OutOfMemory, Table};

use super::listener::{Listener, Scope};
use crate::keyed::Keys;
use crate::socket::{AcceptLengths, Event, ListenerId, SocketError};
use crate::tuple::{Address, FourTuple};

/// Buckets of listeners by port.
const BUCKETS: usize = 256;

/// Every listener of a stack.
pub(crate) struct Listeners {
    records: Table<Listener>,
    accept_lengths: AcceptLengths,
    /// Heads of the lists of listeners by port, plus one; 0: none.
    buckets: Table<u32>,
}

impl Index<u32> for Listeners {
    type Output = Listener;

    fn index(&self, index: u32) -> &Listener {
        &self.records[index as usize]
    }
}

impl IndexMut<u32> for Listeners {
    fn index_mut(&mut self, index: u32) -> &mut Listener {
        &mut self.records[index as usize]
    }
}

impl Listeners {
    pub(super) fn bytes_needed(listeners: u32) -> usize {
        Table::<Listener>::bytes_needed(listeners as usize)
            + AcceptLengths::bytes_needed(listeners)
            + Table::<u32>::bytes_needed(BUCKETS)
    }

    pub(super) fn create(carver: &mut Carver, listeners: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            records: carver.table(listeners as usize)?,
            accept_lengths: AcceptLengths::create(carver, listeners)?,
            buckets: carver.table(BUCKETS)?,
        })
    }

    /// The number of slots, whether in use or free.
    pub(super) fn capacity(&self) -> u32 {
        self.records.len() as u32
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Listener> {
        self.records.get_mut(index as usize)
    }

    /// The lengths of the accept queues, for calls without the stack.
    pub(crate) fn accept_lengths(&self) -> &AcceptLengths {
        &self.accept_lengths
    }

    /// The slot of a program's id.
    pub(crate) fn resolve(&self, id: ListenerId) -> Result<u32, SocketError> {
        match self.records.get(id.index as usize) {
            Some(l) if l.is_open() && l.generation == id.generation => Ok(id.index),
            _ => Err(SocketError::NotFound),
        }
    }

    /// Every open listener.
    pub(crate) fn open(&self) -> impl Iterator<Item = ListenerId> {
        let listeners = self.records.iter().zip(0..);
        let open = listeners.filter(|(listener, _)| listener.is_open());
        open.map(|(listener, index)| ListenerId {
            index,
            generation: listener.generation,
        })
    }

    /// A slot without a listener and without a pending event.
    pub(super) fn free_slot(&self) -> Option<u32> {
        let free = |l: &Listener| !l.is_open() && l.on_events == 0;
        self.records.iter().position(free).map(|index| index as u32)
    }

    /// Whether a new listener with this scope and port would conflict with one that is open.
    /// Listeners that all share the port do not conflict.
    pub(super) fn conflict(&self, scope: &Scope, port: u16, shares: bool) -> bool {
        let conflicts = |l: &Listener| l.conflicts(scope, port) && !(shares && l.may_share());
        self.records.iter().any(conflicts)
    }

    /// Chooses a port from `first` to `last` on which no listener conflicts with this scope. The
    /// search begins at a place that the random number decides.
    pub(super) fn free_port(&self, scope: &Scope, (first, last): (u16, u16), random: u64) -> Option<u16> {
        let count = u64::from(last - first) + 1;
        (0..count)
            .map(|i| first + ((random % count + i) % count) as u16)
            .find(|&port| !self.conflict(scope, port, false))
    }

    /// The listener for a tuple's local end. An exact match comes before one for the family, and
    /// that before one for both families.
    pub(super) fn find(&self, tuple: &FourTuple, keys: &Keys) -> Option<u32> {
        let (address, port) = (tuple.local, tuple.local_port);
        let found = self
            .with_port(port)
            .filter(|&index| self[index].takes(address, port))
            .min_by_key(|&index| {
                let own = self[index].address;
                (own != address, own == Address::UNSPECIFIED)
            })?;
        let first = &self[found];
        if first.may_share() {
            self.one_that_shares(first, tuple, keys).or(Some(found))
        } else {
            Some(found)
        }
    }

    /// Chooses a listener among those that share an address and port, or among the preferred ones
    /// if there are any. The choice is the same for every segment of a handshake, as long as no
    /// listener comes or goes.
    #[cold]
    fn one_that_shares(&self, one: &Listener, tuple: &FourTuple, keys: &Keys) -> Option<u32> {
        let sharing = |preferred: bool| {
            self.with_port(one.port).filter(move |&index| {
                let listener = &self[index];
                listener.is_open()
                    && (listener.address, listener.port) == (one.address, one.port)
                    && listener.may_share()
                    && (!preferred || listener.is_preferred())
            })
        };
        let preferred = sharing(true).next().is_some();
        let chosen = keys.listener_of(tuple, sharing(preferred).count());
        sharing(preferred).nth(chosen)
    }

    /// The listener that takes over a connection of a closed listener.
    pub(super) fn heir_of(&self, closed: u32, tuple: &FourTuple, keys: &Keys) -> Option<u32> {
        let listener = &self[closed];
        listener
            .may_share()
            .then(|| self.one_that_shares(listener, tuple, keys))?
    }

    /// The number of listeners for an address and port.
    pub(crate) fn count_at(&self, address: Address, port: u16) -> usize {
        self.with_port(port)
            .filter(|&index| self[index].takes(address, port))
            .count()
    }

    /// Indices of the listeners whose port falls into the same bucket.
    fn with_port(&self, port: u16) -> impl Iterator<Item = u32> + '_ {
        let first = self.buckets[bucket_of(port)].checked_sub(1);
        let next = |&i: &u32| self[i].bucket_next.checked_sub(1);
        // Another process may have damaged the memory, so that the chain has a cycle.
        std::iter::successors(first, next).take(self.records.len())
    }

    /// Enters a listener into the index by port.
    pub(super) fn enter(&mut self, index: u32) {
        let record = &mut self.records[index as usize];
        let bucket = &mut self.buckets[bucket_of(record.port)];
        record.bucket_next = std::mem::replace(bucket, index + 1);
    }

    /// Removes a listener from the index by port.
    pub(super) fn leave(&mut self, index: u32) {
        let listener = self[index];
        let bucket = bucket_of(listener.port);
        if self.buckets[bucket] == index + 1 {
            self.buckets[bucket] = listener.bucket_next;
            return;
        }
        let previous = self
            .with_port(listener.port)
            .find(|&i| self[i].bucket_next == index + 1);
        if let Some(previous) = previous {
            self[previous].bucket_next = listener.bucket_next;
        }
    }

    /// Lets calls without the stack see how many connections wait.
    pub(super) fn note_accept_length(&self, index: u32) {
        self.accept_lengths.set(index, self[index].queue_len);
    }

    /// Empties every listener's queue and rebuilds the index by port.
    pub(super) fn mend(&mut self) {
        self.buckets.fill(0);
        for index in 0..self.capacity() {
            self[index].forget();
            self.note_accept_length(index);
            if self[index].is_open() {
                self.enter(index);
            }
        }
    }

    /// The event that announces an open listener.
    pub(super) fn event_of(&self, index: u32) -> Option<Event> {
        let records = &self.records;
        let listener = records
            .get(index as usize)
            .filter(|listener| listener.is_open())?;
        let generation = listener.generation;
        Some(Event::Listener(ListenerId { index, generation }))
    }
}

fn bucket_of(port: u16) -> usize {
    usize::from(port) % BUCKETS
}
