//! The results of one acknowledgement, which its steps collect.

use toehold_wire::tcp::Seq;

/// The results of one acknowledgement.
#[derive(Default)]
pub(super) struct Progress {
    /// Sequence space newly acknowledged cumulatively.
    pub(super) acked: u32,
    /// Bytes newly delivered, cumulatively or by SACK.
    pub(super) delivered: u32,
    /// Round trip of the oldest segment delivered that was sent once.
    pub(super) rtt_ns: Option<u64>,
    /// Segments that were sent more than once were acknowledged cumulatively.
    pub(super) repaired: bool,
    /// The end of a segment that was retransmitted needlessly: the peer had it (RFC 2883).
    pub(super) duplicate_end: Option<Seq>,
    /// A segment was delivered after others that were sent later.
    pub(super) reordered: bool,
    /// SACK information changed.
    pub(super) sack_news: bool,
    /// The highest sequence number reported by SACK before this acknowledgement
    /// (RFC 8985 §5.2 RACK.fack), if any.
    pub(super) highest_before: Option<Seq>,
}
