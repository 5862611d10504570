//! The threads that wait in a call on a connection or listener for a change of it, and the polls it
//! is registered with.
//!
//! A hash of lists in shared memory. A *key* is what is waited for: the word of a connection or
//! listener ([`Event::word`]), or of a poll. What is found here is only as good as the programs of
//! the node. So indices are checked, and walks along lists end after as many steps as there are
//! entries.

use toehold_shm::{Carver, OutOfMemory, Slab, Table};
use toehold_stack::Event;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::interest::Interest;

/// Keys of polls have this bit, which no index of a connection or listener reaches.
const POLL: u64 = 1 << 30;

/// The key of an entry's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

/// A source that can be registered with a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// A connection or listener.
    Socket(Event),
    /// Another poll, which is readable when it has something to tell.
    Poll(u32),
}

impl From<Event> for Watched {
    fn from(source: Event) -> Watched {
        Watched::Socket(source)
    }
}

impl Key {
    #[inline]
    pub(crate) fn of(source: Event) -> Key {
        Key(source.word())
    }

    #[inline]
    pub(crate) fn of_poll(poll: u32) -> Key {
        Key(POLL | u64::from(poll))
    }

    #[inline]
    pub(crate) fn of_watched(watched: Watched) -> Key {
        match watched {
            Watched::Socket(source) => Key::of(source),
            Watched::Poll(poll) => Key::of_poll(poll),
        }
    }
}

/// The kinds of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    /// A thread that rests; `owner` is its waiter's slot.
    Thread = 1,
    /// A connection, listener or poll registered with a poll; `owner` is the latter.
    Registration = 2,
    /// Something that makes a poll return when it is told to; `owner` is the poll.
    Waker = 3,
}

/// One interest. Links are indices plus one; 0: none.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Entry {
    key: u64,
    /// The program's number for a registration.
    pub(crate) token: u64,
    /// Next entry of the bucket.
    next: u32,
    pub(crate) owner: u32,
    /// The name under which a source is registered with its poll.
    name: u32,
    /// The events for which a registration is watched, an [`Interest`].
    pub(crate) interest: u32,
    kind: u8,
    /// Whether the entry is in its poll's queue (not 0).
    pub(crate) queued: u8,
    /// The number that the registrations in several shards of one source have in common; 0 if it is
    /// in one.
    pub(crate) group: u16,
    /// Next entry of its poll's queue.
    pub(crate) queue_next: u32,
    /// Neighbours among the entries of its poll.
    pub(crate) set_next: u32,
    pub(crate) set_previous: u32,
}

impl Entry {
    pub(crate) fn new(key: Key, kind: Kind, owner: u32) -> Entry {
        Entry {
            key: key.0,
            token: 0,
            next: 0,
            owner,
            name: 0,
            interest: 0,
            kind: kind as u8,
            queued: 0,
            group: 0,
            queue_next: 0,
            set_next: 0,
            set_previous: 0,
        }
    }

    /// An entry of a poll's, in no queue and set yet.
    pub(crate) fn of_poll(kind: Kind, poll: u32, key: Key, token: u64, interest: Interest) -> Entry {
        Entry {
            token,
            interest: interest.word(),
            ..Entry::new(key, kind, poll)
        }
    }

    /// This entry under another name than 0.
    pub(crate) fn named(self, name: u32) -> Entry {
        Entry { name, ..self }
    }

    /// This entry as that of a source that is in several shards.
    pub(crate) fn in_group(self, group: u16) -> Entry {
        Entry { group, ..self }
    }

    pub(crate) fn key(&self) -> Key {
        Key(self.key)
    }

    /// Takes the entry's links to its poll's queue and set away.
    pub(super) fn unlink(&mut self) {
        (self.queued, self.queue_next) = (0, 0);
        (self.set_next, self.set_previous) = (0, 0);
    }

    /// The source of a registration.
    #[inline]
    pub(crate) fn watched(&self) -> Watched {
        match self.key & POLL {
            0 => Watched::Socket(Event::from_word(self.key)),
            _ => Watched::Poll((self.key & !POLL) as u32),
        }
    }

    /// The interest of a registration.
    #[inline]
    pub(super) fn interest(&self) -> Interest {
        Interest::from_word(self.interest)
    }

    #[inline]
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.kind == kind as u8
    }
}

/// All interests of a shard.
#[derive(Debug)]
pub(crate) struct Interests {
    entries: Slab<Entry>,
    /// First entry of each list.
    buckets: Table<u32>,
}

impl Interests {
    fn buckets(capacity: u32) -> usize {
        (capacity as usize / 2).next_power_of_two()
    }

    pub(crate) fn bytes_needed(capacity: u32) -> usize {
        Slab::<Entry>::bytes_needed(capacity) + Table::<u32>::bytes_needed(Self::buckets(capacity))
    }

    pub(crate) fn create(carver: &mut Carver, capacity: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            entries: carver.slab(capacity)?,
            buckets: carver.table(Self::buckets(capacity))?,
        })
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries.len()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.entries.capacity()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut(index)
    }

    /// Adds an entry. Returns `None` if there are as many interests as there may be.
    pub(crate) fn insert(&mut self, entry: Entry) -> Option<u32> {
        let bucket = self.bucket(entry.key());
        let next = self.buckets[bucket];
        let index = self.entries.insert(Entry { next, ..entry })?;
        self.buckets[bucket] = index + 1;
        Some(index)
    }

    /// Takes the entry out of its key's list. The poll takes it out of its own lists.
    pub(crate) fn remove(&mut self, index: u32) {
        let Some(entry) = self.entries.get(index) else {
            return;
        };
        let (bucket, after) = (self.bucket(entry.key()), entry.next);
        let first = self.buckets[bucket];
        let before = self.walk(first).find(|(_, entry)| entry.next == index + 1);
        match before.map(|(before, _)| before) {
            Some(before) => self.entries[before].next = after,
            None if first == index + 1 => self.buckets[bucket] = after,
            None => {}
        }
        self.entries.remove(index);
    }

    /// Removes the interests of a thread that will not do so itself.
    pub(crate) fn remove_threads(&mut self, slot: u32) {
        let entries = self.entries.iter_live();
        let own = entries.filter(|(_, entry)| entry.is(Kind::Thread) && entry.owner == slot);
        for index in own.map(|(index, _)| index).collect::<Vec<_>>() {
            self.remove(index);
        }
    }

    /// Mends the entries after a process died in the middle of a change: keeps those that `keep`
    /// says, and makes the lists anew. The polls mend their own lists.
    pub(super) fn mend(&mut self, keep: impl Fn(&Entry) -> bool) {
        self.entries.mend(|_, entry| keep(entry));
        self.buckets.fill(0);
        for index in self.indices() {
            let bucket = self.bucket(self.entries[index].key());
            self.entries[index].next = std::mem::replace(&mut self.buckets[bucket], index + 1);
        }
    }

    /// Leaves lists as no change does, finished or not.
    #[cfg(test)]
    pub(super) fn disturb(&mut self, random: &mut impl FnMut() -> u64) {
        let links = 2 * u64::from(self.capacity());
        let mut link = || (random() % links) as u32;
        self.buckets.iter_mut().for_each(|bucket| *bucket = link());
        for index in self.indices() {
            let entry = &mut self.entries[index];
            entry.next = link();
            entry.queue_next = link();
            (entry.set_next, entry.set_previous) = (link(), link());
            if !entry.is(Kind::Waker) {
                entry.queued = link() as u8 & 1;
            }
        }
    }

    /// Makes an entry one of no kind.
    #[cfg(test)]
    pub(super) fn ruin(&mut self, index: u32) {
        self.entries[index].kind = 7;
    }

    /// The indices of all entries.
    pub(super) fn indices(&self) -> Vec<u32> {
        self.entries.iter_live().map(|(index, _)| index).collect()
    }

    /// The entries with this key.
    #[inline]
    pub(crate) fn of(&self, key: Key) -> impl Iterator<Item = (u32, &Entry)> {
        self.walk(self.buckets[self.bucket(key)])
            .filter(move |(_, entry)| entry.key == key.0)
    }

    /// The first entry with this key, or the next one after another.
    pub(crate) fn next_of(&self, key: Key, after: Option<u32>) -> Option<u32> {
        let first = match after {
            None => self.buckets[self.bucket(key)],
            Some(index) => self.entries.get(index)?.next,
        };
        let mut same = self.walk(first).filter(|(_, entry)| entry.key == key.0);
        same.next().map(|(index, _)| index)
    }

    /// The entry of a thread that waits for something with this key.
    pub(crate) fn thread(&self, key: Key, slot: u32) -> Option<u32> {
        self.of(key)
            .find(|(_, entry)| entry.is(Kind::Thread) && entry.owner == slot)
            .map(|(index, _)| index)
    }

    /// The registration of a source with a poll that has this name.
    pub(crate) fn registration(&self, key: Key, poll: u32, name: u32) -> Option<u32> {
        let mut registrations = self.registrations(key, poll);
        registrations
            .find(|(_, entry)| entry.name == name)
            .map(|(index, _)| index)
    }

    /// All registrations of a source with a poll.
    pub(crate) fn registrations(&self, key: Key, poll: u32) -> impl Iterator<Item = (u32, &Entry)> {
        self.of(key)
            .filter(move |(_, entry)| entry.is(Kind::Registration) && entry.owner == poll)
    }

    #[inline]
    fn walk(&self, first: u32) -> impl Iterator<Item = (u32, &Entry)> {
        let mut link = first;
        (0..self.entries.len().min(self.entries.capacity())).map_while(move |_| {
            let index = link.checked_sub(1)?;
            let entry = self.entries.get(index)?;
            link = entry.next;
            Some((index, entry))
        })
    }

    /// The keys are this node's own numbers: no peer can choose them to collide.
    #[inline]
    fn bucket(&self, key: Key) -> usize {
        let product = u128::from(key.0) * 0x9e37_79b9_7f4a_7c15;
        (product as u64 ^ (product >> 64) as u64) as usize & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;

    use super::*;

    fn interests(capacity: u32) -> Interests {
        let region = Region::private(Interests::bytes_needed(capacity)).unwrap();
        Interests::create(&mut Carver::new(region).unwrap(), capacity).unwrap()
    }

    fn key(number: u32) -> Key {
        Key::of(Event::from_word(u64::from(number) << 32 | u64::from(number % 3)))
    }

    #[test]
    fn every_key_finds_its_own_entries_whatever_the_order_of_removal() {
        let mut interests = interests(64);
        let entries: Vec<u32> = (0..60)
            .map(|number| {
                let entry = Entry::new(key(number / 2), Kind::Thread, number);
                interests.insert(entry).unwrap()
            })
            .collect();
        for &index in entries.iter().step_by(3) {
            interests.remove(index);
            interests.remove(index);
        }
        for number in 0..30 {
            let mut owners: Vec<u32> = interests.of(key(number)).map(|(_, entry)| entry.owner).collect();
            owners.sort_unstable();
            let expected: Vec<u32> = [number * 2, number * 2 + 1]
                .into_iter()
                .filter(|owner| owner % 3 != 0)
                .collect();
            assert_eq!(owners, expected, "key {number}");
        }
        for &index in &entries {
            interests.remove(index);
        }
        assert!(interests.is_empty());
    }

    #[test]
    fn what_is_full_says_so() {
        let mut interests = interests(2);
        for _ in 0..2 {
            assert!(interests.insert(Entry::new(key(1), Kind::Thread, 0)).is_some());
        }
        assert!(interests.insert(Entry::new(key(1), Kind::Thread, 0)).is_none());
    }

    #[test]
    fn a_scribbled_list_ends() {
        let mut interests = interests(8);
        let first = interests.insert(Entry::new(key(1), Kind::Thread, 0)).unwrap();
        interests.entries[first].next = first + 1;
        assert!(interests.of(key(1)).count() <= 8);
        interests.entries[first].next = 77;
        assert_eq!(interests.of(key(1)).count(), 1);
    }

    #[test]
    fn polls_and_sources_never_share_a_key() {
        let source = Event::from_word(1 << 32);
        assert_ne!(Key::of(source), Key::of_poll(0));
        assert_eq!(Key::of(source), Key::of(Event::from_word(source.word())));
    }
}
