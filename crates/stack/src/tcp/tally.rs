//! The record beside a control block: settings that few programs change, and counts for TCP_INFO.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::pcb::{Pcb, flag};
use crate::socket::Tuning;
use crate::time::Instant;

/// The limit of a connection that has data to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Limit {
    /// Congestion control alone.
    None = 0,
    /// The peer's window.
    Window = 1,
    /// The send buffer: the program waits for room, and no data are left to send.
    Buffer = 2,
}

/// Counts of a connection.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Tally {
    pub(crate) segments_in: u32,
    pub(crate) segments_out: u32,
    pub(crate) data_segments_in: u32,
    pub(crate) data_segments_out: u32,
    pub(crate) bytes_retransmitted: u64,
    pub(crate) last_data_received: Instant,
    /// The start of the present sample of the delivery rate, and the bytes acknowledged by then.
    pub(super) rate_since: Instant,
    pub(super) rate_from: u64,
    /// The last sample: its bytes, and its duration.
    pub(crate) rate_bytes: u64,
    pub(crate) rate_ns: u64,
    /// When the first of the segments in flight was sent.
    pub(super) busy_since: Instant,
    /// Total time with segments in flight.
    pub(super) busy_ns: u64,
    pub(super) limited_since: Instant,
    pub(super) window_limited_ns: u64,
    pub(super) buffer_limited_ns: u64,
    /// A [`Limit`].
    pub(super) limit: u32,
    /// 1: the last sample ended because no data were left to send.
    pub(crate) rate_app_limited: u32,
    pub(crate) congestion_echoes: u32,
    pub(crate) congestion_marks: u32,
    pub(crate) duplicate_reports: u32,
    pub(crate) reorderings: u32,
    pub(crate) out_of_order: u32,
    pub(crate) timeouts: u32,
    pub(crate) timeout_recoveries: u32,
    reserved: u32,
    pub(super) timeout_since: Instant,
    pub(crate) timeout_ns: u64,
    /// When a paced connection may send next.
    pub(super) paced_until: Instant,
}

/// One record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Aside {
    pub(super) tally: Tally,
    pub(super) tuning: Tuning,
}

impl Tally {
    /// The record at the end of a handshake.
    pub(super) fn of(pcb: &Pcb) -> Self {
        let syns = u32::from(pcb.syn_count);
        let (segments_in, segments_out) = match pcb.has(flag::PASSIVE) {
            true => (2, syns),
            false => (1, syns.wrapping_add(1)),
        };
        Self {
            segments_in,
            segments_out,
            ..Self::new_zeroed()
        }
    }

    /// Time with segments in flight; of that, time limited by the peer's window alone; by the send
    /// buffer.
    pub(crate) fn busy_ns(&self, now: Instant, is_flying: bool) -> [u64; 3] {
        let running = |since: Instant, is_running: bool| if is_running { now.nanos_since(since) } else { 0 };
        let limited = |limit: Limit| running(self.limited_since, self.limit == limit as u32);
        [
            self.busy_ns.wrapping_add(running(self.busy_since, is_flying)),
            self.window_limited_ns.wrapping_add(limited(Limit::Window)),
            self.buffer_limited_ns.wrapping_add(limited(Limit::Buffer)),
        ]
    }
}
