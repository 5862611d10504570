//! A hash table from keys to lists of places.

use super::selector::MatchKey;
use crate::links::{Links, ListEnds, NO_PLACE};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Bins of a new table.
const FEWEST_BINS: usize = 1024;
/// Bins of a table that grows no further.
const MOST_BINS: usize = 1 << 16;
/// Keys of a bin above which the table grows.
const MOST_KEYS: u32 = 32;

#[derive(Debug)]
struct KeyEntry {
    key: MatchKey,
    hash: u32,
    /// Places with this key, oldest first.
    places: ListEnds,
    /// The next key of the bin, or the next free entry.
    next: u32,
}

/// Keys that have places. A key whose last place goes is forgotten.
#[derive(Debug)]
pub(super) struct KeyTable {
    hasher: SipHasher13,
    bins: Vec<u32>,
    keys: Vec<KeyEntry>,
    free: u32,
    examined: u64,
}

impl KeyTable {
    pub(super) fn new(secret: [u64; 2]) -> Self {
        Self {
            hasher: SipHasher13::new_with_keys(secret[0], secret[1]),
            bins: vec![NO_PLACE; FEWEST_BINS],
            keys: Vec::new(),
            free: NO_PLACE,
            examined: 0,
        }
    }

    /// Keys examined by all searches.
    pub(super) fn examined(&self) -> u64 {
        self.examined
    }

    fn hash(&self, key: &MatchKey) -> u32 {
        let mut hasher = self.hasher;
        hasher.write_u64(key.tag);
        // A flow's name has an index and a generation; a class is a small number.
        hasher.write_u64(key.source ^ u64::from(key.class) << 56);
        hasher.finish() as u32
    }

    fn bin(&self, hash: u32) -> usize {
        hash as usize & (self.bins.len() - 1)
    }

    /// Searches a key's bin. Returns the key's place, and the number of keys looked at.
    fn search(&self, key: &MatchKey, hash: u32) -> (u32, u32) {
        let (mut at, mut count) = (self.bins[self.bin(hash)], 0);
        while let Some(entry) = self.keys.get(at as usize) {
            count += 1;
            if entry.hash == hash && entry.key == *key {
                break;
            }
            at = entry.next;
        }
        (at, count)
    }

    /// The oldest place of a key; [`NO_PLACE`] if there is none.
    pub(super) fn oldest(&mut self, key: &MatchKey) -> u32 {
        let (at, count) = self.search(key, self.hash(key));
        self.examined += u64::from(count);
        self.keys
            .get(at as usize)
            .map_or(NO_PLACE, |entry| entry.places.head())
    }

    /// Adds a place as the youngest of its key. Returns the key's place in this table,
    /// which [`KeyTable::remove`] takes back.
    pub(super) fn add(&mut self, key: MatchKey, links: &mut Links, place: u32) -> u32 {
        let hash = self.hash(&key);
        let (mut at, count) = self.search(&key, hash);
        if at == NO_PLACE {
            if count >= MOST_KEYS && self.bins.len() < MOST_BINS {
                self.grow();
            }
            at = self.insert(key, hash);
        }
        links.push_back(&mut self.keys[at as usize].places, place);
        at
    }

    fn insert(&mut self, key: MatchKey, hash: u32) -> u32 {
        let bin = self.bin(hash);
        let entry = KeyEntry {
            key,
            hash,
            places: ListEnds::EMPTY,
            next: self.bins[bin],
        };
        let at = match self.keys.get_mut(self.free as usize) {
            Some(unused) => {
                let at = self.free;
                self.free = unused.next;
                *unused = entry;
                at
            }
            None => {
                self.keys.push(entry);
                self.keys.len() as u32 - 1
            }
        };
        self.bins[bin] = at;
        at
    }

    /// Takes a place out of the key at `at`, and forgets a key without places.
    pub(super) fn remove(&mut self, at: u32, links: &mut Links, place: u32) {
        let entry = &mut self.keys[at as usize];
        links.unlink(&mut entry.places, place);
        if !entry.places.is_empty() {
            return;
        }
        let (bin, next) = (entry.hash as usize & (self.bins.len() - 1), entry.next);
        entry.next = self.free;
        self.free = at;
        if self.bins[bin] == at {
            self.bins[bin] = next;
            return;
        }
        let mut before = self.bins[bin];
        while self.keys[before as usize].next != at {
            before = self.keys[before as usize].next;
        }
        self.keys[before as usize].next = next;
    }

    /// Doubles the bins: each bin's keys go to two bins.
    fn grow(&mut self) {
        let old = self.bins.len();
        self.bins.resize(old * 2, NO_PLACE);
        for bin in 0..old {
            let mut at = core::mem::replace(&mut self.bins[bin], NO_PLACE);
            while at != NO_PLACE {
                let hash = self.keys[at as usize].hash;
                let bin = self.bin(hash);
                let next = core::mem::replace(&mut self.keys[at as usize].next, self.bins[bin]);
                self.bins[bin] = at;
                at = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tag: u64) -> MatchKey {
        MatchKey {
            tag,
            source: 0,
            class: 0,
        }
    }

    #[test]
    fn many_keys_grow_table_and_keep_bins_short() {
        let (mut table, mut links) = (KeyTable::new([3, 4]), Links::default());
        const COUNT: u32 = 1 << 18;
        let homes: Vec<u32> = (0..COUNT)
            .map(|place| table.add(key(place.into()), &mut links, place))
            .collect();
        assert!(table.bins.len() > FEWEST_BINS);
        for place in 0..COUNT {
            assert_eq!(table.oldest(&key(place.into())), place);
        }
        assert!(table.examined() < u64::from(COUNT) * 24, "{}", table.examined());
        for place in 0..COUNT {
            table.remove(homes[place as usize], &mut links, place);
            assert_eq!(table.oldest(&key(place.into())), NO_PLACE);
        }
        assert!(table.bins.iter().all(|bin| *bin == NO_PLACE));
        table.add(key(1), &mut links, 0);
        assert_eq!(table.keys.len(), COUNT as usize);
    }

    #[test]
    fn places_of_one_key_stay_one_key() {
        let (mut table, mut links) = (KeyTable::new([3, 4]), Links::default());
        let homes: Vec<u32> = (0..100_000)
            .map(|place| table.add(key(1), &mut links, place))
            .collect();
        assert_eq!((table.keys.len(), table.bins.len()), (1, FEWEST_BINS));
        table.remove(homes[0], &mut links, 0);
        assert_eq!(table.oldest(&key(1)), 1);
    }
}
