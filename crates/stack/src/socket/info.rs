//! Facts about a connection.

use core::net::SocketAddr;

use super::{ConnectionId, SocketError};
use crate::Stack;
use crate::tcp::{Pcb, RetransmitTimer, State, Tcp, flag, user_timeout_at};
use crate::time::Instant;

/// Facts about a connection, as TCP_INFO gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// State of the connection.
    pub state: State,
    /// Smoothed round trip, nanoseconds; 0 before the first measurement.
    pub rtt_ns: u64,
    /// Mean deviation of the round trip, nanoseconds.
    pub rtt_variation_ns: u64,
    /// Smallest round trip seen lately, nanoseconds.
    pub min_rtt_ns: u64,
    /// Retransmission timeout with its present backoff, nanoseconds.
    pub rto_ns: u64,
    /// Congestion window, bytes.
    pub congestion_window: u32,
    /// Slow start threshold, bytes.
    pub slow_start_threshold: u32,
    /// Largest payload of a segment, bytes.
    pub segment_size: u16,
    /// Largest packet that the path carries, bytes.
    pub path_mtu: u16,
    /// The peer's window, bytes.
    pub send_window: u32,
    /// Bytes sent and not acknowledged.
    pub unacknowledged: u32,
    /// Bytes queued and not yet sent.
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
    /// The running timers.
    pub timers: [Option<Timer>; 4],
}

/// A running timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// The timer's purpose.
    pub kind: TimerKind,
    /// When it expires.
    pub due: Instant,
    /// Consecutive expiries.
    pub retries: u8,
}

/// The purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerKind {
    /// Retransmission timeout (RFC 6298).
    Retransmission,
    /// Tail loss probe (RFC 8985 §7.2).
    TailProbe,
    /// RACK's reordering window (RFC 8985 §6.2 step 5).
    Reordering,
    /// Zero-window probe (RFC 9293 §3.8.6.1).
    Persist,
    /// End of the delay of corked data.
    Cork,
    /// The program's rate limit (SO_MAX_PACING_RATE).
    Pacing,
    /// Delayed acknowledgement (RFC 9293 §3.8.6.3).
    DelayedAck,
    /// Keepalive (RFC 9293 §3.8.4).
    Keepalive,
    /// End of FIN-WAIT-2 for a connection that its program closed.
    FinWait2,
    /// User timeout (RFC 5482).
    UserTimeout,
    /// Twice the maximum segment lifetime (RFC 9293 §3.6.1).
    TimeWait,
}

impl Tcp {
    pub(super) fn info(&self, index: u32) -> Info {
        let pcb = &self.pcbs[index];
        Info {
            state: pcb.state(),
            rtt_ns: pcb.rtt.srtt_ns(),
            rtt_variation_ns: pcb.rtt.rttvar_ns(),
            min_rtt_ns: pcb.rtt.min_ns(),
            rto_ns: self.timeout_ns(index),
            congestion_window: pcb.congestion.cwnd(),
            slow_start_threshold: pcb.congestion.ssthresh(),
            segment_size: pcb.mss,
            path_mtu: pcb.path.mtu,
            send_window: pcb.snd_wnd,
            unacknowledged: pcb.outstanding(),
            unsent: pcb.unsent(),
            unread: self.unread(index) as u32,
            retransmits: pcb.retransmits,
            bytes_acked: pcb.bytes_acked,
            bytes_received: pcb.bytes_received,
            timestamps: pcb.has(flag::TIMESTAMPS),
            sack: pcb.has(flag::SACK),
            window_scaling: pcb.has(flag::WINDOW_SCALING),
            ecn: pcb.has(flag::ECN),
            timers: running_timers(pcb),
        }
    }
}

fn running_timers(pcb: &Pcb) -> [Option<Timer>; 4] {
    let running = |kind, due: Instant, retries| due.is_set().then_some(Timer { kind, due, retries });
    let repeated = match pcb.timer() {
        RetransmitTimer::Off => None,
        RetransmitTimer::Timeout => Some(TimerKind::Retransmission),
        RetransmitTimer::TailProbe => Some(TimerKind::TailProbe),
        RetransmitTimer::Reordering => Some(TimerKind::Reordering),
        RetransmitTimer::Persist => Some(TimerKind::Persist),
        RetransmitTimer::Cork => Some(TimerKind::Cork),
        RetransmitTimer::Pacing => Some(TimerKind::Pacing),
    };
    let life = if pcb.state() == State::FinWait2 && pcb.has(flag::RELEASED) {
        TimerKind::FinWait2
    } else {
        TimerKind::Keepalive
    };
    [
        repeated.and_then(|kind| running(kind, pcb.retransmit_at, pcb.backoff)),
        running(TimerKind::DelayedAck, pcb.ack_at, 0),
        running(life, pcb.life_at, pcb.keepalive_probes),
        running(TimerKind::UserTimeout, user_timeout_at(pcb), 0),
    ]
}

impl Stack {
    /// Facts about a connection.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn info(&self, id: ConnectionId) -> Result<Info, SocketError> {
        Ok(self.tcp.info(self.tcp.resolve(id)?))
    }

    /// The connections that their program has closed, by local and peer address. Takes time in
    /// proportion to the most connections so far.
    pub fn released(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr, Info)> {
        let released = self
            .tcp
            .pcbs
            .iter_live()
            .filter(|(_, pcb)| pcb.has(flag::RELEASED));
        released.map(|(index, pcb)| {
            (
                pcb.tuple.local_addr(),
                pcb.tuple.remote_addr(),
                self.tcp.info(index),
            )
        })
    }

    /// The TIME-WAIT records, by local and peer address. Takes time in proportion to the most
    /// records so far.
    pub fn time_waits(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr, Timer)> {
        self.tcp.time_waits.iter().map(|record| {
            let timer = Timer {
                kind: TimerKind::TimeWait,
                due: record.deadline,
                retries: 0,
            };
            (record.tuple.local_addr(), record.tuple.remote_addr(), timer)
        })
    }
}
