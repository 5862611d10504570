//! Counters of a bridge: frames carried, and frames dropped by reason.

/// Counters of one direction since the bridge was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BridgeStatistics {
    /// Received frames, with super-frames counted once.
    pub frames: u64,
    /// Bytes of the received frames.
    pub bytes: u64,
    /// Received super-frames.
    pub super_frames: u64,
    /// Frames that the other link took. Pieces of a cut frame count each.
    pub forwarded: u64,
    /// Frames cut because the other link does not carry them whole.
    pub segmented: u64,
    /// Packets fragmented because the other link does not carry them whole.
    pub fragmented: u64,
    /// ICMP errors sent about packets that are too long for the other link.
    pub reported: u64,
    /// Frames whose checksums the bridge filled in.
    pub completed: u64,
    /// Frames that had to wait for room.
    pub held: u64,
    /// Frames dropped because too many waited for room.
    pub crowded: u64,
    /// Frames dropped because no room came in time, or because that had happened to
    /// an earlier frame for their destination.
    pub late: u64,
    /// Frames dropped because no peer of the other link has their destination.
    pub unreachable: u64,
    /// Frames dropped because they exceed the other link's limit, and can neither
    /// be cut nor fragmented.
    pub too_long: u64,
    /// Frames dropped because they are shorter than an Ethernet header.
    pub too_short: u64,
    /// Super-frames dropped because they would be too many segments.
    pub bad_super_frames: u64,
    /// Frames not cut because of a wrong checksum.
    pub bad_checksums: u64,
    /// Frames dropped because their source may not send here.
    pub foreign: u64,
    /// Frames dropped because another queue of the device passes them.
    pub others: u64,
}

impl BridgeStatistics {
    /// Returns the number of dropped frames of all reasons.
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
