//! The record of a neighbour.

use crate::time::Instant;
use crate::tuple::Address;
use Reachability::{Delay, Failed, Incomplete, Probe, Reachable, Stale};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The state of a neighbour (RFC 4861 §7.3.2). The discriminant is also the number of the record's
/// list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in super::super) enum Reachability {
    /// Asked for, no answer yet.
    Incomplete = 0,
    /// Known to have received packets lately.
    Reachable = 1,
    /// Known, but unused since it was last confirmed.
    Stale = 2,
    /// In use again; an upper layer has a little time to confirm it.
    Delay = 3,
    /// Being asked whether it is still there.
    Probe = 4,
    /// Did not answer.
    Failed = 5,
}

pub(super) const LISTS: u32 = 6;
/// The states with a deadline. All records wait equally long in a state, so that the lists are in
/// the order of deadlines.
pub(super) const TIMED: [Reachability; 4] = [Incomplete, Reachable, Delay, Probe];

impl Reachability {
    fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Incomplete,
            1 => Reachable,
            2 => Stale,
            3 => Delay,
            4 => Probe,
            _ => Failed,
        }
    }
}

/// No event.
pub(super) const QUIET: u8 = 0;
pub(super) const RESOLVED: u8 = 1;
pub(super) const FAILED: u8 = 2;

/// A neighbour. Plain data in shared memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Neighbor {
    pub(super) address: Address,
    /// When the present state ends, if it has a deadline.
    pub(super) deadline: Instant,
    /// When the neighbour was last known to receive packets.
    pub(super) confirmed: Instant,
    /// Head of TCP's list of connections that wait for this neighbour.
    pub(super) waiting_head: u32,
    pub(super) mac: [u8; 6],
    pub(super) state: u8,
    /// Requests sent in the present state.
    pub(super) asked: u8,
    /// The event that TCP has not received yet.
    pub(super) event: u8,
    /// Whether the record is on the list of events.
    pub(super) event_listed: u8,
    /// Whether a request is due.
    pub(super) question_due: u8,
    /// 1: the node that had the address is gone, and no other node has answered since.
    pub(super) gone: u8,
}

const _: () = assert!(size_of::<Neighbor>() == 48);

impl Neighbor {
    pub(super) fn state(&self) -> Reachability {
        Reachability::from_byte(self.state)
    }

    pub(super) fn has_hardware_address(&self) -> bool {
        !matches!(self.state(), Incomplete | Failed)
    }
}

/// Counters of the records.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Tally {
    /// Records in the state `Incomplete`.
    pub(super) incomplete: u32,
    /// Records evicted for others, since counters were last available.
    pub(super) evicted: u32,
    /// Records refused, since counters were last available.
    pub(super) refused: u32,
    /// The record whose hardware address is being written, plus one. 0: none.
    pub(super) learning: u32,
}
