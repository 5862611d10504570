//! Which process has which connection, listener or poll: what is to be closed
//! when a process ends without having done so.

use toehold_shm::{Carver, OutOfMemory, Slab};
use toehold_stack::Event;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Record {
    /// The word of a connection or listener, or a poll's index.
    what: u64,
    process: u32,
    /// Not 0: it is a poll.
    is_poll: u32,
}

/// Something a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Possession {
    /// A connection or listener.
    Source(Event),
    /// A poll.
    Poll(u32),
}

/// The possessions of all processes of a node.
#[derive(Debug)]
pub(crate) struct Owners {
    records: Slab<Record>,
}

impl Owners {
    pub(crate) fn bytes_needed(capacity: u32) -> usize {
        Slab::<Record>::bytes_needed(capacity)
    }

    pub(crate) fn create(carver: &mut Carver, capacity: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            records: carver.slab(capacity)?,
        })
    }

    pub(crate) fn len(&self) -> u32 {
        self.records.len()
    }

    /// Notes who has it; `None` if there is no room for that.
    pub(crate) fn insert(&mut self, process: u16, possession: Possession) -> Option<u32> {
        let (what, is_poll) = match possession {
            Possession::Source(source) => (source.word(), 0),
            Possession::Poll(poll) => (poll.into(), 1),
        };
        self.records.insert(Record {
            what,
            process: process.into(),
            is_poll,
        })
    }

    /// It was closed.
    pub(crate) fn remove(&mut self, record: u32) {
        self.records.remove(record);
    }

    /// Takes all that a process had.
    pub(crate) fn take(&mut self, process: u16) -> Vec<Possession> {
        let records = self.records.iter_live();
        let own = records.filter(|(_, record)| record.process == u32::from(process));
        let own: Vec<(u32, Record)> = own.map(|(index, record)| (index, *record)).collect();
        let possession = |(index, record): (u32, Record)| {
            self.records.remove(index);
            if record.is_poll == 0 {
                Possession::Source(Event::from_word(record.what))
            } else {
                Possession::Poll(record.what as u32)
            }
        };
        own.into_iter().map(possession).collect()
    }

    /// Whose a connection or listener is.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (Event, u16)> {
        let records = self.records.iter_live().map(|(_, record)| record);
        let sources = records.filter(|record| record.is_poll == 0);
        sources.map(|record| (Event::from_word(record.what), record.process as u16))
    }
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;

    use super::*;

    #[test]
    fn what_a_process_had_is_taken_once() {
        let region = Region::private(Owners::bytes_needed(8)).unwrap();
        let mut owners = Owners::create(&mut Carver::new(region).unwrap(), 8).unwrap();
        let source = |number| Possession::Source(Event::from_word(1_u64 << 32 | number));
        owners.insert(2, source(1)).unwrap();
        owners.insert(3, source(2)).unwrap();
        owners.insert(2, Possession::Poll(7)).unwrap();
        let closed = owners.insert(2, source(3)).unwrap();
        owners.remove(closed);
        assert_eq!(owners.owners().count(), 2);
        assert_eq!(owners.take(2), [source(1), Possession::Poll(7)]);
        assert!(owners.take(2).is_empty());
        assert_eq!(owners.take(3), [source(2)]);
    }
}
