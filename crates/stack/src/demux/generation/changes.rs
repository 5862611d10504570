//! Entering ids into a generation and taking them out.

use super::super::Tuples;
use super::super::bucket::{MOST_TURNED_AWAY, WAYS};
use super::{Generation, Places, STASH, Stashed};

/// This many ids with the same tag in two buckets are no chance. With 16 ids in the buckets, chance
/// causes it once in 10¹⁵ insertions.
const SAME_TAGS: u32 = 5;

/// The place of an id.
#[derive(Clone, Copy)]
enum Spot {
    Way(usize, usize),
    Stash(usize),
}

/// The result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::demux) enum Settled {
    /// The id has a place, and its buckets look random.
    Well,
    /// The id has a place, but its buckets suggest tuples chosen with knowledge of the key.
    Crowded,
    /// No place is free.
    Nowhere,
}

impl Generation {
    /// The place of an id with this hash.
    fn locate(&self, hash: u64, id: u32) -> Option<Spot> {
        let places = self.places(hash);
        for at in [places.first, places.second] {
            let bucket = &self.buckets[at];
            if let Some(way) = bucket.matches(places.tag).find(|&way| bucket.id(way) == id) {
                return Some(Spot::Way(at, way));
            }
        }
        self.stashed()
            .iter()
            .position(|entry| entry.id == id)
            .map(Spot::Stash)
    }

    /// Whether more ids lie elsewhere than chance explains, which is one in fifty.
    fn is_crowded(&self) -> bool {
        let head = &self.head[0];
        head.elsewhere > 64 + head.len / 8 || head.stashed as usize > STASH / 2
    }

    /// Finds a place for an id whose tuple `tuples` already knows and the generation does not hold.
    pub(in crate::demux) fn settle(&mut self, id: u32, tuples: &(impl Tuples + ?Sized)) -> Settled {
        let hash = self.hash(tuples.tuple(id));
        let places = self.places(hash);
        let settled = self.put(places.first, places, id)
            || self.put(places.second, places, id)
            || (self.make_room(places.first, tuples) && self.put(places.first, places, id))
            || (self.make_room(places.second, tuples) && self.put(places.second, places, id))
            || self.put_aside(hash, id);
        if !settled {
            return Settled::Nowhere;
        }
        self.head[0].len = self.head[0].len.wrapping_add(1);
        if self.same_tags(places) >= SAME_TAGS || self.is_crowded() {
            Settled::Crowded
        } else {
            Settled::Well
        }
    }

    /// The number of ids that a look-up with these places may have to examine.
    fn same_tags(&self, places: Places) -> u32 {
        let of = |at: usize| self.buckets[at].matches(places.tag).count_ones();
        // Reading the second bucket costs a cache miss: no other call needs it, or it was never
        // used.
        match self.buckets[places.first].turned_away(places.tag) {
            0 => of(places.first),
            _ => of(places.first) + of(places.second),
        }
    }

    fn put(&mut self, at: usize, places: Places, id: u32) -> bool {
        let Some(way) = self.buckets[at].free() else {
            return false;
        };
        if at != places.first && !self.turn_away(places) {
            return false;
        }
        self.buckets[at].set(way, places.tag, id);
        true
    }

    fn put_aside(&mut self, hash: u64, id: u32) -> bool {
        let at = self.head[0].stashed as usize;
        if at >= STASH || !self.turn_away(self.places(hash)) {
            return false;
        }
        self.stash[at] = Stashed {
            hash,
            id,
            reserved: 0,
        };
        self.head[0].stashed += 1;
        true
    }

    /// Counts at the first bucket that an id goes elsewhere. Returns `false` if its counter is
    /// full.
    fn turn_away(&mut self, places: Places) -> bool {
        let bucket = &mut self.buckets[places.first];
        if bucket.turned_away(places.tag) == MOST_TURNED_AWAY {
            return false;
        }
        bucket.turn_away(places.tag);
        self.head[0].elsewhere = self.head[0].elsewhere.wrapping_add(1);
        true
    }

    fn take_back(&mut self, places: Places) {
        self.buckets[places.first].take_back(places.tag);
        self.head[0].elsewhere = self.head[0].elsewhere.wrapping_sub(1);
    }

    /// Moves one id of a full bucket to its other bucket.
    fn make_room(&mut self, at: usize, tuples: &(impl Tuples + ?Sized)) -> bool {
        for way in 0..WAYS {
            let id = self.buckets[at].id(way);
            let places = self.places(self.hash(tuples.tuple(id)));
            let other = if places.first == at {
                places.second
            } else {
                places.first
            };
            if self.put(other, places, id) {
                self.vacate(at, way, places);
                return true;
            }
        }
        false
    }

    /// Empties a slot; `places` are those of the id in it.
    fn vacate(&mut self, at: usize, way: usize, places: Places) {
        self.buckets[at].set(way, 0, 0);
        if at != places.first {
            self.take_back(places);
        }
    }

    /// Removes an id whose tuple `tuples` still knows. Returns whether it was there.
    pub(in crate::demux) fn remove(&mut self, id: u32, tuples: &(impl Tuples + ?Sized)) -> bool {
        let hash = self.hash(tuples.tuple(id));
        match self.locate(hash, id) {
            Some(Spot::Way(at, way)) => {
                self.vacate(at, way, self.places(hash));
                self.unstash_into(at);
            }
            Some(Spot::Stash(at)) => self.drop_stashed(at),
            None => return false,
        }
        self.head[0].len = self.head[0].len.wrapping_sub(1);
        true
    }

    fn drop_stashed(&mut self, at: usize) {
        self.take_back(self.places(self.stash[at].hash));
        let last = self.head[0].stashed.wrapping_sub(1);
        self.head[0].stashed = last;
        self.stash[at] = self.stash[last as usize];
    }

    /// Moves one id of the stash into the free slot of a bucket.
    fn unstash_into(&mut self, at: usize) {
        for index in 0..self.stashed().len() {
            let Stashed { hash, id, .. } = self.stash[index];
            let places = self.places(hash);
            if places.first == at || places.second == at {
                self.drop_stashed(index);
                self.put(at, places, id);
                return;
            }
        }
    }
}
