//! Further facts for TCP_INFO.

use super::{ConnectionId, Info, SocketError};
use crate::Stack;
use crate::tcp::{DUPLICATE_THRESHOLD, EarlyData, Pcb, Repair, Tcp, flag};
use crate::time::Instant;
use toehold_shm::NONE;

/// All facts about a connection that TCP_INFO has a field for. Collecting them takes time in
/// proportion to the data in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Details {
    /// The facts that cost nothing to collect.
    pub info: Info,
    /// The repair of losses, or reduction of the window, that is in progress.
    pub congestion: CongestionState,
    /// Consecutive expiries of the retransmission timer.
    pub backoff: u8,
    /// Unanswered keepalive probes.
    pub probes: u8,
    /// Window scale shift of the peer's windows.
    pub send_scale: u8,
    /// Window scale shift of this side's windows.
    pub receive_scale: u8,
    /// Largest payload that the peer has sent, bytes.
    pub receive_segment_size: u16,
    /// Largest payload that this side has announced, bytes.
    pub advertised_segment_size: u16,
    /// Longest delay of an acknowledgement, nanoseconds.
    pub ack_delay_ns: u64,
    /// Bytes in flight that the peer has reported by SACK.
    pub sacked: u32,
    /// Bytes in flight that are considered lost.
    pub lost: u32,
    /// Segments in flight that were retransmitted.
    pub retransmitted: u32,
    /// When a segment that needs an acknowledgement was last sent.
    pub last_sent: Instant,
    /// When a segment was last received.
    pub last_received: Instant,
    /// When data were last received.
    pub last_data_received: Option<Instant>,
    /// Limit of the receive queue, bytes.
    pub receive_limit: u32,
    /// Bytes of the receive buffer, which follows the program's reading per round trip.
    pub receive_space: u32,
    /// The advertised window, bytes.
    pub receive_window: u32,
    /// Segments that may overtake a segment before it is considered lost.
    pub reordering: u32,
    /// The program's limit for data, bytes a second.
    pub max_pacing_rate: Option<u64>,
    /// The value of a timestamp sent now; see [`Details::now`].
    pub timestamp: u32,
    /// Segments sent, including those without data.
    pub segments_sent: u32,
    /// Segments received, including those without data.
    pub segments_received: u32,
    /// Segments with data sent.
    pub data_segments_sent: u32,
    /// Segments with data received.
    pub data_segments_received: u32,
    /// Bytes sent, including retransmissions.
    pub bytes_sent: u64,
    /// Bytes retransmitted.
    pub bytes_retransmitted: u64,
    /// Segments delivered to the peer, including the SYN.
    pub delivered: u32,
    /// Acknowledgements that echoed a congestion mark.
    pub delivered_marked: u32,
    /// Segments received with a congestion mark.
    pub received_marked: u32,
    /// Delivery rate in the last round trip with data in flight, bytes a second.
    pub delivery_rate: u64,
    /// Whether the program, not the path, limited that rate.
    pub is_app_limited: bool,
    /// Nanoseconds with data in flight; of that, nanoseconds limited by the peer's window; by the
    /// send buffer.
    pub busy_ns: [u64; 3],
    /// Duplicates that the peer has reported (RFC 2883).
    pub duplicate_reports: u32,
    /// Number of times that reordering was seen.
    pub reorderings: u32,
    /// Segments received ahead of a gap.
    pub out_of_order: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Completed repairs after a timeout.
    pub timeout_recoveries: u32,
    /// Duration of these repairs, nanoseconds.
    pub timeout_ns: u64,
    /// The result of data in the SYN (RFC 7413).
    pub early_data: EarlyData,
    /// The time of these facts.
    pub now: Instant,
}

/// Repair of losses, or reduction of the window, in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionState {
    /// None.
    Open,
    /// The peer reported a possible loss.
    Disorder,
    /// The window was reduced after congestion.
    Reduced,
    /// Fast recovery.
    Recovery,
    /// A repair after a timeout.
    Loss,
}

impl Tcp {
    fn details(&self, now: Instant, index: u32) -> Details {
        let pcb = &self.pcbs[index];
        let tally = self.tally_of(index);
        let mss = u32::from(pcb.mss).max(1);
        // Segments that were sent, once or again, and are neither acknowledged nor lost.
        let segments = |bytes: u32| bytes.div_ceil(mss);
        let unanswered = segments(pcb.outstanding().saturating_sub(pcb.sacked));
        let gone = unanswered.saturating_add(pcb.retransmits);
        let tuned = self.tuning(index);
        let early_data = self.early_data(index);
        // A SYN and its data are one segment.
        let counts_once = early_data.taken && !early_data.is_child;
        Details {
            congestion: congestion_state(pcb),
            backoff: pcb.backoff,
            probes: pcb.keepalive_probes,
            send_scale: pcb.snd_wscale,
            receive_scale: pcb.rcv_wscale,
            receive_segment_size: pcb.rcv_mss,
            advertised_segment_size: self.advertised_mss(pcb),
            ack_delay_ns: self.ack_delay(index).as_nanos() as u64,
            sacked: pcb.sacked,
            lost: pcb.lost,
            retransmitted: self.scoreboard.retransmitted_in_flight(pcb),
            last_sent: pcb.last_sent,
            last_received: pcb.last_received,
            last_data_received: self
                .counted(index)
                .map(|tally| tally.last_data_received)
                .filter(|at| *at != Instant(0)),
            receive_limit: self.receive_limit(pcb),
            receive_space: pcb.settings.receive_buffer,
            receive_window: pcb.rcv_adv.after(pcb.rcv_nxt),
            reordering: DUPLICATE_THRESHOLD,
            max_pacing_rate: tuned.map(|tuning| tuning.pacing_rate).filter(|rate| *rate > 0),
            timestamp: pcb.timestamp(now),
            segments_sent: tally.segments_out,
            segments_received: tally.segments_in,
            data_segments_sent: tally.data_segments_out,
            data_segments_received: tally.data_segments_in,
            bytes_sent: pcb.bytes_acked + u64::from(pcb.outstanding()) + tally.bytes_retransmitted,
            bytes_retransmitted: tally.bytes_retransmitted,
            delivered: tally
                .data_segments_out
                .saturating_sub(gone)
                .saturating_add(u32::from(!counts_once)),
            delivered_marked: tally.congestion_echoes,
            received_marked: tally.congestion_marks,
            delivery_rate: rate_of(tally.rate_bytes, tally.rate_ns),
            is_app_limited: tally.rate_app_limited != 0,
            busy_ns: tally.busy_ns(now, pcb.flight != NONE),
            duplicate_reports: tally.duplicate_reports,
            reorderings: tally.reorderings,
            out_of_order: tally.out_of_order,
            timeouts: tally.timeouts,
            timeout_recoveries: tally.timeout_recoveries,
            timeout_ns: tally.timeout_ns,
            early_data,
            now,
            info: self.info(index),
        }
    }
}

fn congestion_state(pcb: &Pcb) -> CongestionState {
    match pcb.repair() {
        Repair::Recovery => CongestionState::Recovery,
        Repair::Loss => CongestionState::Loss,
        Repair::Open if pcb.has(flag::ECN) && pcb.ecn_recover.gt(pcb.snd_una) => CongestionState::Reduced,
        Repair::Open if pcb.sacked > 0 || pcb.dup_acks > 0 => CongestionState::Disorder,
        Repair::Open => CongestionState::Open,
    }
}

/// Bytes a second.
fn rate_of(bytes: u64, ns: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

impl Stack {
    /// All facts about a connection.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn details(&self, now: Instant, id: ConnectionId) -> Result<Details, SocketError> {
        Ok(self.tcp.details(now, self.tcp.resolve(id)?))
    }
}
