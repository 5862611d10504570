//! The strategy `list`: two lists in the order of their entries.

use super::{MatchQueues, Selector, TagEnvelope};
use crate::links::{Links, ListEnds, NO_PLACE};

/// A list of places, with what each holds.
#[derive(Debug)]
struct MatchQueue<T> {
    ends: ListEnds,
    links: Links,
    values: Vec<Option<T>>,
}

impl<T> Default for MatchQueue<T> {
    fn default() -> Self {
        Self {
            ends: ListEnds::EMPTY,
            links: Links::default(),
            values: Vec::new(),
        }
    }
}

impl<T> MatchQueue<T> {
    fn push(&mut self, place: u32, value: T) {
        let at = place as usize;
        if at >= self.values.len() {
            self.values.resize_with(at + 1, || None);
        }
        self.values[at] = Some(value);
        self.links.push_back(&mut self.ends, place);
    }

    fn find(&self, examined: &mut u64, is_match: impl Fn(&T) -> bool) -> Option<u32> {
        let mut place = self.ends.head();
        while place != NO_PLACE {
            *examined += 1;
            if self.values[place as usize].as_ref().is_some_and(&is_match) {
                return Some(place);
            }
            place = self.links.after(place);
        }
        None
    }

    fn remove(&mut self, place: u32) -> bool {
        let value = self.values.get_mut(place as usize);
        let is_queued = value.and_then(Option::take).is_some();
        if is_queued {
            self.links.unlink(&mut self.ends, place);
        }
        is_queued
    }
}

/// The strategy `list`.
#[derive(Debug, Default)]
pub(super) struct MatchList {
    posted: MatchQueue<Selector>,
    unexpected: MatchQueue<TagEnvelope>,
    examined: u64,
}

impl MatchQueues for MatchList {
    fn post(&mut self, place: u32, selector: Selector, _order: u64) {
        self.posted.push(place, selector);
    }

    fn take_posted(&mut self, envelope: &TagEnvelope) -> Option<u32> {
        let place = self
            .posted
            .find(&mut self.examined, |selector| selector.takes(envelope))?;
        self.posted.remove(place);
        Some(place)
    }

    fn withdraw(&mut self, place: u32) -> bool {
        self.posted.remove(place)
    }

    fn arrive(&mut self, place: u32, envelope: TagEnvelope) {
        self.unexpected.push(place, envelope);
    }

    fn find_unexpected(&mut self, selector: &Selector) -> Option<u32> {
        self.unexpected
            .find(&mut self.examined, |envelope| selector.takes(envelope))
    }

    fn remove_unexpected(&mut self, place: u32) -> bool {
        self.unexpected.remove(place)
    }

    fn examined(&self) -> u64 {
        self.examined
    }
}
