//! Peers that came and went, for the driver to ask about.

use std::collections::VecDeque;

use crate::NeighborChange;

/// Changes kept for a driver that does not ask; then the oldest are forgotten.
const MAX_CHANGES: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Changes {
    queue: VecDeque<NeighborChange>,
    /// Something was added outside of the calls after which drivers ask.
    unannounced: bool,
}

impl Changes {
    pub(super) fn add(&mut self, change: NeighborChange) {
        if self.queue.len() >= MAX_CHANGES {
            self.queue.pop_front();
        }
        self.queue.push_back(change);
        self.unannounced = true;
    }

    pub(super) fn next(&mut self) -> Option<NeighborChange> {
        self.queue.pop_front()
    }

    /// True once after something was added since the driver last had a reason to ask.
    #[inline]
    pub(super) fn take_unannounced(&mut self) -> bool {
        std::mem::take(&mut self.unannounced)
    }
}
