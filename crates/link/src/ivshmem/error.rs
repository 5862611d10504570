//! Errors of a link over a segment.

use toehold_shm::ring::segment::SegmentError;

use super::settings::{MAX_MTU, MIN_MTU};

/// Reason for which a link over a segment could not be opened, with advice.
#[derive(Debug, thiserror::Error)]
pub enum IvshmemError {
    /// The MTU is out of bounds.
    #[error("MTU {0} is not between {MIN_MTU} and {MAX_MTU}")]
    BadMtu(u16),
    /// The address is multicast or zero.
    #[error("{0:02x?} is not the hardware address of one member")]
    BadAddress([u8; 6]),
    /// The memory is not available, or is no segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A frame of this MTU exceeds the rings' limit.
    #[error(
        "MTU {mtu} is too much for a segment with room for {longest} bytes a frame: choose a smaller one, a longer segment, or fewer members"
    )]
    TooSmall {
        /// The wanted MTU.
        mtu: u16,
        /// Length of the longest frame in bytes.
        longest: usize,
    },
    /// The member's number exceeds the segment's.
    #[error("there is no member {member}: the segment has {members}, counted from 0")]
    NoSuchMember {
        /// The wanted number.
        member: usize,
        /// Number of members of the segment.
        members: usize,
    },
    /// A living member has the number.
    #[error(
        "member {0} of the segment is in use by another process; choose another number, or none to get one that is free"
    )]
    Taken(usize),
    /// All numbers belong to living members.
    #[error("all {0} members of the segment are in use; end one, or make a segment for more")]
    Crowded(usize),
}
