//! A node's region: what lies in it, in which order.
//!
//! The order of the pieces is the layout ([`Carver`]): a process that attaches
//! makes the same calls with the same [`Layout`], and finds the same pieces.

use serde::{Deserialize, Serialize};
use toehold_link::mq::{Port, PortConfig};
use toehold_shm::{Carver, Lease, OutOfMemory, Parking};
use toehold_stack::{Config, Stack};

use crate::driver::Signals;
use crate::shard::{WAITERS, Waiting};

/// What the pieces of a region depend on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// Of the stack, its secrets included.
    pub(crate) stack: Config,
    /// Threads that wait and registrations with polls, at most; possessions likewise.
    pub(crate) interests: u32,
    /// Of the node's port, if processes share it.
    pub(crate) port: Option<PortConfig>,
}

/// The pieces of a region that do not depend on the node's link.
pub(crate) struct Pieces {
    pub(crate) lease: Lease,
    pub(crate) parking: Parking,
    pub(crate) signals: Signals,
    pub(crate) waiting: Waiting,
    pub(crate) stack: Stack,
}

impl Layout {
    pub(crate) fn new(stack: Config, port: Option<PortConfig>) -> Layout {
        // Every connection in two polls at once, and some threads.
        let interests = stack.connections.saturating_mul(2).saturating_add(2 * WAITERS);
        Layout {
            stack,
            interests,
            port,
        }
    }

    /// Bytes of region that the pieces take, at most.
    pub(crate) fn region_len(&self) -> usize {
        Lease::BYTES_NEEDED
            + Parking::bytes_needed(WAITERS)
            + Signals::bytes_needed()
            + Waiting::bytes_needed(self.interests)
            + Stack::region_len(&self.stack)
            + self
                .port
                .map_or(0, |port| Port::bytes_needed(port.max_peers as usize))
    }

    /// Carves the pieces, in a fresh region or an attached one. The port, if there is
    /// one, comes after them.
    pub(crate) fn carve(&self, carver: &mut Carver) -> Result<Pieces, OutOfMemory> {
        let lease = carver.lease()?;
        let parking = carver.parking(WAITERS)?;
        Ok(Pieces {
            lease,
            signals: Signals::create(carver)?,
            waiting: Waiting::create(carver, self.interests, parking.clone())?,
            parking,
            stack: Stack::create(carver, &self.stack)?,
        })
    }
}
