//! What a bridge has carried and dropped, and why.

/// Counters of one direction, since the bridge was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BridgeStatistics {
    /// Frames that came, super-frames counted once.
    pub frames: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Of these frames, super-frames.
    pub super_frames: u64,
    /// Frames the other link took: the pieces of one that was cut count each.
    pub forwarded: u64,
    /// Frames that were cut here, because the other link does not carry them whole.
    pub segmented: u64,
    /// Packets that were fragmented here, because the other link does not carry them whole.
    pub fragmented: u64,
    /// Senders of packets that are too long for the other link that were told so.
    pub reported: u64,
    /// Frames whose checksums were filled in here.
    pub completed: u64,
    /// Frames that had to wait for room.
    pub held: u64,
    /// Frames dropped because too many waited for room already.
    pub crowded: u64,
    /// Frames dropped because no room came in time, or for a destination that this had
    /// happened to.
    pub late: u64,
    /// Frames dropped because nobody beyond has their destination.
    pub unreachable: u64,
    /// Frames dropped because they exceed what the other link carries, and can neither be cut nor
    /// fragmented.
    pub too_long: u64,
    /// Frames dropped because they are shorter than an Ethernet header.
    pub too_short: u64,
    /// Super-frames dropped because of how many segments they would be.
    pub bad_super_frames: u64,
    /// Frames that were not cut because their checksum is wrong.
    pub bad_checksums: u64,
    /// Frames dropped because their source is another one than may send here.
    pub foreign: u64,
    /// Frames dropped because another queue of the same device has them to pass.
    pub others: u64,
}

impl BridgeStatistics {
    /// Frames that were dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        let reasons = [
            self.crowded,
            self.late,
            self.unreachable,
            self.too_long,
            self.too_short,
            self.bad_super_frames,
            self.bad_checksums,
            self.foreign,
            self.others,
        ];
        reasons.iter().sum()
    }
}
