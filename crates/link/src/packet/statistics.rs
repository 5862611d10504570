//! Counters of a packet socket: frames carried, and frames dropped by reason.

use crate::virtio_net::BadHeader;

/// Counters since the socket was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketStatistics {
    /// Received frames, with super-frames counted once.
    pub frames_received: u64,
    /// Bytes of the received frames.
    pub bytes_received: u64,
    /// Received super-frames.
    pub super_frames_received: u64,
    /// Frames passed to the interface, with super-frames counted once.
    pub frames_sent: u64,
    /// Bytes of the sent frames.
    pub bytes_sent: u64,
    /// Sent super-frames.
    pub super_frames_sent: u64,
    /// Super-frames cut here because the kernel does not take them.
    pub segmented: u64,
    /// Frames lost because the socket's buffer was full.
    pub dropped: u64,
    /// Received frames dropped because of their virtio-net header.
    pub bad_headers: u64,
    /// The error of the last bad header.
    pub last_bad_header: Option<BadHeader>,
    /// Frames dropped, in either direction, because of their length.
    pub bad_length: u64,
    /// Super-frames not sent because they are neither TCP nor UDP.
    pub bad_super_frames: u64,
    /// Super-frames not sent because of a wrong checksum.
    pub bad_checksums: u64,
    /// Frames not sent because the interface is down.
    pub down: u64,
    /// Frames not sent because the interface was removed.
    pub gone: u64,
    /// Number of times that the socket or the interface's queue had no room for a
    /// frame, which was given back.
    pub full: u64,
    /// Frames the kernel refused for another reason.
    pub refused: u64,
    /// Reads that failed for another reason.
    pub read_errors: u64,
    /// Nodes without their frames, because there are too many or the kernel refused
    /// their address.
    pub not_served: u64,
}
