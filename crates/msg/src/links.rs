//! Doubly linked lists of places, with the links in an array beside the entries.

/// Stands for no place.
pub(crate) const NO_PLACE: u32 = u32::MAX;

/// The first and the last place of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListEnds {
    head: u32,
    tail: u32,
}

impl ListEnds {
    /// A list without places.
    pub(crate) const EMPTY: Self = Self {
        head: NO_PLACE,
        tail: NO_PLACE,
    };

    /// The oldest place; [`NO_PLACE`] if there is none.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Whether the list has no place.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NO_PLACE
    }
}

#[derive(Debug, Clone, Copy)]
struct LinkPair {
    before: u32,
    after: u32,
}

/// The links of several lists. A place is in one of these lists at most.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<LinkPair>);

impl Links {
    /// Adds a place at the end of a list. The place is in no list.
    pub(crate) fn push_back(&mut self, list: &mut ListEnds, place: u32) {
        let at = place as usize;
        let links = LinkPair {
            before: list.tail,
            after: NO_PLACE,
        };
        if at >= self.0.len() {
            self.0.resize(at + 1, links);
        }
        self.0[at] = links;
        match self.0.get_mut(list.tail as usize) {
            Some(tail) => tail.after = place,
            None => list.head = place,
        }
        list.tail = place;
    }

    /// Takes a place out of the list that it is in.
    pub(crate) fn unlink(&mut self, list: &mut ListEnds, place: u32) {
        let LinkPair { before, after } = self.0[place as usize];
        match self.0.get_mut(before as usize) {
            Some(links) => links.after = after,
            None => list.head = after,
        }
        match self.0.get_mut(after as usize) {
            Some(links) => links.before = before,
            None => list.tail = before,
        }
    }

    /// The place behind `place`; [`NO_PLACE`] at the end.
    pub(crate) fn after(&self, place: u32) -> u32 {
        self.0.get(place as usize).map_or(NO_PLACE, |links| links.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_equal_vectors(steps in proptest::collection::vec((0u32..12, 0usize..2), 0..200)) {
            let (mut links, mut lists) = (Links::default(), [ListEnds::EMPTY; 2]);
            let mut model = [Vec::new(), Vec::new()];
            for (place, list) in steps {
                if let Some(list) = (0..2).find(|list| model[*list].contains(&place)) {
                    links.unlink(&mut lists[list], place);
                    model[list].retain(|other| *other != place);
                } else {
                    links.push_back(&mut lists[list], place);
                    model[list].push(place);
                }
                for list in 0..2 {
                    let walk = std::iter::successors(Some(lists[list].head()), |place| Some(links.after(*place)));
                    let walk: Vec<u32> = walk.take_while(|place| *place != NO_PLACE).collect();
                    prop_assert_eq!(&walk, &model[list]);
                    prop_assert_eq!(lists[list].is_empty(), walk.is_empty());
                }
            }
        }
    }
}
