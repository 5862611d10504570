//! Counters of a link over a segment: frames carried, and frames dropped by reason.

/// Counters of a link since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IvshmemStatistics {
    /// Frames sent to all members because their destination was unknown.
    pub flooded: u64,
    /// Frames not sent because no member is present.
    pub unreachable: u64,
    /// Frames not sent, or dropped, because of their length.
    pub bad_length: u64,
    /// Frames given back because a member's ring is full.
    pub full: u64,
    /// Multicast frames not sent to a member because its ring is full.
    pub group_frames_dropped: u64,
    /// Records dropped because they are not valid frames.
    pub malformed: u64,
    /// Sessions ended because a member's ring was invalid.
    pub broken: u64,
    /// Hardware addresses not learnt because the table is full.
    pub not_learned: u64,
    /// Number of times that another member took this member's number, after a long
    /// pause of this one.
    pub evicted: u64,
}

/// Counters of one member since this end of the link was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IvshmemPeerStatistics {
    /// Frames put into the member's ring.
    pub frames_sent: u64,
    /// Frames taken from the member's ring.
    pub frames_received: u64,
    /// Sessions with the member, in either direction.
    pub sessions: u64,
}

/// A link's facts about another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IvshmemPeerInfo {
    /// The member's number.
    pub member: usize,
    /// The member's hardware address.
    pub address: [u8; 6],
    /// Whether frames can flow to and from the member.
    pub is_connected: bool,
    /// The member's counters.
    pub statistics: IvshmemPeerStatistics,
}
