//! Counters of AF_XDP: frames carried, and frames dropped by reason.

/// Counters of all queues since the link was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpStatistics {
    /// Received frames.
    pub frames_received: u64,
    /// Bytes of the received frames.
    pub bytes_received: u64,
    /// Received frames with a partial checksum, from the kernel at the other end of
    /// a virtual interface.
    pub unfinished: u64,
    /// Sent frames.
    pub frames_sent: u64,
    /// Bytes of the sent frames.
    pub bytes_sent: u64,
    /// Frames dropped, in either direction, because of their length.
    pub bad_length: u64,
    /// Number of times that no buffer was free for a frame, which was given back.
    pub full: u64,
    /// System calls that send frames or return buffers.
    pub calls: u64,
    /// System calls that failed because the interface is down or gone.
    pub down: u64,
    /// Frames that the kernel dropped for lack of a buffer.
    pub dropped: u64,
    /// Nodes without frames on this path, because there are too many.
    pub not_served: u64,
}
