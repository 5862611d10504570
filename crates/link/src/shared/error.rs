//! Why there is no link over a segment.

use toehold_shm::ring::segment::SegmentError;

use super::settings::{MAX_MTU, MIN_MTU};

/// Why a link over a segment could not be made, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// An MTU outside of the bounds.
    #[error("MTU {0} is not between {MIN_MTU} and {MAX_MTU}")]
    BadMtu(u16),
    /// A group address, or none at all.
    #[error("{0:02x?} is not the hardware address of one member")]
    BadAddress([u8; 6]),
    /// The memory cannot be had, or is no segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Frames are longer than the rings take.
    #[error(
        "MTU {mtu} is too much for a segment with room for {longest} bytes a frame: choose a smaller one, a longer segment, or fewer members"
    )]
    TooSmall {
        /// What was asked for.
        mtu: u16,
        /// Bytes of the longest frame.
        longest: usize,
    },
    /// A number beyond the segment's.
    #[error("there is no member {member}: the segment has {members}, counted from 0")]
    NoSuchMember {
        /// What was asked for.
        member: usize,
        /// How many there are.
        members: usize,
    },
    /// Somebody has the number, and lives.
    #[error(
        "somebody else is member {0} of the segment, and lives; choose another number, or none to get one that is free"
    )]
    Taken(usize),
    /// All members live.
    #[error("all {0} members of the segment are there; end one, or make a segment for more")]
    Crowded(usize),
}
