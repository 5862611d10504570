//! What a TAP device has carried and dropped, and why.

use crate::vnet::BadHeader;

/// Counters of one queue, since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TapStatistics {
    /// Frames the kernel sent, super-frames counted once.
    pub frames_received: u64,
    /// Bytes of these.
    pub bytes_received: u64,
    /// Of these frames, super-frames.
    pub super_frames_received: u64,
    /// Frames handed to the kernel, super-frames counted once.
    pub frames_sent: u64,
    /// Bytes of these.
    pub bytes_sent: u64,
    /// Of these frames, super-frames.
    pub super_frames_sent: u64,
    /// Super-frames that were cut here, because the kernel does not take them.
    pub segmented: u64,
    /// Frames from the kernel dropped for their virtio-net header.
    pub bad_headers: u64,
    /// What was wrong with the last of these.
    pub last_bad_header: Option<BadHeader>,
    /// Frames dropped, in either direction, because of their length.
    pub bad_length: u64,
    /// Super-frames not sent because they are none of TCP or UDP.
    pub bad_super_frames: u64,
    /// Super-frames not sent because their checksum is wrong.
    pub bad_checksums: u64,
    /// Frames not sent because the interface is down.
    pub down: u64,
    /// Frames not sent because the interface was deleted.
    pub gone: u64,
    /// Times the kernel had no memory for a frame, which was given back.
    pub full: u64,
    /// Frames the kernel refused for another reason.
    pub refused: u64,
    /// Reads that failed for a reason of their own.
    pub read_errors: u64,
}
