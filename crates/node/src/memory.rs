//! A region of a node: what lies in it, in which order. Each shard has one of its own, so
//! that no two shards share anything that a program can write to.
//!
//! The order of the pieces is the layout ([`Carver`]). A process that attaches makes the same calls
//! with the same [`Layout`], and finds the same pieces.

use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};
use toehold_link::capture::Tap;
use toehold_link::mq::{Port, PortConfig};
use toehold_shm::{Carver, Lease, OutOfMemory, Parking, Words};
use toehold_stack::{Config, Stack};

use crate::description::Descriptions;
use crate::direct;
use crate::driver::Signals;
use crate::shard::{WAITERS, Waiting};

/// Holders beyond two for each possible socket.
const SPARE_HOLDERS: u32 = 1 << 13;

/// The facts on which the pieces of a region depend.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// The configuration of the stack, its secrets included.
    pub(crate) stack: Config,
    /// Threads that wait and registrations with polls, at most.
    pub(crate) interests: u32,
    /// Holders of connections and listeners, at most; spare ones count.
    pub(crate) holders: u32,
    /// The configuration of the node's port, if processes share it.
    pub(crate) port: Option<PortConfig>,
    /// Whether the node has direct connections, and this is its first shard.
    pub(crate) direct: bool,
}

/// The pieces of a region that do not depend on the node's link.
pub(crate) struct Pieces {
    pub(crate) lease: Lease,
    pub(crate) parking: Parking,
    pub(crate) signals: Signals,
    pub(crate) waiting: Waiting,
    pub(crate) descriptions: Descriptions,
    pub(crate) stack: Stack,
    pub(crate) marks: Marks,
    pub(crate) direct: Option<direct::Pieces>,
}

/// Words between the pieces that no process has a reason to write to, once the engine has. A
/// process that writes nonsense all over the region changes them.
#[derive(Debug, Clone)]
pub(crate) struct Marks {
    words: [Words; 2],
}

impl Marks {
    pub(crate) fn set(&self, value: u32) {
        self.words
            .iter()
            .for_each(|words| words.word(0).store(value, Relaxed));
    }

    pub(crate) fn are(&self, value: u32) -> bool {
        self.words
            .iter()
            .all(|words| words.word(0).load(Relaxed) == value)
    }
}

impl Layout {
    pub(crate) fn new(stack: Config, port: Option<PortConfig>) -> Layout {
        // Every connection in two polls at once, and some threads.
        let interests = stack.connections.saturating_mul(2).saturating_add(2 * WAITERS);
        // As many as there are sockets in all shards, and some to spare for every process.
        let sockets = stack.connections.saturating_add(stack.listeners);
        let sockets = sockets.saturating_mul(stack.steering.count.into());
        let holders = sockets.saturating_mul(2).saturating_add(SPARE_HOLDERS);
        Layout {
            holders: if port.is_some() { holders } else { 0 },
            stack,
            interests,
            port,
            direct: false,
        }
    }

    /// The layout of a node with direct connections, if this is its first shard.
    pub(crate) fn with_direct(mut self, is_wanted: bool) -> Layout {
        self.direct = is_wanted && self.port.is_some() && self.stack.steering.index == 0;
        self
    }

    /// Bytes of region that the pieces take, at most.
    pub(crate) fn region_len(&self) -> usize {
        Lease::BYTES_NEEDED
            + 2 * Words::bytes_needed(1)
            + Parking::bytes_needed(WAITERS)
            + Signals::bytes_needed()
            + Waiting::bytes_needed(self.interests, self.holders)
            + Descriptions::bytes_needed(self.holders)
            + Stack::region_len(&self.stack)
            + self.direct_bytes()
            + self.port.map_or(0, |port| {
                Tap::bytes_needed() + Port::bytes_needed(port.max_peers as usize)
            })
    }

    fn direct_bytes(&self) -> usize {
        match self.direct {
            true => direct::Pieces::bytes_needed(&self.stack),
            false => 0,
        }
    }

    /// Carves the pieces, in a fresh region or an attached one. The tap and the
    /// port, if there is one, come after them.
    pub(crate) fn carve(&self, carver: &mut Carver) -> Result<Pieces, OutOfMemory> {
        let lease = carver.lease()?;
        let parking = carver.parking(WAITERS)?;
        let signals = Signals::create(carver)?;
        let waiting = Waiting::create(carver, (self.interests, self.holders), self.stack.steering.index)?;
        let descriptions = Descriptions::create(carver, self.holders)?;
        let before = carver.words(1)?;
        let stack = Stack::create(carver, &self.stack)?;
        let after = carver.words(1)?;
        let direct = self
            .direct
            .then(|| direct::Pieces::create(carver, &self.stack))
            .transpose()?;
        Ok(Pieces {
            lease,
            parking,
            signals,
            waiting,
            descriptions,
            stack,
            marks: Marks {
                words: [before, after],
            },
            direct,
        })
    }
}
