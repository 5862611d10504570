//! Options of a socket.

use core::time::Duration;

use super::{ConnectionId, ListenerId, Settings, SocketError, setting};
use crate::Stack;
use crate::config::CongestionAlgorithm;
use crate::tcp::flag;
use crate::time::Instant;

/// The smallest buffers that programs can ask for, in bytes: the halves of Linux's, which counts
/// there what it needs besides.
const LEAST_SEND_BUFFER: u32 = 4608 / 2;

/// The longest that a buffer may be.
const MOST_BUFFER: u32 = 16 << 20;
const LEAST_RECEIVE_BUFFER: u32 = 2304 / 2;

/// An option with its value; the names follow `tcp(7)` and `socket(7)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOption {
    /// TCP_NODELAY.
    NoDelay(bool),
    /// TCP_CORK.
    Cork(bool),
    /// TCP_QUICKACK.
    QuickAck(bool),
    /// SO_KEEPALIVE.
    Keepalive(bool),
    /// TCP_KEEPIDLE; whole seconds, 1–32767.
    KeepaliveIdle(Duration),
    /// TCP_KEEPINTVL; whole seconds, 1–32767.
    KeepaliveInterval(Duration),
    /// TCP_KEEPCNT, 1–127.
    KeepaliveProbes(u8),
    /// TCP_USER_TIMEOUT; whole milliseconds; zero: by the number of retries.
    UserTimeout(Duration),
    /// SO_LINGER; whole seconds. Zero resets at close.
    Linger(Option<Duration>),
    /// SO_OOBINLINE.
    UrgentInline(bool),
    /// SO_REUSEADDR.
    ReuseAddress(bool),
    /// SO_REUSEPORT: listeners that all say so share an address and port, and the
    /// connections that come to it.
    ReusePort(bool),
    /// IPV6_V6ONLY.
    V6Only(bool),
    /// SO_SNDBUF in bytes; bounded to 4 KiB–16 MiB.
    SendBuffer(u32),
    /// SO_RCVBUF in bytes; bounded to 2 KiB–16 MiB. Before the handshake it also
    /// sets the window scale.
    ReceiveBuffer(u32),
    /// TCP_NOTSENT_LOWAT in bytes: a connection is writable while less than half
    /// of that is queued and unsent. 0: whatever the send buffer holds.
    UnsentLowWater(u32),
    /// SO_RCVLOWAT in bytes, from 32 KiB on in whole KiB: from how many on there is
    /// something to read. At most what the receive buffer holds, which grows to twice that if
    /// its length was not chosen.
    ReceiveLowWater(u32),
    /// TCP_MAXSEG in bytes, 88–32767; before the handshake.
    MaxSegment(u16),
    /// IP_TOS or IPV6_TCLASS; the two ECN bits are the stack's.
    TrafficClass(u8),
    /// TCP_FASTOPEN of a listener: how many connections may wait for the end of
    /// their handshake that were opened by a SYN with data and a cookie (RFC
    /// 7413). Such data may arrive twice, so that this is for programs to which
    /// that does not matter. 0: none.
    FastOpen(u32),
    /// TCP_DEFER_ACCEPT of a listener, in seconds (tcp(7)): so long a connection has to bring data, or to end, before
    /// it is accepted without. 0: it is accepted at once.
    DeferAccept(u32),
    /// TCP_CONGESTION.
    Congestion(CongestionAlgorithm),
}

impl Settings {
    /// Applies an option.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the value is out of the option's range.
    pub fn apply(&mut self, option: SocketOption) -> Result<(), SocketError> {
        match option {
            SocketOption::NoDelay(on) => self.set(setting::NO_DELAY, on),
            SocketOption::Cork(on) => self.set(setting::CORK, on),
            SocketOption::QuickAck(on) => {
                self.set(setting::QUICK_ACK, on);
                self.set(setting::LATE_ACK, !on);
            }
            SocketOption::Keepalive(on) => self.set(setting::KEEPALIVE, on),
            SocketOption::UrgentInline(on) => self.set(setting::URGENT_INLINE, on),
            SocketOption::ReuseAddress(on) => self.set(setting::REUSE_ADDRESS, on),
            SocketOption::ReusePort(on) => self.set(setting::REUSE_PORT, on),
            SocketOption::V6Only(on) => self.set(setting::V6_ONLY, on),
            SocketOption::KeepaliveIdle(span) => self.keepalive_idle_s = seconds(span)?,
            SocketOption::KeepaliveInterval(span) => self.keepalive_interval_s = seconds(span)?,
            SocketOption::KeepaliveProbes(count) => self.keepalive_probes = within(count, 1, 127)?,
            SocketOption::UserTimeout(span) => {
                self.user_timeout_ms =
                    u32::try_from(span.as_millis()).map_err(|_| SocketError::InvalidInput)?;
            }
            SocketOption::Linger(None) => self.set(setting::LINGER, false),
            SocketOption::Linger(Some(span)) => {
                self.set(setting::LINGER, true);
                self.linger_s = u16::try_from(span.as_secs()).unwrap_or(u16::MAX);
            }
            SocketOption::SendBuffer(bytes) => {
                self.send_buffer = bytes.clamp(LEAST_SEND_BUFFER, MOST_BUFFER);
                self.set(setting::SEND_BUFFER_CHOSEN, true);
            }
            SocketOption::ReceiveBuffer(bytes) => {
                self.receive_buffer = bytes.clamp(LEAST_RECEIVE_BUFFER, MOST_BUFFER);
                self.set(setting::RECEIVE_BUFFER_CHOSEN, true);
            }
            SocketOption::UnsentLowWater(bytes) => self.unsent_low_water = bytes,
            SocketOption::ReceiveLowWater(bytes) => {
                let most = match self.has(setting::RECEIVE_BUFFER_CHOSEN) {
                    true => self.receive_buffer,
                    false => MOST_BUFFER,
                };
                let bytes = bytes.min(most);
                self.set_read_low_water(bytes);
                let need = (2 * bytes).min(most);
                self.receive_buffer = self.receive_buffer.max(need);
            }
            SocketOption::MaxSegment(bytes) => self.max_segment = within(bytes, 88, 32767)?,
            SocketOption::TrafficClass(class) => self.traffic_class = class & !0b11,
            SocketOption::Congestion(algorithm) => {
                self.set(setting::RENO, algorithm == CongestionAlgorithm::Reno);
            }
            // Of listeners only, see `Stack::set_listener_option`; connections are told that they have it.
            SocketOption::DeferAccept(_) => {}
            SocketOption::FastOpen(_) => return Err(SocketError::InvalidInput),
        }
        Ok(())
    }

    /// Whether a listener at `[::]` is for IPv6 only.
    pub fn v6_only(&self) -> bool {
        self.has(setting::V6_ONLY)
    }

    /// Whether Nagle's algorithm is off.
    pub fn no_delay(&self) -> bool {
        self.has(setting::NO_DELAY)
    }

    /// Whether partial segments are held back.
    pub fn cork(&self) -> bool {
        self.has(setting::CORK)
    }

    /// Whether keepalives are on.
    pub fn keepalive(&self) -> bool {
        self.has(setting::KEEPALIVE)
    }

    /// Time between keepalives.
    pub fn keepalive_interval(&self) -> Duration {
        Duration::from_secs(self.keepalive_interval_s.into())
    }

    /// Unanswered keepalives before the connection is given up.
    pub fn keepalive_probes(&self) -> u8 {
        self.keepalive_probes
    }

    /// Whether urgent bytes stay in the stream.
    pub fn urgent_inline(&self) -> bool {
        self.has(setting::URGENT_INLINE)
    }

    /// Whether an address in TIME-WAIT may be used again.
    pub fn reuse_address(&self) -> bool {
        self.has(setting::REUSE_ADDRESS)
    }

    /// Whether listeners share an address and port.
    pub fn reuse_port(&self) -> bool {
        self.has(setting::REUSE_PORT)
    }

    /// Bytes from which on a connection is readable.
    pub fn receive_low_water(&self) -> u32 {
        self.read_low_water()
    }

    /// The traffic class of packets.
    pub fn traffic_class(&self) -> u8 {
        self.traffic_class
    }

    /// The congestion control's name, as TCP_CONGESTION has it.
    pub fn congestion_name(&self) -> &'static str {
        match self.algorithm() {
            CongestionAlgorithm::Cubic => "cubic",
            CongestionAlgorithm::Reno => "reno",
        }
    }

    /// How long a close waits for what is queued, if at all.
    pub fn linger(&self) -> Option<Duration> {
        self.has(setting::LINGER)
            .then(|| Duration::from_secs(self.linger_s.into()))
    }

    /// Bytes the send queue holds at most.
    pub fn send_buffer(&self) -> u32 {
        self.send_buffer
    }

    /// Unsent bytes above which there is no room to queue more; 0: no such mark.
    pub fn unsent_low_water(&self) -> u32 {
        self.unsent_low_water
    }

    /// Bytes the receive queue holds at most.
    pub fn receive_buffer(&self) -> u32 {
        self.receive_buffer
    }

    /// How long data may stay unacknowledged; zero: by the number of retries.
    pub fn user_timeout(&self) -> Duration {
        Duration::from_millis(self.user_timeout_ms.into())
    }
}

fn seconds(span: Duration) -> Result<u16, SocketError> {
    let whole = u16::try_from(span.as_secs()).map_err(|_| SocketError::InvalidInput)?;
    within(whole, 1, 32767)
}

fn within<T: PartialOrd>(value: T, low: T, high: T) -> Result<T, SocketError> {
    if value >= low && value <= high {
        Ok(value)
    } else {
        Err(SocketError::InvalidInput)
    }
}

impl Stack {
    /// Sets an option of a connection.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, `NotFound`.
    pub fn set_option(
        &mut self,
        now: Instant,
        id: ConnectionId,
        option: SocketOption,
    ) -> Result<(), SocketError> {
        let index = self.tcp.enter(id)?;
        let pcb = &mut self.tcp.pcbs[index];
        pcb.settings.apply(option)?;
        match option {
            SocketOption::NoDelay(true) | SocketOption::Cork(false) => {
                if pcb.unsent() > 0 {
                    // What is queued goes out now, even if it stays corked (tcp(7)).
                    pcb.set(flag::PROBE);
                }
                self.tcp.mark_ready(index);
            }
            SocketOption::Keepalive(true) | SocketOption::KeepaliveIdle(_) => {
                self.tcp.start_keepalive(index, now);
                self.tcp.rearm(index);
            }
            SocketOption::UserTimeout(_) => self.tcp.rearm(index),
            SocketOption::QuickAck(true) if pcb.unacked_received > 0 => {
                pcb.set(flag::ACK_NOW);
                self.tcp.mark_ready(index);
            }
            SocketOption::ReceiveBuffer(_) => self.tcp.window_opened(index),
            SocketOption::UnsentLowWater(_) => self.tcp.tell_of_room(index),
            _ => {}
        }
        Ok(())
    }

    /// Sets an option of a listener, for the connections it accepts from now on.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, `NotFound`.
    pub fn set_listener_option(&mut self, id: ListenerId, option: SocketOption) -> Result<(), SocketError> {
        let index = self.tcp.resolve_listener(id)?;
        match option {
            SocketOption::FastOpen(limit) => self.tcp.set_fast_open(index, limit),
            SocketOption::DeferAccept(seconds) => self.tcp.set_deferral(index, seconds),
            _ => self.tcp.listener_settings(index).apply(option)?,
        }
        Ok(())
    }

    /// A connection's settings.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn settings(&self, id: ConnectionId) -> Result<Settings, SocketError> {
        Ok(self.tcp.pcbs[self.tcp.resolve(id)?].settings)
    }
}
