//! Direct connections as a node has them: its banks, and which of its listeners take part.
//!
//! A direct connection carries its bytes through memory that both nodes map, without the stack
//! and without the lease (`toehold_shm::direct`). The engine makes that memory, exchanges it with
//! peers, and closes ends whose holders are gone. Processes map a bank when they first use it.
//!
//! | file | what |
//! | --- | --- |
//! | `table` | which banks there are, and to which addresses they lead |
//! | `bank`, `banks` | a bank as a process has mapped it, and how a process finds one |
//! | `bells`, `ear` | descriptors by which waiters are rung, and how one listens to its own |
//! | `listener_words` | what a listener is for peers, and connections over TCP that wait there |
//! | `published` | the listeners that peers see |
//! | `end` | what a holder stands for |
//! | `ports` | the ports of connecting ends |
//! | `connect`, `accept` | how connections are opened, accepted and closed |
//! | `own`, `waiting` | what a thread has, and how it waits |
//! | `recording` | what a capture is told |
//! | `counts` | what is counted |

mod accept;
mod bank;
mod banks;
mod bells;
mod connect;
mod counts;
mod ear;
mod end;
mod listener_words;
mod own;
mod ports;
mod published;
mod recording;
mod table;
#[cfg(test)]
mod tests;
mod waiting;

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use toehold_link::capture::SharedTap;
use toehold_shm::direct::{Directory, Journal, ListenerId, WaiterNumber, Waiters};
use toehold_shm::{Carver, Doorbell, OutOfMemory};
use toehold_stack::{AcceptLengths, Config};

pub(crate) use self::accept::{Closing, close, free_if_over};
pub use self::bank::Bank;
pub(crate) use self::bank::Own;
pub(crate) use self::banks::{Banks, MappedBanks};
pub use self::bells::BellsOf;
pub(crate) use self::bells::{BellKeeper, BellSource, LazyBells};
pub(crate) use self::connect::FEW;
pub use self::connect::{ConnectFailure, Opened};
pub use self::counts::Count;
pub(crate) use self::counts::Counts;
pub use self::ear::{Ear, LOOK_AGAIN};
pub use self::end::DirectEnd;
pub(crate) use self::listener_words::{ListenerBell, ListenerWords};
use self::own::Part;
pub(crate) use self::ports::{Ports, share_out};
pub(crate) use self::published::{Published, Records};
pub(crate) use self::recording::DirectTape;
pub(crate) use self::table::{Addresses, BankTable, Entry, OWN, SLOTS, may_come};
pub use self::waiting::{Bed, DirectWait, RungBy, WaitError, WaitTarget, end_own_sleep};

/// The words that processes share outside of the lease, and the tape of captures.
#[derive(Debug)]
pub(crate) struct SharedWords {
    pub(crate) table: BankTable,
    pub(crate) counts: Counts,
    pub(crate) ports: Ports,
    pub(crate) listeners: ListenerWords,
    pub(crate) tap: Arc<SharedTap>,
}

/// What lies in the region of a node's first shard for direct connections.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) shared: SharedWords,
    pub(crate) records: Records,
}

impl Pieces {
    /// Bytes that a node needs for direct connections, whose stack has these settings.
    pub(crate) fn bytes_needed(stack: &Config) -> usize {
        let words = BankTable::bytes_needed()
            + Counts::bytes_needed()
            + Ports::bytes_needed(&stack.tcp)
            + ListenerWords::bytes_needed(stack.listeners);
        words + SharedTap::bytes_needed() + Records::bytes_needed()
    }

    pub(crate) fn create(carver: &mut Carver, stack: &Config) -> Result<Pieces, OutOfMemory> {
        Ok(Pieces {
            shared: SharedWords {
                table: BankTable::create(carver)?,
                counts: Counts::create(carver)?,
                ports: Ports::create(carver, &stack.tcp)?,
                listeners: ListenerWords::create(carver, stack.listeners)?,
                tap: Arc::new(SharedTap::create(carver)?),
            },
            records: Records::create(carver)?,
        })
    }
}

/// Gets the descriptors of a bank from the engine.
type Ask = dyn Fn(&Entry) -> Option<Vec<OwnedFd>> + Send + Sync;

/// An epoch of the table, and the banks then in which peers open connections.
type Accepting = (u64, Arc<[Arc<Bank>]>);

/// One process's part in the direct connections of its node.
pub struct Direct {
    /// Tells this part from others that the process has, or had.
    part: Arc<Part>,
    banks: Banks,
    counts: Counts,
    ports: Ports,
    listeners: ListenerWords,
    /// The lengths of accept queues, of each shard.
    accept_lengths: Vec<AcceptLengths>,
    /// Ends that this process has closed.
    closing: Closing,
    /// The banks in which peers open connections, as of an epoch of the table.
    accepting: Mutex<Option<Accepting>>,
    /// The bank in which the next connection is looked for first.
    turn: AtomicUsize,
    /// Wakes the engine's thread that makes banks.
    engine: Arc<Doorbell>,
    /// The number of this process in the node.
    process: u16,
    ask: Box<Ask>,
}

impl Direct {
    pub(crate) fn new(
        banks: Banks,
        (counts, ports): (Counts, Ports),
        (listeners, accept_lengths): (ListenerWords, Vec<AcceptLengths>),
        engine: Arc<Doorbell>,
        process: u16,
        ask: Box<Ask>,
    ) -> Direct {
        Direct {
            part: Part::new(banks.own().waiters.clone()),
            banks,
            counts,
            ports,
            listeners,
            accept_lengths,
            closing: Closing::default(),
            accepting: Mutex::default(),
            turn: AtomicUsize::new(0),
            engine,
            process,
            ask,
        }
    }

    /// The banks in which connections to an address are opened, mapped. If there are none, such
    /// connections are made over TCP.
    pub fn towards(&self, address: IpAddr) -> Vec<Arc<Bank>> {
        self.map(self.banks.towards(address))
    }

    /// The banks in which peers, and this node itself, open connections to this node, mapped.
    pub fn accepting(&self) -> Arc<[Arc<Bank>]> {
        let epoch = self.banks.epoch();
        let mut known = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((of, banks)) if *of == epoch => return Arc::clone(banks),
            _ => {}
        }
        let entries = self.banks.accepting();
        let count = entries.len();
        let banks: Arc<[Arc<Bank>]> = self.map(entries).into();
        // What cannot be mapped now may be later.
        *known = (banks.len() == count).then(|| (epoch, Arc::clone(&banks)));
        banks
    }

    /// The bank of an end, mapped. Returns `None` if its peer is long gone, or this process cannot
    /// map it.
    pub fn bank_of(&self, end: DirectEnd) -> Option<Arc<Bank>> {
        let entry = self.banks.entry(end.slot)?;
        self.map(vec![entry]).pop()
    }

    /// Whether the other side of a bank is there.
    #[inline]
    pub fn is_there(&self, bank: &Bank) -> bool {
        self.banks.is_there(bank)
    }

    /// Maps banks. One that this process cannot map is left out and counted.
    fn map(&self, entries: Vec<Entry>) -> Vec<Arc<Bank>> {
        let map = |entry: &Entry| {
            let bank = self.banks.map(entry, &self.ask);
            if bank.is_none() {
                self.count(Count::TcpMemory, 1);
            }
            bank
        };
        entries.iter().filter_map(map).collect()
    }

    /// This node's listeners and waiters.
    #[inline]
    pub fn directory(&self) -> &Directory {
        self.banks.own().waiters.directory()
    }

    /// The journal of the steps of this node's threads.
    #[inline]
    pub fn journal(&self) -> &Journal {
        self.banks.own().waiters.journal()
    }

    /// The number of this process in the node.
    #[inline]
    pub fn process(&self) -> u16 {
        self.process
    }

    /// This node's threads and epoll instances that wait.
    #[inline]
    pub fn waiters(&self) -> &Waiters {
        &self.banks.own().waiters
    }

    /// How many connections over TCP wait at a listener that takes direct ones, too. Takes no
    /// lease: there may be more or fewer when it returns. Connections of other shards than the
    /// first one count once [`Direct::listener`] was told of those.
    #[inline]
    pub fn tcp_waiting(&self, listener: ListenerId) -> u32 {
        let lengths = (0..).zip(&self.accept_lengths).filter_map(|(shard, lengths)| {
            let index = self.listeners.index_in(listener, shard)?;
            Some(lengths.at(index))
        });
        lengths.fold(0, u32::saturating_add)
    }

    /// The descriptor that becomes readable when a process of this node rings a waiter of it that
    /// sleeps on descriptors. It stays readable: see [`Ear`]. Returns `None` if this process has no
    /// descriptors left, or the engine does not answer.
    pub fn local_bell(&self, waiter: WaiterNumber) -> Option<BorrowedFd<'_>> {
        self.banks.own().bells.bell_of(waiter)
    }

    /// The id by which peers know a listener of the node, given its id in each shard, the first
    /// shard first. Takes no lease. Returns `None` if it takes connections over TCP only, at
    /// present. It may be another one later, since a listener is published anew after it was kept
    /// out, or mended.
    #[inline]
    pub fn listener(&self, ids: &[toehold_stack::ListenerId]) -> Option<ListenerId> {
        let listener = self.listeners.get(*ids.first()?)?;
        self.listeners.link(ids);
        Some(listener)
    }

    fn next_bank(&self) -> usize {
        self.turn.fetch_add(1, Relaxed)
    }

    /// Counts something.
    #[inline]
    pub fn count(&self, count: Count, more: u64) {
        self.counts.add(self.process, count, more);
    }
}
