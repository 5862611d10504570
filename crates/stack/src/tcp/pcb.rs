//! The protocol control block: the state of a connection, in one record of context memory.

use toehold_shm::{ByteQueue, NONE};
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::congestion::Congestion;
use super::rtt::Rtt;
use crate::ip::Path;
use crate::socket::{CommonSettings, setting};
use crate::time::Instant;
use crate::tuple::FourTuple;

/// States of a connection (RFC 9293 §3.3.2). TIME-WAIT is no state of a control block: it has
/// records of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// No connection: the block waits for the program to close it.
    Closed = 0,
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and answered.
    SynReceived,
    /// Data flow.
    Established,
    /// This side closed first; its FIN is not yet acknowledged.
    FinWait1,
    /// This side's FIN is acknowledged, the peer may still send.
    FinWait2,
    /// The peer closed, this side may still send.
    CloseWait,
    /// Both sides closed at once; this side's FIN is not yet acknowledged.
    Closing,
    /// The peer closed first, then this side; the FIN is not yet acknowledged.
    LastAck,
}

impl State {
    #[inline]
    fn from_u8(value: u8) -> Self {
        match value {
            1 => State::SynSent,
            2 => State::SynReceived,
            3 => State::Established,
            4 => State::FinWait1,
            5 => State::FinWait2,
            6 => State::CloseWait,
            7 => State::Closing,
            8 => State::LastAck,
            _ => State::Closed,
        }
    }

    /// Whether the handshake is done and the connection not yet over.
    pub fn is_synchronized(self) -> bool {
        self >= State::Established
    }

    /// Whether the peer may still send data.
    pub fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether data of this side may be (re)transmitted.
    pub fn may_transmit(self) -> bool {
        matches!(
            self,
            State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck
        )
    }
}

/// Boolean facts about a connection.
pub(crate) mod flag {
    /// An acknowledgement has to go out with the next transmission round.
    pub(crate) const ACK_NOW: u32 = 1 << 0;
    /// The program closed its sending direction: a FIN follows the queue.
    pub(crate) const FIN_QUEUED: u32 = 1 << 1;
    /// The FIN was sent at least once.
    pub(crate) const FIN_SENT: u32 = 1 << 2;
    /// The peer's FIN was received in order.
    pub(crate) const FIN_RECEIVED: u32 = 1 << 3;
    /// The program shut its receiving direction.
    pub(crate) const READ_SHUT: u32 = 1 << 4;
    /// The program closed the connection.
    pub(crate) const RELEASED: u32 = 1 << 5;
    /// On the list of connections with segments to send.
    pub(crate) const ON_READY: u32 = 1 << 6;
    /// On a neighbour's list, until its hardware address is known.
    pub(crate) const ON_NEIGHBOR: u32 = 1 << 7;
    /// On the list of connections whose readiness changed.
    pub(crate) const ON_EVENTS: u32 = 1 << 8;
    /// Timestamps were agreed on (RFC 7323).
    pub(crate) const TIMESTAMPS: u32 = 1 << 9;
    /// SACK was agreed on (RFC 2018).
    pub(crate) const SACK: u32 = 1 << 10;
    /// Window scaling was agreed on (RFC 7323).
    pub(crate) const WINDOW_SCALING: u32 = 1 << 11;
    /// ECN was agreed on (RFC 3168).
    pub(crate) const ECN: u32 = 1 << 12;
    /// Echo congestion to the peer until it answers with CWR.
    pub(crate) const ECN_ECHO: u32 = 1 << 13;
    /// Tell the peer with the next new data that the window was reduced.
    pub(crate) const ECN_CWR: u32 = 1 << 14;
    /// A reset has to go out, after which the block is closed.
    pub(crate) const RESET: u32 = 1 << 15;
    /// Opened by the peer through a listener.
    pub(crate) const PASSIVE: u32 = 1 << 16;
    /// In a listener's accept queue.
    pub(crate) const IN_ACCEPT_QUEUE: u32 = 1 << 17;
    /// A SYN (or SYN-ACK) has to go out.
    pub(crate) const SYN_PENDING: u32 = 1 << 18;
    /// A probe of a closed window, or a keepalive, has to go out.
    pub(crate) const PROBE: u32 = 1 << 19;
    /// A tail loss probe has to go out (RFC 8985 §7.3).
    pub(crate) const TAIL_PROBE: u32 = 1 << 20;
    /// A tail loss probe is in flight.
    pub(crate) const TAIL_PROBE_OUT: u32 = 1 << 21;
    /// The tail loss probe in flight was a retransmission.
    pub(crate) const TAIL_PROBE_RETRANSMITS: u32 = 1 << 22;
    /// Reordering was seen (RFC 8985 §6.2 step 3).
    pub(crate) const REORDERING: u32 = 1 << 23;
    /// Requests and replies alternate: data carry the acknowledgements.
    pub(crate) const INTERACTIVE: u32 = 1 << 24;
    /// Sending last stopped at the congestion window (RFC 9438 §5.8).
    pub(crate) const WINDOW_LIMITED: u32 = 1 << 25;
    /// The program waits for room or for the end of the connection attempt.
    pub(crate) const WRITER_WAITS: u32 = 1 << 26;
    /// Urgent data are announced to the peer and not yet acknowledged.
    pub(crate) const URGENT_OUT: u32 = 1 << 27;
    /// Closed with bytes that the peer may still read in place.
    pub(crate) const FENCE_WANTED: u32 = 1 << 28;
    /// On the list of closed blocks whose bytes wait for a fence.
    pub(crate) const IN_DEFERRED_FREE: u32 = 1 << 29;
    /// The program announced more data (MSG_MORE): the next round sends whole segments only.
    pub(crate) const MORE: u32 = 1 << 31;
    /// A D-SACK block waits to be reported (RFC 2883).
    pub(crate) const DSACK: u32 = 1 << 30;
}

/// The repair of losses in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Repair {
    /// No repair.
    Open = 0,
    /// Fast recovery until `recover` is acknowledged.
    Recovery = 1,
    /// After a retransmission timeout, until `recover` is acknowledged.
    Loss = 2,
}

/// The purpose for which the retransmission timer is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RetransmitTimer {
    Off = 0,
    /// Retransmission timeout (RFC 6298).
    Timeout = 1,
    /// Tail loss probe (RFC 8985 §7.2).
    TailProbe = 2,
    /// RACK's reordering window (RFC 8985 §6.2 step 5).
    Reordering = 3,
    /// Zero-window probe (RFC 9293 §3.8.6.1).
    Persist = 4,
    /// End of the delay of corked data.
    Cork = 5,
    /// The program's rate limit (SO_MAX_PACING_RATE).
    Pacing = 6,
}

/// State of the urgent mark in the received stream.
pub(crate) mod urgent {
    /// No mark is announced.
    pub(crate) const NONE: u8 = 0;
    /// A mark is announced; its byte has not arrived yet.
    pub(crate) const AHEAD: u8 = 1;
    /// The byte has arrived.
    pub(crate) const HERE: u8 = 2;
    /// The program has read the byte; the mark still stands in the stream.
    pub(crate) const TAKEN: u8 = 3;
}

/// A connection.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Pcb {
    pub(crate) flags: u32,
    pub(crate) state_raw: u8,
    pub(crate) repair_raw: u8,
    pub(crate) timer_raw: u8,
    /// Pending error, see [`crate::socket::SocketError`]; 0 for none.
    pub(crate) error: u8,

    // Sending (RFC 9293 §3.3.1).
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    /// The peer's window in bytes, scale applied.
    pub(crate) snd_wnd: u32,
    /// Largest window the peer ever offered.
    pub(crate) max_snd_wnd: u32,
    pub(crate) snd_wl1: Seq,
    pub(crate) snd_wl2: Seq,
    pub(crate) iss: Seq,
    /// End of urgent data in the sent stream, if `URGENT_OUT`.
    pub(crate) snd_up: Seq,

    // Receiving.
    pub(crate) rcv_nxt: Seq,
    /// Right edge of the window as last advertised.
    pub(crate) rcv_adv: Seq,
    /// The acknowledgement last sent.
    pub(crate) last_ack_sent: Seq,
    /// Sequence number of the urgent byte, see `urgent_state`.
    pub(crate) rcv_up: Seq,

    // Timestamps (RFC 7323): values are milliseconds plus an offset of the connection.
    pub(crate) ts_offset: u32,
    pub(crate) ts_recent: u32,
    /// Millisecond (clock modulo 2³²) at which `ts_recent` was taken.
    pub(crate) ts_recent_at: u32,

    /// Largest payload of a segment, options subtracted.
    pub(crate) mss: u16,
    /// The peer's MSS option, or the default (RFC 9293 §3.7.1).
    pub(crate) peer_mss: u16,
    /// Largest segment size this connection has seen from its peer (for delayed acknowledgements).
    pub(crate) rcv_mss: u16,
    pub(crate) snd_wscale: u8,
    pub(crate) rcv_wscale: u8,

    /// Unacknowledged and unsent bytes; its head is `snd_una`. The queue is empty before the
    /// handshake is done.
    pub(crate) send_queue: ByteQueue,
    /// Bytes that the program has not read; its end is `rcv_nxt`. Bytes ahead of a gap lie in the
    /// same chain beyond the end, see `ranges`.
    pub(crate) receive_queue: ByteQueue,
    /// First of the ranges received ahead of a gap, in order of sequence.
    pub(crate) ranges: u32,
    /// The range most recently added to, which SACK reports first (RFC 2018 §4).
    pub(crate) latest_range: u32,
    /// D-SACK block to report (RFC 2883), if `DSACK`.
    pub(crate) dsack_left: Seq,
    pub(crate) dsack_right: Seq,

    // Segments in flight.
    pub(crate) sent_head: u32,
    pub(crate) sent_tail: u32,
    /// Bytes in flight that the peer has reported by SACK.
    pub(crate) sacked: u32,
    /// Bytes in flight that are considered lost and not yet retransmitted.
    pub(crate) lost: u32,
    /// The flight record, while segments are in flight.
    pub(crate) flight: u32,
    /// Snd_nxt when ECN last reduced the window (RFC 3168 §6.1.2).
    pub(crate) ecn_recover: Seq,
    pub(crate) dup_acks: u8,
    /// Consecutive timeouts.
    pub(crate) backoff: u8,
    /// Multiplier of RACK's reordering window (RFC 8985 §6.2 step 4).
    pub(crate) reorder_steps: u8,
    pub(crate) urgent_state: u8,
    pub(crate) urgent_byte: u8,
    /// Acknowledgements still to be sent without delay, at the beginning of a connection.
    pub(crate) quick_acks: u8,
    pub(crate) keepalive_probes: u8,
    pub(crate) syn_count: u8,
    /// Bytes received since the last acknowledgement was sent.
    pub(crate) unacked_received: u32,

    // Lists and owners.
    /// Next on the ready list or on a neighbour's list.
    pub(crate) ready_next: u32,
    /// Next on the list of readiness changes.
    pub(crate) event_next: u32,
    /// Next in the listener's accept queue. After accept: the last of the ends of records, see
    /// [`Pcb::record_end`].
    pub(super) accept_next: u32,
    /// Listener of a passive connection until it is accepted; then its channel, see
    /// [`Pcb::channel`].
    pub(crate) listener: u32,
    /// Distinguishes this connection from earlier ones in the same slot; 0 in free slots.
    pub(crate) generation: u32,
    pub(crate) retransmits: u32,
    /// Next on the list of connections that wait for payload memory, see `memory`; 0: not on it.
    pub(crate) memory_next: u32,
    pub(crate) tuple: FourTuple,
    pub(crate) path: Path,
    pub(crate) settings: CommonSettings,

    // Times.
    pub(crate) retransmit_at: Instant,
    pub(crate) ack_at: Instant,
    /// Keepalive or FIN-WAIT-2, see `timers`.
    pub(crate) life_at: Instant,
    /// Latest time at which the wheel fires.
    pub(crate) wheel_at: Instant,
    pub(crate) last_received: Instant,
    /// Start of the time for which the oldest outstanding byte (or window probe) has waited for an
    /// answer.
    pub(crate) waiting_since: Instant,
    /// When a segment that needs an acknowledgement was last sent.
    pub(crate) last_sent: Instant,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) rtt: Rtt,
    pub(crate) congestion: Congestion,
}

/// With its entries in the slab, the timing wheel and the demultiplexer, an idle connection takes
/// at most 512 bytes of context memory.
const _: () = assert!(size_of::<Pcb>() <= 480);

impl Pcb {
    /// Whether bytes written now will be sent.
    pub(super) fn takes_more(&self) -> bool {
        matches!(self.state(), State::Established | State::CloseWait) && !self.has(flag::FIN_QUEUED)
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        State::from_u8(self.state_raw)
    }

    pub(crate) fn set_state(&mut self, state: State) {
        self.state_raw = state as u8;
    }

    pub(crate) fn repair(&self) -> Repair {
        match self.repair_raw {
            1 => Repair::Recovery,
            2 => Repair::Loss,
            _ => Repair::Open,
        }
    }

    pub(crate) fn set_repair(&mut self, repair: Repair) {
        self.repair_raw = repair as u8;
    }

    pub(crate) fn timer(&self) -> RetransmitTimer {
        match self.timer_raw {
            1 => RetransmitTimer::Timeout,
            2 => RetransmitTimer::TailProbe,
            3 => RetransmitTimer::Reordering,
            4 => RetransmitTimer::Persist,
            5 => RetransmitTimer::Cork,
            6 => RetransmitTimer::Pacing,
            _ => RetransmitTimer::Off,
        }
    }

    #[inline]
    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flags: u32) {
        self.flags |= flags;
    }

    #[inline]
    pub(crate) fn clear(&mut self, flags: u32) {
        self.flags &= !flags;
    }

    /// A block in its initial state.
    pub(crate) fn new(tuple: FourTuple, generation: u32, settings: CommonSettings) -> Self {
        let mut pcb = <Self as FromZeros>::new_zeroed();
        pcb.tuple = tuple;
        pcb.generation = generation;
        pcb.settings = settings;
        pcb.send_queue = ByteQueue::EMPTY;
        pcb.receive_queue = ByteQueue::EMPTY;
        for link in [
            &mut pcb.ranges,
            &mut pcb.latest_range,
            &mut pcb.sent_head,
            &mut pcb.sent_tail,
            &mut pcb.flight,
            &mut pcb.ready_next,
            &mut pcb.event_next,
            &mut pcb.accept_next,
            &mut pcb.listener,
        ] {
            *link = NONE;
        }
        for deadline in [
            &mut pcb.retransmit_at,
            &mut pcb.ack_at,
            &mut pcb.life_at,
            &mut pcb.wheel_at,
        ] {
            *deadline = Instant::NEVER;
        }
        pcb.waiting_since = Instant::NEVER;
        pcb.reorder_steps = 1;
        pcb
    }

    /// Last of the ends of records not yet sent, see `records`.
    #[inline]
    pub(super) fn record_end(&self) -> u32 {
        if self.has(flag::IN_ACCEPT_QUEUE) {
            NONE
        } else {
            self.accept_next
        }
    }

    /// The channel through which its program may send and receive without the lease.
    #[inline]
    pub(crate) fn channel(&self) -> Option<u32> {
        self.settings.has(setting::CHANNEL).then_some(self.listener)
    }

    /// Initial sequence number of the peer, while in SYN-RECEIVED.
    pub(super) fn irs(&self) -> Seq {
        self.rcv_nxt - 1 - self.bytes_received as u32
    }

    /// Sends queued data now, whatever delays them: the data that the program announced did not
    /// arrive in time.
    pub(crate) fn push_out(&mut self) {
        self.settings.set(setting::MORE_ANNOUNCED, false);
        self.set(flag::PROBE);
    }

    /// Bytes between the oldest unacknowledged one and the newest sent.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.snd_nxt.distance(self.snd_una)
    }

    /// Estimate of the bytes in the network (RFC 6675 "pipe").
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.outstanding()
            .saturating_sub(self.sacked)
            .saturating_sub(self.lost)
    }

    /// FlightSize, in bytes. If the window is the limit, it is the window. Acknowledgements that
    /// arrive together make room for segments sent after the last of them. In between, less is in
    /// flight than the path can carry.
    //= RFC 9438 §4.6 (cwnd in place of flight_size, which never grows unless it is the limit)
    //= RFC 5681 §3.2 (what limited transmit sent beyond the window does not count)
    pub(crate) fn flight_size(&self) -> u32 {
        let cwnd = self.congestion.cwnd();
        if self.has(flag::WINDOW_LIMITED) {
            cwnd
        } else {
            self.outstanding().min(cwnd)
        }
    }

    /// Room in the window, in bytes, that acknowledgements have made and that is not used yet. It
    /// excludes bytes found lost since, and room without data to send.
    pub(crate) fn fresh_room(&self) -> u32 {
        if self.unsent() == 0 {
            return 0;
        }
        let held = self.outstanding().saturating_sub(self.sacked);
        self.flight_size().saturating_sub(held)
    }

    /// Sequence number of the first byte in the send queue.
    #[inline]
    pub(crate) fn queue_start(&self) -> Seq {
        self.snd_una
    }

    /// Sequence number behind the last byte in the send queue; that of a FIN.
    #[inline]
    pub(crate) fn queue_end(&self) -> Seq {
        self.queue_start() + self.send_queue.len() as u32
    }

    /// Queued bytes that were never sent.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        if self.has(flag::FIN_SENT) {
            return 0;
        }
        self.queue_end().after(self.snd_nxt)
    }

    /// Whether a reading program must wait for the peer: there are no data, no end and no error. A
    /// channel does not change that, since it may have bytes.
    #[inline]
    pub(crate) fn awaits_data(&self) -> bool {
        self.state_raw == State::Established as u8
            && self.receive_queue.is_empty()
            && self.error == 0
            && self.urgent_state == urgent::NONE
            && !self.has(flag::FIN_RECEIVED | flag::READ_SHUT)
            && !self.settings.has(setting::CHANNEL)
    }

    /// The timestamp value of a segment sent at `now`.
    pub(crate) fn timestamp(&self, now: Instant) -> u32 {
        (now.millis() as u32).wrapping_add(self.ts_offset)
    }
}

/// The demultiplexer finds a block by the tuple in it, and keeps no copy.
impl crate::demux::HasTuple for Pcb {
    #[inline]
    fn tuple(&self) -> &FourTuple {
        &self.tuple
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TcpConfig;

    /// After 4 GiB, the oldest unacknowledged byte may have the number of the SYN.
    #[test]
    fn stream_beyond_4_gib_reaches_initial_sequence_number() {
        //= RFC 9293 §3.4
        let settings = CommonSettings::from_config(&TcpConfig::default());
        let mut pcb = Pcb::new(FourTuple::new_zeroed(), 1, settings);
        pcb.set_state(State::Established);
        pcb.iss = Seq(1000);
        pcb.snd_una = pcb.iss;
        pcb.snd_nxt = pcb.iss + 5;
        assert_eq!((pcb.queue_start(), pcb.outstanding()), (Seq(1000), 5));
        pcb.snd_nxt = pcb.iss;
        assert_eq!((pcb.queue_end(), pcb.unsent()), (Seq(1000), 0));
    }
}
