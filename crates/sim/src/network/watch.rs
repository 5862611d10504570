//! Checks that no connection of a node is silent for longer than TCP's timers
//! explain.
//!
//! A connection with unacknowledged or unsent data tries again within its
//! retransmission timeout. Each further try without success may take twice as long,
//! up to a ceiling. The check sees the tries on the wire and knows nothing of the
//! stack's timers.

use core::time::Duration;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use toehold_link::{Received, Transmit};
use toehold_stack::{Config, ConnectionId, Info, Instant, Stack, State};
use toehold_wire::tcp::Seq;

/// Tolerance for timers and links beyond the computed time.
const SLACK: Duration = Duration::from_millis(100);

/// Longest time of a SYN that waits for a hardware address, if requests get
/// lost.
const RESOLUTION: Duration = Duration::from_secs(3);

/// The tries of one direction of one connection.
#[derive(Debug, Clone, Copy)]
struct Tries {
    /// Time of the last sent segment that the peer has to answer.
    last: Instant,
    /// Time of the last retransmission.
    again: Instant,
    /// The longest wait between two retransmissions since the last
    /// acknowledgement of new data.
    step: Duration,
    /// Bytes acknowledged at the last check, and when that changed.
    acked: u64,
    moved: Instant,
    /// Since when data wait to be sent or acknowledged.
    pending_since: Option<Instant>,
    /// Sequence number behind the last sent byte.
    end: Seq,
}

/// Checks and hashes of a node's frames.
#[derive(Debug, Default)]
pub(super) struct Watch {
    tries: HashMap<(u16, u16), Tries>,
    /// Hash of all frames, for comparing runs.
    fingerprint: DefaultHasher,
    /// Frames that passed in either direction.
    pub(super) frames: u64,
}

/// Ports and kind of a sent TCP frame.
struct Outgoing {
    ports: (u16, u16),
    seq: Seq,
    /// The sequence space of the segment.
    len: u32,
}

/// Returns the offset of the TCP header in an untagged Ethernet frame.
fn tcp_offset(frame: &[u8]) -> Option<usize> {
    let (offset, protocol) = match frame.get(12..14)? {
        [0x08, 0x00] => (14 + usize::from(frame.get(14)? & 15) * 4, *frame.get(23)?),
        [0x86, 0xdd] => (54, *frame.get(20)?),
        _ => return None,
    };
    (protocol == 6).then_some(offset)
}

fn outgoing(frame: &Transmit<'_>) -> Option<Outgoing> {
    let at = tcp_offset(frame.headers)?;
    let header = frame.headers.get(at..at + 20)?;
    let header_len = usize::from(header[12] >> 4) * 4;
    let payload = frame.headers.len().saturating_sub(at + header_len) + frame.payload.len();
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Some(Outgoing {
        ports: (word(0), word(2)),
        seq: Seq(u32::from(word(4)) << 16 | u32::from(word(6))),
        len: payload as u32 + (header[13] & 3).count_ones(),
    })
}

impl Watch {
    /// Notes a sent frame.
    pub(super) fn sent(&mut self, now: Instant, frame: &Transmit<'_>) {
        self.frames += 1;
        self.fingerprint.write_u64(now.0);
        self.fingerprint.write(frame.headers);
        self.fingerprint.write_usize(frame.payload.len());
        let Some(Outgoing { ports, seq, len }) = outgoing(frame) else {
            return;
        };
        let tries = self.tries.entry(ports).or_insert(Tries {
            last: now,
            again: now,
            step: Duration::ZERO,
            acked: 0,
            moved: now,
            pending_since: None,
            end: seq,
        });
        // An acknowledgement below the sent range is a probe.
        if seq.lt(tries.end) {
            // A wait that began before the last acknowledgement tells nothing.
            if tries.again >= tries.moved {
                tries.step = tries.step.max(now.since(tries.again));
            }
            tries.again = now;
        }
        if len > 0 || seq.lt(tries.end) {
            tries.end = tries.end.max(seq + len);
            tries.last = now;
        }
    }

    /// Returns the sequence number behind the last byte sent on a connection.
    pub(super) fn end(&self, local_port: u16, remote_port: u16) -> Option<Seq> {
        self.tries.get(&(local_port, remote_port)).map(|tries| tries.end)
    }

    /// Notes a received frame.
    pub(super) fn received(&mut self, frame: &Received<'_>) {
        self.frames += 1;
        self.fingerprint.write(frame.private);
    }

    /// Returns a hash that is equal for two runs only if they saw equal frames.
    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint.finish()
    }

    /// Panics if a connection has waited longer than its timers explain.
    pub(super) fn check(&mut self, now: Instant, stack: &Stack, config: &Config, id: ConnectionId) {
        let (Ok(info), Ok(local), Ok(remote)) = (stack.info(id), stack.local_addr(id), stack.peer_addr(id))
        else {
            return;
        };
        let Some(tries) = self.tries.get_mut(&(local.port(), remote.port())) else {
            return;
        };
        let fin_out = matches!(info.state, State::FinWait1 | State::Closing | State::LastAck);
        let pending = info.unacknowledged > 0 || info.unsent > 0 || fin_out;
        if !pending || info.state == State::Closed {
            tries.pending_since = None;
            return;
        }
        let since = *tries.pending_since.get_or_insert(now);
        if info.bytes_acked != tries.acked {
            tries.acked = info.bytes_acked;
            tries.moved = now;
            tries.step = Duration::ZERO;
        }
        let quiet_since = tries.last.max(tries.moved).max(since);
        let quiet = now.since(quiet_since);
        let mut allowed = allowed(config, &info, tries.step) + SLACK;
        if info.state == State::SynSent {
            allowed += RESOLUTION;
        }
        assert!(
            quiet <= allowed,
            "{local} -> {remote} is silent for {quiet:?}, {allowed:?} explained: {info:?}"
        );
    }
}

/// Returns the longest wait before the next try, after a wait of `step`.
fn allowed(config: &Config, info: &Info, step: Duration) -> Duration {
    let tcp = &config.tcp;
    let timeout = if info.rtt_ns == 0 {
        tcp.rto_initial
    } else {
        let variation = Duration::from_nanos(info.rtt_variation_ns * 4);
        Duration::from_nanos(info.rtt_ns) + variation.max(tcp.rto_min)
    };
    // A timeout stays backed off until a round trip has been measured (RFC 6298 §5).
    let kept = Duration::from_nanos(info.rto_ns);
    // The timer may expire beside a try of another kind, and count double.
    (2 * timeout.max(step)).max(kept).min(tcp.rto_max)
}
