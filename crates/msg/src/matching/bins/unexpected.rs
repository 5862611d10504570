//! Unexpected messages, with an index for each class that receives have used.
//!
//! All messages are in one list in the order of their arrival. An index has a list for each
//! key of its class. It is filled from the arrival list, oldest first and a bounded number
//! of messages a search, and kept up from then on.

use super::super::key_table::KeyTable;
use super::super::selector::{MaskClass, Selector, TagEnvelope};
use crate::links::{Links, ListEnds, NO_PLACE};

/// Classes with an index. Receives of further classes walk the arrival list.
const MOST_INDEXES: usize = 4;
/// Messages that one search adds to an index that is being filled.
const FILLED_PER_SEARCH: u32 = 4096;

/// The index of a class.
#[derive(Debug)]
struct ClassIndex {
    class: MaskClass,
    links: Links,
    /// By message: the key in the table; [`NO_PLACE`] if the index does not have it.
    homes: Vec<u32>,
    /// The oldest message that the index has not seen; [`NO_PLACE`] if it has seen all.
    cursor: u32,
}

impl ClassIndex {
    fn add(&mut self, number: u8, keys: &mut KeyTable, place: u32, envelope: &TagEnvelope) {
        if let Some(key) = self.class.key_of_envelope(number, envelope) {
            let at = place as usize;
            if at >= self.homes.len() {
                self.homes.resize(at + 1, NO_PLACE);
            }
            self.homes[at] = keys.add(key, &mut self.links, place);
        }
    }

    fn remove(&mut self, keys: &mut KeyTable, place: u32) {
        if let Some(home) = self.homes.get_mut(place as usize)
            && *home != NO_PLACE
        {
            keys.remove(*home, &mut self.links, place);
            *home = NO_PLACE;
        }
    }
}

/// Unexpected messages by arrival, and by class and key.
#[derive(Debug)]
pub(super) struct UnexpectedBins {
    envelopes: Vec<Option<TagEnvelope>>,
    arrivals: ListEnds,
    links: Links,
    indexes: Vec<ClassIndex>,
    keys: KeyTable,
    examined: u64,
}

impl UnexpectedBins {
    pub(super) fn new(secret: [u64; 2]) -> Self {
        Self {
            envelopes: Vec::new(),
            arrivals: ListEnds::EMPTY,
            links: Links::default(),
            indexes: Vec::with_capacity(MOST_INDEXES),
            keys: KeyTable::new(secret),
            examined: 0,
        }
    }

    pub(super) fn examined(&self) -> u64 {
        self.examined + self.keys.examined()
    }

    pub(super) fn add(&mut self, place: u32, envelope: TagEnvelope) {
        let at = place as usize;
        if at >= self.envelopes.len() {
            self.envelopes.resize(at + 1, None);
        }
        self.envelopes[at] = Some(envelope);
        self.links.push_back(&mut self.arrivals, place);
        for (number, index) in self.indexes.iter_mut().enumerate() {
            // An index that is being filled comes to this message by itself.
            if index.cursor == NO_PLACE {
                index.add(number as u8, &mut self.keys, place, &envelope);
            }
        }
    }

    pub(super) fn find(&mut self, selector: &Selector) -> Option<u32> {
        let class = selector.class();
        let Some(number) = self.number(class) else {
            return self.walk(self.arrivals.head(), selector);
        };
        self.fill(number);
        // The index has the oldest messages, so what it finds is the oldest of all.
        let key = class.key_of_selector(number as u8, selector);
        match self.keys.oldest(&key) {
            NO_PLACE => self.walk(self.indexes[number].cursor, selector),
            place => Some(place),
        }
    }

    /// The number of a class's index, which is begun if there is room.
    fn number(&mut self, class: MaskClass) -> Option<usize> {
        let known = self.indexes.iter().position(|index| index.class == class);
        known.or_else(|| {
            let has_room = self.indexes.len() < MOST_INDEXES;
            has_room.then(|| {
                self.indexes.push(ClassIndex {
                    class,
                    links: Links::default(),
                    homes: Vec::new(),
                    cursor: self.arrivals.head(),
                });
                self.indexes.len() - 1
            })
        })
    }

    fn fill(&mut self, number: usize) {
        let index = &mut self.indexes[number];
        for _ in 0..FILLED_PER_SEARCH {
            let place = index.cursor;
            let Some(Some(envelope)) = self.envelopes.get(place as usize) else {
                break;
            };
            index.add(number as u8, &mut self.keys, place, envelope);
            index.cursor = self.links.after(place);
        }
    }

    fn walk(&mut self, mut place: u32, selector: &Selector) -> Option<u32> {
        while let Some(Some(envelope)) = self.envelopes.get(place as usize) {
            self.examined += 1;
            if selector.takes(envelope) {
                return Some(place);
            }
            place = self.links.after(place);
        }
        None
    }

    pub(super) fn remove(&mut self, place: u32) -> bool {
        let envelope = self.envelopes.get_mut(place as usize);
        if envelope.and_then(Option::take).is_none() {
            return false;
        }
        let after = self.links.after(place);
        for index in &mut self.indexes {
            index.remove(&mut self.keys, place);
            if index.cursor == place {
                index.cursor = after;
            }
        }
        self.links.unlink(&mut self.arrivals, place);
        true
    }
}
