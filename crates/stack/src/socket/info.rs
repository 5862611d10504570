//! What can be asked about a connection.

use super::{ConnectionId, SocketError};
use crate::Stack;
use crate::tcp::{State, flag};

/// Facts about a connection, as TCP_INFO gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// State of the connection.
    pub state: State,
    /// Smoothed round trip, nanoseconds; 0 before the first measurement.
    pub rtt_ns: u64,
    /// Its mean deviation, nanoseconds.
    pub rtt_variation_ns: u64,
    /// Smallest round trip seen lately, nanoseconds.
    pub min_rtt_ns: u64,
    /// Congestion window, bytes.
    pub congestion_window: u32,
    /// Slow start threshold, bytes.
    pub slow_start_threshold: u32,
    /// Largest payload of a segment, bytes.
    pub segment_size: u16,
    /// The peer's window, bytes.
    pub send_window: u32,
    /// Bytes sent and not acknowledged.
    pub unacknowledged: u32,
    /// Bytes queued and never sent.
    pub unsent: u32,
    /// Bytes the program has not read.
    pub unread: u32,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Timestamps are in use.
    pub timestamps: bool,
    /// SACK is in use.
    pub sack: bool,
    /// Window scaling is in use.
    pub window_scaling: bool,
    /// ECN is in use.
    pub ecn: bool,
}

impl Stack {
    /// Facts about a connection.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn info(&self, id: ConnectionId) -> Result<Info, SocketError> {
        let pcb = &self.tcp.pcbs[self.tcp.resolve(id)?];
        Ok(Info {
            state: pcb.state(),
            rtt_ns: pcb.rtt.srtt_ns(),
            rtt_variation_ns: pcb.rtt.rttvar_ns(),
            min_rtt_ns: pcb.rtt.min_ns(),
            congestion_window: pcb.congestion.cwnd(),
            slow_start_threshold: pcb.congestion.ssthresh(),
            segment_size: pcb.mss,
            send_window: pcb.snd_wnd,
            unacknowledged: pcb.outstanding(),
            unsent: pcb.unsent(),
            unread: pcb.receive_queue.len() as u32,
            retransmits: pcb.retransmits,
            bytes_acked: pcb.bytes_acked,
            bytes_received: pcb.bytes_received,
            timestamps: pcb.has(flag::TIMESTAMPS),
            sack: pcb.has(flag::SACK),
            window_scaling: pcb.has(flag::WINDOW_SCALING),
            ecn: pcb.has(flag::ECN),
        })
    }
}
