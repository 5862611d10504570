//! What AF_XDP has carried and dropped, and why.

/// Counters since the link was opened, of all its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpStatistics {
    /// Frames that came.
    pub frames_received: u64,
    /// Bytes of these.
    pub bytes_received: u64,
    /// Of these frames, those whose checksum the kernel at the other end of a virtual
    /// interface had left undone.
    pub unfinished: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Bytes of these.
    pub bytes_sent: u64,
    /// Frames dropped, in either direction, because of their length.
    pub bad_length: u64,
    /// Times there was no place for a frame, which was given back.
    pub full: u64,
    /// Calls of the kernel to send frames, or to take places for them.
    pub calls: u64,
    /// Of these, calls that failed because the interface is down or gone.
    pub down: u64,
    /// Frames that the kernel dropped, because there was no place for them.
    pub dropped: u64,
    /// Nodes whose frames are not taken this way, because there are too many.
    pub not_served: u64,
}
