//! The connections and listeners that holders stand for.
//!
//! A *holder* is a pair of connected Unix sockets. Programs have one end as the descriptor of a
//! connection or listener. The engine has the other end and sees when no process has the first one
//! any more. The engine gives out their numbers, which are the indices of this table.

use core::sync::atomic::Ordering::Release;
use core::sync::atomic::compiler_fence;

use toehold_shm::{Carver, OutOfMemory, Table};
use toehold_stack::Event;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Record {
    /// The word of a connection or listener; 0: of none.
    source: u64,
    /// The process that took it last.
    process: u16,
    /// 1: a program has waited for it on the node.
    attended: u16,
    /// 1: the engine carries the bytes between the connection and its descriptor.
    relayed: u32,
}

/// Bounds the looks, so that no thread looks at memory that was never used, which would take it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    /// No holder from this number on has ever stood for anything.
    touched: u32,
    /// The number of holders that stand for something.
    used: u32,
    /// The number of those for which the engine carries bytes.
    relayed: u32,
    /// Connections of its own for which it does.
    callers: u32,
}

impl Head {
    /// Takes a record's relaying out of the count, since it stands for nothing, or for something
    /// else.
    #[inline]
    fn forget(&mut self, record: &mut Record) {
        self.relayed = self.relayed.wrapping_sub(record.relayed);
        record.relayed = 0;
    }
}

/// The connections and listeners that the holders of all processes of a node stand for.
#[derive(Debug)]
pub(crate) struct Holders {
    head: Table<Head>,
    records: Table<Record>,
}

impl Holders {
    pub(crate) fn bytes_needed(capacity: u32) -> usize {
        Table::<Head>::bytes_needed(1) + Table::<Record>::bytes_needed(capacity as usize)
    }

    pub(crate) fn create(carver: &mut Carver, capacity: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            head: carver.table(1)?,
            records: carver.table(capacity as usize)?,
        })
    }

    /// Lets the holder stand for a source from now on. Returns `false` if there is no such holder.
    #[inline]
    pub(crate) fn set(&mut self, number: u32, process: u16, source: Event) -> bool {
        let Some(record) = self.records.get_mut(number as usize) else {
            return false;
        };
        let head = &mut self.head[0];
        if record.source == 0 {
            head.used = head.used.wrapping_add(1);
        }
        head.touched = head.touched.max(number + 1);
        record.process = process;
        record.attended = 0;
        head.forget(record);
        // A process that is killed leaves a record that is whole, or that stands for what it did
        // before.
        compiler_fence(Release);
        record.source = source.word();
        true
    }

    /// Notes that a program waits on the node for what the holder stands for, or is told of it
    /// there.
    #[inline]
    pub(crate) fn attend(&mut self, number: u32) {
        if let Some(record) = self.records.get_mut(number as usize) {
            record.attended = 1;
        }
    }

    /// Whether any has ever done so.
    pub(crate) fn is_attended(&self, number: u32) -> bool {
        let record = self.records.get(number as usize);
        record.is_some_and(|record| record.attended != 0)
    }

    /// Lets a holder stand for a connection whose bytes the engine carries, from now on.
    pub(crate) fn relay(&mut self, number: u32, source: Event) {
        if let Some(record) = self.records.get_mut(number as usize) {
            record.source = source.word();
            let head = &mut self.head[0];
            head.forget(record);
            head.relayed = head.relayed.wrapping_add(1);
            record.relayed = 1;
        }
    }

    /// Counts a connection for which the engine carries bytes, and that no holder stands for; or
    /// counts it no more.
    pub(crate) fn count_caller(&mut self, is_there: bool) {
        let callers = &mut self.head[0].callers;
        *callers = match is_there {
            true => callers.wrapping_add(1),
            false => callers.wrapping_sub(1),
        };
    }

    /// The connection whose bytes the engine carries to and from the holder's descriptor, if
    /// it does.
    #[inline]
    pub(crate) fn relayed(&self, number: u32) -> Option<Event> {
        let record = self.records.get(number as usize)?;
        (record.relayed != 0).then(|| self.get(number)).flatten()
    }

    /// The number of holders that stand for something.
    pub(crate) fn len(&self) -> u32 {
        self.head[0].used
    }

    /// The number of connections whose bytes the engine carries: those of holders, and those of its
    /// own.
    pub(crate) fn relays(&self) -> u32 {
        self.head[0].relayed.wrapping_add(self.head[0].callers)
    }

    /// Leaves counts as no change does, finished or not.
    #[cfg(test)]
    pub(super) fn disturb(&mut self, random: &mut impl FnMut() -> u64) {
        let head = &mut self.head[0];
        (head.used, head.relayed) = (random() as u32, random() as u32);
    }

    /// Counts anew after a process died in the middle of a change.
    pub(super) fn mend(&mut self) {
        let Holders { head, records } = self;
        let head = &mut head[0];
        (head.used, head.relayed) = (0, 0);
        for record in records.iter_mut().take(head.touched as usize) {
            record.relayed = u32::from(record.relayed != 0 && record.source != 0);
            head.used += u32::from(record.source != 0);
            head.relayed += record.relayed;
        }
    }

    /// The connection or listener that the holder stands for.
    pub(crate) fn get(&self, number: u32) -> Option<Event> {
        let record = self.records.get(number as usize)?;
        (record.source != 0).then(|| Event::from_word(record.source))
    }

    /// Takes the connection or listener from the holder, which stands for nothing from now on.
    #[inline]
    pub(crate) fn take(&mut self, number: u32) -> Option<Event> {
        let source = self.get(number)?;
        let record = &mut self.records[number as usize];
        record.source = 0;
        let head = &mut self.head[0];
        head.forget(record);
        head.used = head.used.wrapping_sub(1);
        Some(source)
    }

    /// Whether one of them stands for it.
    pub(crate) fn have(&self, source: Event) -> bool {
        self.owners().any(|(held, _)| held == source)
    }

    /// The connections and listeners, with the processes that have them.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (Event, u16)> {
        self.held().map(|(_, source, process)| (source, process))
    }

    /// The connections and listeners that holders stand for: the holder's number, the source and
    /// its process.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u32, Event, u16)> {
        let touched = self.records.iter().take(self.head[0].touched as usize);
        let used = (0..).zip(touched).filter(|(_, record)| record.source != 0);
        used.map(|(number, record)| (number, Event::from_word(record.source), record.process))
    }
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;

    use super::*;

    #[test]
    fn a_holder_stands_for_one_thing_until_that_is_taken() {
        let region = Region::private(Holders::bytes_needed(4)).unwrap();
        let mut holders = Holders::create(&mut Carver::new(region).unwrap(), 4).unwrap();
        let source = |number| Event::from_word(1_u64 << 32 | number);
        assert!(holders.set(0, 2, source(5)) && holders.set(3, 4, source(6)));
        assert!(!holders.set(4, 2, source(7)));
        assert_eq!(
            holders.owners().collect::<Vec<_>>(),
            [(source(5), 2), (source(6), 4)]
        );
        assert_eq!(holders.get(3), Some(source(6)));
        holders.attend(3);
        assert_eq!(
            [0, 3, 4].map(|number| holders.is_attended(number)),
            [false, true, false]
        );
        assert_eq!(holders.relayed(3), None);
        holders.relay(3, source(8));
        assert_eq!(
            (holders.get(3), holders.relayed(3)),
            (Some(source(8)), Some(source(8)))
        );
        assert_eq!((holders.len(), holders.relays()), (2, 1));
        holders.count_caller(true);
        assert_eq!((holders.len(), holders.relays()), (2, 2));
        holders.count_caller(false);
        assert_eq!(holders.take(3), Some(source(8)));
        assert_eq!(holders.relayed(3), None);
        assert_eq!(holders.relays(), 0);
        assert!(holders.set(3, 4, source(6)));
        assert_eq!(holders.relayed(3), None, "another connection");
        assert!(!holders.is_attended(3), "another connection");
        assert_eq!(holders.take(3), Some(source(6)));
        assert_eq!(
            (holders.get(3), holders.take(3), holders.take(9)),
            (None, None, None)
        );
        assert_eq!((holders.owners().count(), holders.len()), (1, 1));
    }
}
