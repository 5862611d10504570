//! What a packet socket has carried and dropped, and why.

use crate::vnet::BadHeader;

/// Counters since the socket was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketStatistics {
    /// Frames that came, super-frames counted once.
    pub frames_received: u64,
    /// Bytes of these.
    pub bytes_received: u64,
    /// Of these frames, super-frames.
    pub super_frames_received: u64,
    /// Frames handed to the interface, super-frames counted once.
    pub frames_sent: u64,
    /// Bytes of these.
    pub bytes_sent: u64,
    /// Of these frames, super-frames.
    pub super_frames_sent: u64,
    /// Super-frames that were cut here, because the kernel does not take them.
    pub segmented: u64,
    /// Frames that came while the socket's buffer was full.
    pub dropped: u64,
    /// Frames that came, dropped for their virtio-net header.
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
    /// Frames not sent because the interface was removed.
    pub gone: u64,
    /// Times the socket or the interface's queue had no room for a frame, which was given back.
    pub full: u64,
    /// Frames the kernel refused for another reason.
    pub refused: u64,
    /// Reads that failed for a reason of their own.
    pub read_errors: u64,
    /// Nodes whose frames are not taken, because there are too many or the kernel refused
    /// their address.
    pub not_served: u64,
}
