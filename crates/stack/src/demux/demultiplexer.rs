//! The strategy chosen in the configuration.

use toehold_shm::{Carver, OutOfMemory, Table};

use super::{
    Bsd, Demux, DemuxStrategy, FlowIndex, FlowTable, Full, HashedMoveToFront, MoveToFront, Observer, Sequent,
    Tuples, Unobserved,
};
use crate::counters::DemuxCounters;
use crate::keyed::{Key, Purpose};
use crate::tuple::FourTuple;

/// One of the strategies.
#[derive(Debug)]
pub enum Chosen {
    /// A list with a cache.
    Bsd(Bsd),
    /// A list in the order of last use.
    MoveToFront(MoveToFront),
    /// Hash chains with a cache each.
    Sequent(Sequent),
    /// Hash chains in the order of last use.
    HashedMoveToFront(HashedMoveToFront),
    /// Buckets of one cache line.
    FlowTable(FlowTable),
}

/// Makes one call on the chosen strategy.
macro_rules! chosen {
    ($self:expr, $strategy:ident => $call:expr) => {
        match $self {
            Chosen::FlowTable($strategy) => $call,
            Chosen::Bsd($strategy) => $call,
            Chosen::MoveToFront($strategy) => $call,
            Chosen::Sequent($strategy) => $call,
            Chosen::HashedMoveToFront($strategy) => $call,
        }
    };
}

impl Chosen {
    /// Bytes of a region that a strategy takes for ids below `capacity`.
    pub fn bytes_needed(strategy: DemuxStrategy, capacity: u32) -> usize {
        match strategy {
            DemuxStrategy::Bsd => Bsd::bytes_needed(1, capacity),
            DemuxStrategy::MoveToFront => MoveToFront::bytes_needed(1, capacity),
            DemuxStrategy::Sequent { chains } => Sequent::bytes_needed(chains, capacity),
            DemuxStrategy::HashedMoveToFront { chains } => HashedMoveToFront::bytes_needed(chains, capacity),
            DemuxStrategy::FlowTable => FlowTable::bytes_needed(capacity),
        }
    }

    /// Creates an empty table, or attaches to the existing one.
    pub fn create(
        carver: &mut Carver,
        strategy: DemuxStrategy,
        capacity: u32,
        secret: &[u8; 16],
    ) -> Result<Self, OutOfMemory> {
        Ok(match strategy {
            DemuxStrategy::Bsd => Self::Bsd(Bsd::create(carver, 1, capacity, secret)?),
            DemuxStrategy::MoveToFront => {
                Self::MoveToFront(MoveToFront::create(carver, 1, capacity, secret)?)
            }
            DemuxStrategy::Sequent { chains } => {
                Self::Sequent(Sequent::create(carver, chains, capacity, secret)?)
            }
            DemuxStrategy::HashedMoveToFront { chains } => {
                Self::HashedMoveToFront(HashedMoveToFront::create(carver, chains, capacity, secret)?)
            }
            DemuxStrategy::FlowTable => Self::FlowTable(FlowTable::create(carver, capacity, secret)?),
        })
    }
}

impl Demux for Chosen {
    #[inline]
    fn lookup<T: Tuples + ?Sized>(
        &mut self,
        tuple: &FourTuple,
        tuples: &T,
        observer: &mut impl Observer,
    ) -> Option<u32> {
        chosen!(self, strategy => strategy.lookup(tuple, tuples, observer))
    }

    fn lookup_burst<T: Tuples + ?Sized>(
        &mut self,
        wanted: &[FourTuple],
        ids: &mut [u32],
        tuples: &T,
        observer: &mut impl Observer,
    ) {
        chosen!(self, strategy => strategy.lookup_burst(wanted, ids, tuples, observer));
    }

    fn guess_burst(&self, wanted: &[FourTuple], guessed: impl FnMut(u32)) {
        chosen!(self, strategy => strategy.guess_burst(wanted, guessed));
    }

    fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full> {
        chosen!(self, strategy => strategy.insert(id, tuples))
    }

    fn remove<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> bool {
        chosen!(self, strategy => strategy.remove(id, tuples))
    }

    fn forget(&mut self) {
        chosen!(self, strategy => strategy.forget());
    }

    fn len(&self) -> u32 {
        chosen!(self, strategy => strategy.len())
    }
}

/// The strategy of a stack. Ids below a number stand for connections; higher ids stand for the
/// records that closed connections leave. It counts its work if the configuration asks for it.
///
/// The flow table keeps both kinds in the same buckets, so that any segment takes one look-up. The
/// paper's strategies hold connections only, as the paper counts them; an index beside them holds
/// the records.
#[derive(Debug)]
pub struct Demultiplexer {
    chosen: Chosen,
    /// The first id of a record and the index of all records, where the strategy does not hold
    /// them.
    beside: Option<(u32, FlowIndex)>,
    counters: Option<Table<DemuxCounters>>,
}

impl Demultiplexer {
    /// Bytes of a region that a strategy takes for this many connections and records.
    pub fn bytes_needed(strategy: DemuxStrategy, connections: u32, records: u32) -> usize {
        let ids = match strategy {
            DemuxStrategy::FlowTable => Chosen::bytes_needed(strategy, connections + records),
            _ => Chosen::bytes_needed(strategy, connections) + FlowIndex::bytes_needed(records),
        };
        ids + Table::<DemuxCounters>::bytes_needed(1)
    }

    /// The part of [`Demultiplexer::bytes_needed`] that connections do not touch without an attack.
    pub fn bytes_in_reserve(strategy: DemuxStrategy, connections: u32) -> usize {
        match strategy {
            DemuxStrategy::FlowTable => FlowIndex::bytes_in_reserve(connections),
            _ => 0,
        }
    }

    /// Creates an empty table, or attaches to the existing one.
    pub fn create(
        carver: &mut Carver,
        strategy: DemuxStrategy,
        counted: bool,
        (connections, records): (u32, u32),
        secret: &[u8; 16],
    ) -> Result<Self, OutOfMemory> {
        let counters = carver.table(1)?;
        let (chosen, beside) = match strategy {
            DemuxStrategy::FlowTable => {
                let both = connections + records;
                (Chosen::create(carver, strategy, both, secret)?, None)
            }
            _ => {
                let key = Key::derive(secret, Purpose::TimeWaits);
                let chosen = Chosen::create(carver, strategy, connections, secret)?;
                let beside = FlowIndex::create(carver, records, key)?;
                (chosen, Some((connections, beside)))
            }
        };
        Ok(Self {
            chosen,
            beside,
            counters: counted.then_some(counters),
        })
    }

    /// The id of a tuple, see [`Demux::lookup`].
    #[inline]
    pub fn lookup<T: Tuples + ?Sized>(&mut self, tuple: &FourTuple, tuples: &T) -> Option<u32> {
        // Two branches decide the default configuration here; they always go the same way.
        match (&mut self.chosen, &self.counters) {
            (Chosen::FlowTable(table), None) => table.lookup(tuple, tuples, &mut Unobserved),
            _ => self.lookup_otherwise(tuple, tuples),
        }
    }

    #[inline(never)]
    fn lookup_otherwise<T: Tuples + ?Sized>(&mut self, tuple: &FourTuple, tuples: &T) -> Option<u32> {
        let found = match &mut self.counters {
            Some(counters) => self.chosen.lookup(tuple, tuples, &mut counters[0]),
            None => self.chosen.lookup(tuple, tuples, &mut Unobserved),
        };
        found.or_else(|| {
            let (_, beside) = self.beside.as_ref().filter(|(_, beside)| beside.len() > 0)?;
            beside.find(tuple, tuples, &mut Unobserved)
        })
    }

    /// The ids that tuples probably have, see [`Demux::guess_burst`].
    pub fn guess_burst(&self, wanted: &[FourTuple], guessed: impl FnMut(u32)) {
        self.chosen.guess_burst(wanted, guessed);
    }

    /// The index that takes an id of a record.
    fn beside(&mut self, id: u32) -> Option<&mut FlowIndex> {
        self.beside
            .as_mut()
            .filter(|(first, _)| id >= *first)
            .map(|(_, beside)| beside)
    }

    /// Inserts an id, see [`Demux::insert`].
    pub fn insert<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> Result<(), Full> {
        match self.beside(id) {
            Some(beside) => beside.insert(id, tuples),
            None => self.chosen.insert(id, tuples),
        }
    }

    /// Removes an id, see [`Demux::remove`].
    pub fn remove<T: Tuples + ?Sized>(&mut self, id: u32, tuples: &T) -> bool {
        match self.beside(id) {
            Some(beside) => beside.remove(id, tuples),
            None => self.chosen.remove(id, tuples),
        }
    }

    /// Removes all ids, see [`Demux::forget`].
    pub fn forget(&mut self) {
        self.chosen.forget();
        if let Some((_, beside)) = &mut self.beside {
            beside.forget();
        }
    }

    /// The work so far, if it is counted.
    pub fn counters(&self) -> Option<&DemuxCounters> {
        self.counters.as_ref().map(|counters| &counters[0])
    }
}
