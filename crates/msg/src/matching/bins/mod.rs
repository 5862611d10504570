//! The strategy `bins`: keys by class, so that wildcards cost as little as exact tags.

mod posted;
mod unexpected;

use super::{MatchQueues, Selector, TagEnvelope};
use posted::PostedBins;
use unexpected::UnexpectedBins;

/// The strategy `bins`.
#[derive(Debug)]
pub(super) struct MatchBins {
    posted: PostedBins,
    unexpected: UnexpectedBins,
}

impl MatchBins {
    pub(super) fn new(secret: [u64; 2]) -> Self {
        Self {
            posted: PostedBins::new(secret),
            unexpected: UnexpectedBins::new(secret),
        }
    }
}

impl MatchQueues for MatchBins {
    fn post(&mut self, place: u32, selector: Selector, order: u64) {
        self.posted.add(place, selector, order);
    }

    fn take_posted(&mut self, envelope: &TagEnvelope) -> Option<u32> {
        self.posted.take(envelope)
    }

    fn withdraw(&mut self, place: u32) -> bool {
        self.posted.remove(place)
    }

    fn arrive(&mut self, place: u32, envelope: TagEnvelope) {
        self.unexpected.add(place, envelope);
    }

    fn find_unexpected(&mut self, selector: &Selector) -> Option<u32> {
        self.unexpected.find(selector)
    }

    fn remove_unexpected(&mut self, place: u32) -> bool {
        self.unexpected.remove(place)
    }

    fn examined(&self) -> u64 {
        self.posted.examined() + self.unexpected.examined()
    }
}
