//! What a link over a segment has carried and dropped, and why.

/// Counters of a link, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedStatistics {
    /// Frames sent to all members because nobody knew better.
    pub flooded: u64,
    /// Frames not sent because no member is there to receive them.
    pub unreachable: u64,
    /// Frames not sent, or dropped, because of their length.
    pub bad_length: u64,
    /// Frames given back because a member makes no room.
    pub full: u64,
    /// Group frames not sent to a member because it makes no room.
    pub group_frames_dropped: u64,
    /// Records dropped because they are no frames.
    pub malformed: u64,
    /// Times a member's ring held nonsense, and was begun anew.
    pub broken: u64,
    /// Hardware addresses not learned because too many are known.
    pub not_learned: u64,
    /// Times this member's number was taken by another one, as happens to one that did
    /// nothing for long.
    pub evicted: u64,
}

/// Counters of one member, since this end of the link was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedPeerStatistics {
    /// Frames put into its ring.
    pub frames_sent: u64,
    /// Frames taken out of its ring.
    pub frames_received: u64,
    /// Sessions begun with it, in either direction.
    pub sessions: u64,
}

/// What a link knows of another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedPeerInfo {
    /// Its number.
    pub member: usize,
    /// Its hardware address.
    pub address: [u8; 6],
    /// Whether frames can be sent to it, and come from it.
    pub is_connected: bool,
    /// What was exchanged.
    pub statistics: SharedPeerStatistics,
}
