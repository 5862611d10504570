//! Doubly linked lists over small numbers, kept in shared memory.
//!
//! A number (a record's index) is on at most one list of a set at a time, and its owner remembers
//! which. All operations take constant time.

use toehold_shm::{Carver, NONE, OutOfMemory, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Two ends: of a list (first and last), or of a link (previous and next).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Ends {
    front: u32,
    back: u32,
}

const NOTHING: Ends = Ends {
    front: NONE,
    back: NONE,
};

/// A set of lists over the same numbers.
pub(super) struct Lists {
    /// For each number: its predecessor (`front`) and successor (`back`).
    links: Table<Ends>,
    lists: Table<Ends>,
}

impl Lists {
    pub(super) fn bytes_needed(numbers: u32, lists: u32) -> usize {
        Table::<Ends>::bytes_needed(numbers as usize) + Table::<Ends>::bytes_needed(lists as usize)
    }

    pub(super) fn create(carver: &mut Carver, numbers: u32, lists: u32) -> Result<Self, OutOfMemory> {
        let links = carver.table(numbers as usize)?;
        let mut lists = carver.table::<Ends>(lists as usize)?;
        // The links of a number that is on no list are never read.
        if carver.is_fresh() {
            lists.fill(NOTHING);
        }
        Ok(Self { links, lists })
    }

    /// Empties all lists. It may be called after a process died in the middle of a change.
    pub(super) fn forget(&mut self) {
        self.lists.fill(NOTHING);
    }

    /// The first number of a list, or [`NONE`].
    #[inline]
    pub(super) fn front(&self, list: u32) -> u32 {
        self.lists[list as usize].front
    }

    /// The number after `id` on its list, or [`NONE`].
    pub(super) fn after(&self, id: u32) -> u32 {
        self.links[id as usize].back
    }

    pub(super) fn push_back(&mut self, list: u32, id: u32) {
        let ends = &mut self.lists[list as usize];
        self.links[id as usize] = Ends {
            front: ends.back,
            back: NONE,
        };
        if ends.back == NONE {
            ends.front = id;
        } else {
            self.links[ends.back as usize].back = id;
        }
        ends.back = id;
    }

    /// Removes `id` from `list`, which it must be on.
    ///
    /// # Panics
    ///
    /// If its neighbours on the list do not link to it: another process has damaged the memory.
    /// Without the panic, a caller that empties the list would never end.
    pub(super) fn remove(&mut self, list: u32, id: u32) {
        let link = self.links[id as usize];
        let ends = &mut self.lists[list as usize];
        let before = match link.front {
            NONE => &mut ends.front,
            front => &mut self.links[front as usize].back,
        };
        assert_eq!(*before, id, "a list is damaged");
        *before = link.back;
        let behind = match link.back {
            NONE => &mut ends.back,
            back => &mut self.links[back as usize].front,
        };
        assert_eq!(*behind, id, "a list is damaged");
        *behind = link.front;
        // This also ends a caller's loop over a list with a cycle.
        self.links[id as usize] = NOTHING;
    }

    pub(super) fn pop_front(&mut self, list: u32) -> Option<u32> {
        let id = self.front(list);
        if id == NONE {
            return None;
        }
        self.remove(list, id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use toehold_shm::Region;

    proptest! {
        /// Any sequence of operations behaves like a set of queues.
        #[test]
        fn lists_behave_like_queues(operations in proptest::collection::vec((0u32..2, 0u32..8, 0u8..3), 0..200)) {
            let mut carver = Carver::new(Region::private(1 << 16).unwrap()).unwrap();
            let mut lists = Lists::create(&mut carver, 8, 2).unwrap();
            let mut model = [VecDeque::new(), VecDeque::new()];
            for (list, id, operation) in operations {
                let place = model.iter().position(|queue: &VecDeque<u32>| queue.contains(&id));
                match (operation, place) {
                    (0, None) => {
                        lists.push_back(list, id);
                        model[list as usize].push_back(id);
                    }
                    (1, Some(place)) => {
                        lists.remove(place as u32, id);
                        model[place].retain(|&other| other != id);
                    }
                    (2, _) => prop_assert_eq!(lists.pop_front(list), model[list as usize].pop_front()),
                    _ => {}
                }
                for (list, queue) in model.iter().enumerate() {
                    let mut walked = Vec::new();
                    let mut at = lists.front(list as u32);
                    while at != NONE {
                        walked.push(at);
                        at = lists.after(at);
                    }
                    prop_assert_eq!(&walked, &queue.iter().copied().collect::<Vec<_>>());
                }
            }
        }
    }
}
