//! Paths to destinations, in a form that connections can keep.

use toehold_shm::ArenaId;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Next hop and packet sizes for one destination.
///
/// Plain data, so that a connection can keep it in its control block. It stays
/// valid for as long as [`path_is_current`](super::Ip::path_is_current) says
/// so, which compares one number; afterwards ask
/// [`path`](super::Ip::path) again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Path {
    /// Hardware address of the next hop; zeroes on links without.
    pub(crate) destination: [u8; 6],
    /// Largest IP packet in bytes that reaches the destination.
    pub(crate) mtu: u16,
    /// Largest IP packet in a super-frame in bytes; equal to the link's MTU on links without
    /// super-frames. The segments of a super-frame are bound by `mtu`.
    pub(crate) super_frame: u16,
    flags: u16,
    /// Index of the next hop's neighbour record, or [`toehold_shm::NONE`].
    pub(crate) neighbor: u32,
    /// The epoch in which the path was made; no epoch is 0.
    epoch: u32,
    /// The arena of payload for the destination, as the link last reported; private memory at
    /// first.
    pub(crate) arena: ArenaId,
}

const _: () = assert!(size_of::<Path>() == 24);

/// Flag: the destination is this stack itself.
const LOOPBACK: u16 = 1;
/// Flag: routers may fragment, because the path MTU is below the least packet that the stack sends.
const MAY_FRAGMENT: u16 = 2;

impl Path {
    /// No path; never current.
    pub(crate) const NONE: Self = Self {
        destination: [0; 6],
        mtu: 0,
        super_frame: 0,
        flags: 0,
        neighbor: toehold_shm::NONE,
        epoch: 0,
        arena: ArenaId::PRIVATE,
    };

    pub(super) fn new(destination: [u8; 6], mtu: u16, super_frame: u16, neighbor: u32, epoch: u32) -> Self {
        Self {
            destination,
            mtu,
            super_frame,
            neighbor,
            epoch,
            flags: 0,
            arena: ArenaId::PRIVATE,
        }
    }

    /// Whether the destination is this stack. Packets to it never reach the link.
    #[inline]
    pub(crate) fn is_loopback(&self) -> bool {
        self.flags & LOOPBACK != 0
    }

    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    #[inline]
    pub(super) fn may_fragment(&self) -> bool {
        self.flags & MAY_FRAGMENT != 0
    }

    pub(super) fn with_loopback(mut self) -> Self {
        self.flags |= LOOPBACK;
        self
    }

    pub(super) fn with_may_fragment(mut self) -> Self {
        self.flags |= MAY_FRAGMENT;
        self
    }
}

impl Default for Path {
    fn default() -> Self {
        Self::NONE
    }
}

/// The result of asking for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathState {
    /// The path is ready.
    Ready(Path),
    /// The next hop's hardware address is being resolved. The caller joins the neighbour's waiting
    /// list and receives a [`NeighborEvent`].
    Pending {
        /// Index of the neighbour record.
        neighbor: u32,
    },
    /// The node that had the next hop's address is gone, as the link reports.
    Gone,
    /// There is no route, TCP cannot send to the address, or too many neighbours are being
    /// resolved.
    Unreachable,
}

/// An event of a neighbour that connections wait for.
///
/// The record still holds the waiting list when the event is delivered. The receiver removes it
/// with [`set_waiting_head`](super::Ip::set_waiting_head)`(neighbor, NONE)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeighborEvent {
    /// The neighbour's hardware address is known: `path` is ready.
    Resolved {
        /// Index of the neighbour record.
        neighbor: u32,
    },
    /// The neighbour did not answer.
    Failed {
        /// Index of the neighbour record.
        neighbor: u32,
    },
}
