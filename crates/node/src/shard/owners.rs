//! The processes that have polls: a poll is to be closed when its process ends without having done
//! so.

use toehold_shm::{Carver, OutOfMemory, Slab};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Record {
    poll: u32,
    process: u32,
}

/// The polls of all processes of a node.
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

    /// Notes the process that has it; `None` if there is no room for that.
    pub(crate) fn insert(&mut self, process: u16, poll: u32) -> Option<u32> {
        let process = process.into();
        self.records.insert(Record { poll, process })
    }

    /// Removes the record of a poll that was closed.
    pub(crate) fn remove(&mut self, record: u32) {
        self.records.remove(record);
    }

    /// The polls of a process.
    pub(crate) fn of(&self, process: u16) -> impl Iterator<Item = u32> {
        self.records_of(process).map(|(_, poll)| poll)
    }

    /// Keeps the records whose polls are open, after a process died in the middle of a change.
    pub(super) fn mend(&mut self, is_open: impl Fn(u32) -> bool) {
        self.records.mend(|_, record| is_open(record.poll));
    }

    /// The polls that a process has.
    pub(super) fn polls(&self) -> impl Iterator<Item = u32> {
        self.records.iter_live().map(|(_, record)| record.poll)
    }

    /// Takes all that a process had.
    pub(crate) fn take(&mut self, process: u16) -> Vec<u32> {
        let own: Vec<(u32, u32)> = self.records_of(process).collect();
        let take = |(index, poll)| {
            self.records.remove(index);
            poll
        };
        own.into_iter().map(take).collect()
    }

    fn records_of(&self, process: u16) -> impl Iterator<Item = (u32, u32)> {
        let records = self.records.iter_live();
        let own = records.filter(move |(_, record)| record.process == u32::from(process));
        own.map(|(index, record)| (index, record.poll))
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
        owners.insert(2, 1).unwrap();
        owners.insert(3, 2).unwrap();
        owners.insert(2, 7).unwrap();
        let closed = owners.insert(2, 3).unwrap();
        owners.remove(closed);
        assert_eq!(owners.of(2).collect::<Vec<_>>(), [1, 7]);
        assert_eq!(owners.take(2), [1, 7]);
        assert!(owners.take(2).is_empty());
        assert_eq!(owners.take(3), [2]);
    }
}
