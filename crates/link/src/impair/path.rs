//! One direction of an impaired link: draws each frame's faults and the time at
//! which it comes out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{ImpairStatistics, Impairments};
use crate::checksum::complete;
use crate::random::Random;
use crate::{Checksum, Offload};

/// Most buffers kept for reuse.
const MAX_SPARE: usize = 256;

#[derive(Debug)]
pub(super) struct Path {
    impairments: Impairments,
    ethernet: bool,
    random: Random,
    queue: BinaryHeap<Reverse<Delayed>>,
    /// Orders frames that are due at one time: first in, first out.
    sequence: u64,
    /// When the last frame that keeps its order comes out.
    last_due_ns: u64,
    /// When the medium has carried all earlier frames.
    busy_until_ns: u64,
    spare: Vec<Vec<u8>>,
    pub(super) statistics: ImpairStatistics,
}

/// A frame in the path. Ordered by the time at which it comes out.
#[derive(Debug)]
pub(super) struct Delayed {
    due_ns: u64,
    sequence: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) offload: Offload,
}

impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.sequence).cmp(&(other.due_ns, other.sequence))
    }
}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Delayed {}

impl Path {
    pub(super) fn new(impairments: Impairments, ethernet: bool, seed: u64) -> Path {
        Path {
            impairments,
            ethernet,
            random: Random::new(seed),
            queue: BinaryHeap::new(),
            sequence: 0,
            last_due_ns: 0,
            busy_until_ns: 0,
            spare: Vec::new(),
            statistics: ImpairStatistics::default(),
        }
    }

    /// Returns whether frames pass unchanged and undelayed.
    pub(super) fn is_transparent(&self) -> bool {
        self.impairments.is_none()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns when the next frame comes out.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse(frame)| frame.due_ns)
    }

    /// Takes a frame; `copy` fills an empty buffer with it. Each frame draws a
    /// fixed number of random numbers, whatever happens to it.
    pub(super) fn offer(&mut self, now_ns: u64, mut offload: Offload, copy: impl FnOnce(&mut Vec<u8>)) {
        let Impairments {
            loss,
            duplicate,
            corrupt,
            reorder,
            ..
        } = self.impairments;
        let lost = self.random.chance(loss);
        let duplicated = self.random.chance(duplicate);
        let corrupted = self.random.chance(corrupt);
        let reordered = self.random.chance(reorder);
        let jitter_ns = self.random.below(self.impairments.jitter_ns.saturating_add(1));
        let corrupt_at = self.random.next();

        self.statistics.frames += 1;
        if lost {
            self.statistics.lost += 1;
            return;
        }
        if self.queue.len() >= self.impairments.limit {
            self.statistics.overflowed += 1;
            return;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        copy(&mut bytes);
        if corrupt > 0.0 {
            // A medium that damages bits cannot carry partial checksums.
            complete(&mut bytes, self.ethernet, &mut offload);
            offload.checksum = Checksum::Complete;
        }
        if corrupted && !bytes.is_empty() {
            self.statistics.corrupted += 1;
            let bit = corrupt_at % (bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let due_ns = self.due_ns(now_ns, bytes.len(), jitter_ns, reordered);
        if duplicated {
            self.statistics.duplicated += 1;
            let mut twin = self.spare.pop().unwrap_or_default();
            twin.clone_from(&bytes);
            self.push(due_ns, twin, offload);
        }
        self.push(due_ns, bytes, offload);
    }

    fn due_ns(&mut self, now_ns: u64, len: usize, jitter_ns: u64, reordered: bool) -> u64 {
        let mut departure_ns = now_ns;
        if self.impairments.rate_bps != 0 {
            let serialization_ns =
                (len as u128 * 8 * 1_000_000_000 / u128::from(self.impairments.rate_bps)) as u64;
            departure_ns = now_ns.max(self.busy_until_ns).saturating_add(serialization_ns);
            self.busy_until_ns = departure_ns;
        }
        let due_ns = departure_ns
            .saturating_add(self.impairments.delay_ns)
            .saturating_add(jitter_ns);
        let in_order_ns = due_ns.max(self.last_due_ns);
        if reordered {
            self.statistics.reordered += 1;
            return in_order_ns.saturating_add(self.impairments.reorder_delay_ns);
        }
        self.last_due_ns = in_order_ns;
        in_order_ns
    }

    fn push(&mut self, due_ns: u64, bytes: Vec<u8>, offload: Offload) {
        self.sequence += 1;
        self.queue.push(Reverse(Delayed {
            due_ns,
            sequence: self.sequence,
            bytes,
            offload,
        }));
    }

    /// Passes due frames to `out`, at most `budget` of them, until one is refused,
    /// which stays. Returns their number.
    pub(super) fn release(
        &mut self,
        now_ns: u64,
        budget: usize,
        mut out: impl FnMut(&Delayed) -> bool,
    ) -> usize {
        let mut count = 0;
        while count < budget
            && let Some(Reverse(frame)) = self.queue.peek()
            && frame.due_ns <= now_ns
            && out(frame)
        {
            count += 1;
            if let Some(Reverse(frame)) = self.queue.pop()
                && self.spare.len() < MAX_SPARE
            {
                self.spare.push(frame.bytes);
            }
        }
        count
    }
}
