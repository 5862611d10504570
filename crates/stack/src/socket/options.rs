//! Socket options.

use core::time::Duration;

use super::tuning::{MOST_FIN_WAIT_2_S, NO_FIN_WAIT_2};
use super::{CommonSettings, ConnectionId, ListenerId, Settings, SocketError, Tuning, family, setting};
use crate::Stack;
use crate::config::CongestionAlgorithm;
use crate::tcp::flag;
use crate::time::Instant;

/// The smallest buffers that programs can ask for, in bytes. They are half of Linux's, which
/// includes its overhead.
const LEAST_SEND_BUFFER: u32 = 4608 / 2;

/// The longest buffer that a program can ask for, in bytes.
const MOST_BUFFER: u32 = 16 << 20;

/// The longest buffer of a privileged program, in bytes: the largest window (RFC 7323 section 2.3).
const MOST_FORCED_BUFFER: u32 = 1 << 30;

/// The smallest window that a program can ask for, in bytes, as on Linux.
const LEAST_WINDOW_CLAMP: u32 = 2304 / 2;

/// Bounds of a program's longest retransmission timeout, in milliseconds, as on Linux.
const RTO_MAX_MS: [u32; 2] = [1000, 120_000];

/// Upper bound of a program's shortest retransmission timeout and longest acknowledgement delay, in
/// microseconds.
const MOST_DELAY_US: u32 = 200_000;
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
    /// TCP_USER_TIMEOUT; whole milliseconds; zero: the number of retries decides.
    UserTimeout(Duration),
    /// SO_LINGER; whole seconds. Zero resets at close.
    Linger(Option<Duration>),
    /// SO_OOBINLINE.
    UrgentInline(bool),
    /// SO_REUSEADDR.
    ReuseAddress(bool),
    /// SO_REUSEPORT: listeners that all set it share an address and port, and the connections to
    /// it.
    ReusePort(bool),
    /// IPV6_V6ONLY.
    V6Only(bool),
    /// SO_SNDBUF in bytes; bounded to 4 KiB–16 MiB.
    SendBuffer(u32),
    /// SO_RCVBUF in bytes; bounded to 2 KiB–16 MiB. Before the handshake it also
    /// sets the window scale.
    ReceiveBuffer(u32),
    /// TCP_NOTSENT_LOWAT in bytes: a connection is writable while less than half of that is queued
    /// and unsent. 0: the send buffer decides.
    UnsentLowWater(u32),
    /// SO_RCVLOWAT in bytes, from 32 KiB on in whole KiB: the number of bytes from which on the
    /// socket is readable. It is bounded by the receive buffer, which grows to twice that unless
    /// the program has chosen its length.
    ReceiveLowWater(u32),
    /// TCP_MAXSEG in bytes, 88–32767, or 0 for no bound; before the handshake.
    MaxSegment(u16),
    /// IP_TOS and IPV6_TCLASS alike; the two ECN bits are the stack's.
    TrafficClass(u8),
    /// IP_TOS, for packets of IPv4; the two ECN bits are the stack's.
    TypeOfService(u8),
    /// IPV6_TCLASS, for packets of IPv6; the two ECN bits are the stack's.
    TrafficClassIpv6(u8),
    /// IP_TTL: hop limit of IPv4 packets; 0: the stack's default.
    TimeToLive(u8),
    /// IPV6_UNICAST_HOPS: hop limit of IPv6 packets; 0: the stack's default.
    HopLimit(u8),
    /// IP_MINTTL: IPv4 packets with fewer hops left are dropped (RFC 5082).
    LeastTimeToLive(u8),
    /// IPV6_MINHOPCOUNT: IPv6 packets with fewer hops left are dropped (RFC 5082).
    LeastHopLimit(u8),
    /// IP_RECVERR: network errors about IPv4 packets become pending errors of the connection, which
    /// continues.
    ReportErrors(bool),
    /// IPV6_RECVERR: network errors about IPv6 packets become pending errors of the connection,
    /// which continues.
    ReportErrorsIpv6(bool),
    /// SO_MAX_PACING_RATE in bytes a second: data leave no faster. `None` and 0: no limit beyond
    /// the windows.
    MaxPacingRate(Option<u64>),
    /// SO_SNDBUFFORCE in bytes; bounded to 1 GiB.
    ForcedSendBuffer(u32),
    /// SO_RCVBUFFORCE in bytes; bounded to 1 GiB.
    ForcedReceiveBuffer(u32),
    /// SO_BUF_LOCK: whether the send and the receive buffer keep their sizes.
    BufferLock([bool; 2]),
    /// TCP_SYNCNT: number of SYN retransmissions, 1–127.
    SynRetries(u8),
    /// TCP_LINGER2 in seconds: the longest stay in FIN-WAIT-2 after the program has closed, at most
    /// 120. 0: the stack's configuration decides. Negative: no stay.
    FinWait2(i32),
    /// TCP_WINDOW_CLAMP in bytes: the largest window that is advertised. 0: the buffer decides.
    WindowClamp(u32),
    /// TCP_THIN_LINEAR_TIMEOUTS: a stream with fewer than four segments in flight retransmits six
    /// times before the timeout grows.
    ThinLinearTimeouts(bool),
    /// TCP_RTO_MAX_MS: the longest retransmission timeout in milliseconds, 1000–120000.
    LongestTimeout(u32),
    /// TCP_RTO_MIN_US: the shortest retransmission timeout in microseconds, 1–200000.
    ShortestTimeout(u32),
    /// TCP_DELACK_MAX_US: the longest delay of an acknowledgement in microseconds, 1–200000.
    LongestAckDelay(u32),
    /// TCP_FASTOPEN of a listener: the most connections, opened by a SYN with data and a cookie
    /// (RFC 7413), whose handshake is incomplete. Such data may arrive twice, so the option is for
    /// programs that tolerate it. 0: none.
    FastOpen(u32),
    /// TCP_FASTOPEN_CONNECT: `connect` returns at once if the server's Fast Open cookie is known,
    /// and the SYN leaves with the first bytes (RFC 7413). Otherwise the SYN asks the server for a
    /// cookie.
    FastOpenConnect(bool),
    /// TCP_FASTOPEN_NO_COOKIE: data in a SYN need no cookie, in either direction. It is for
    /// networks in which source addresses cannot be forged.
    FastOpenNoCookie(bool),
    /// TCP_DEFER_ACCEPT of a listener, in seconds (tcp(7)): a connection is accepted once it has
    /// data or has ended, or after this time. 0: it is accepted at once.
    DeferAccept(u32),
    /// TCP_CONGESTION.
    Congestion(CongestionAlgorithm),
}

/// Index of a family's value in the pairs of [`Tuning`].
const IPV4: usize = 0;
const IPV6: usize = 1;

impl Settings {
    /// Applies an option.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the value is out of the option's range.
    pub fn apply(&mut self, option: SocketOption) -> Result<(), SocketError> {
        let tuning = &mut self.tuning;
        match option {
            SocketOption::TrafficClass(class) => tuning.traffic_class = [class & !0b11; 2],
            SocketOption::TypeOfService(class) => tuning.traffic_class[IPV4] = class & !0b11,
            SocketOption::TrafficClassIpv6(class) => tuning.traffic_class[IPV6] = class & !0b11,
            SocketOption::TimeToLive(hops) => tuning.hops[IPV4] = hops,
            SocketOption::HopLimit(hops) => tuning.hops[IPV6] = hops,
            SocketOption::LeastTimeToLive(hops) => tuning.least_hops[IPV4] = hops,
            SocketOption::LeastHopLimit(hops) => tuning.least_hops[IPV6] = hops,
            SocketOption::ReportErrors(on) => tuning.reports_errors[IPV4] = on.into(),
            SocketOption::ReportErrorsIpv6(on) => tuning.reports_errors[IPV6] = on.into(),
            SocketOption::MaxPacingRate(rate) => tuning.pacing_rate = rate.unwrap_or(0),
            SocketOption::SynRetries(count) => tuning.syn_retries = within(count, 1, 127)?,
            SocketOption::FinWait2(seconds) => {
                tuning.fin_wait_2_s = match u8::try_from(seconds) {
                    Ok(seconds) => seconds.min(MOST_FIN_WAIT_2_S),
                    Err(_) if seconds < 0 => NO_FIN_WAIT_2,
                    Err(_) => MOST_FIN_WAIT_2_S,
                };
            }
            SocketOption::WindowClamp(0) => tuning.window_clamp = 0,
            SocketOption::WindowClamp(bytes) => tuning.window_clamp = bytes.max(LEAST_WINDOW_CLAMP),
            SocketOption::ThinLinearTimeouts(on) => tuning.thin_linear = on.into(),
            SocketOption::LongestTimeout(ms) => {
                tuning.rto_max_ms = within(ms, RTO_MAX_MS[0], RTO_MAX_MS[1])?;
            }
            SocketOption::ShortestTimeout(us) => tuning.rto_min_us = within(us, 1, MOST_DELAY_US)?,
            SocketOption::LongestAckDelay(us) => tuning.ack_delay_us = within(us, 1, MOST_DELAY_US)?,
            _ => return self.common.apply(option),
        }
        let is_tuned = self.tuning != Tuning::default();
        self.common.set(setting::TUNED, is_tuned);
        Ok(())
    }

    /// The traffic class of packets of IPv4.
    pub fn type_of_service(&self) -> u8 {
        self.tuning.traffic_class[IPV4]
    }

    /// The traffic class of packets of IPv6.
    pub fn traffic_class_ipv6(&self) -> u8 {
        self.tuning.traffic_class[IPV6]
    }

    /// Bytes a second that data leave with, at most.
    pub fn max_pacing_rate(&self) -> Option<u64> {
        (self.tuning.pacing_rate > 0).then_some(self.tuning.pacing_rate)
    }

    /// Returns these settings as they apply to a connection of a family.
    pub(crate) fn of_family(mut self, is_ipv4: bool) -> Self {
        self.common.traffic_class = self.tuning.traffic_class[family(is_ipv4)];
        self
    }
}

impl CommonSettings {
    fn apply(&mut self, option: SocketOption) -> Result<(), SocketError> {
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
            SocketOption::FastOpenConnect(on) => self.set(setting::FAST_OPEN_CONNECT, on),
            SocketOption::FastOpenNoCookie(on) => self.set(setting::FAST_OPEN_NO_COOKIE, on),
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
            SocketOption::MaxSegment(0) => self.max_segment = 0,
            SocketOption::MaxSegment(bytes) => self.max_segment = within(bytes, 88, 32767)?,
            SocketOption::ForcedSendBuffer(bytes) => {
                self.send_buffer = bytes.clamp(LEAST_SEND_BUFFER, MOST_FORCED_BUFFER);
                self.set(setting::SEND_BUFFER_CHOSEN, true);
            }
            SocketOption::ForcedReceiveBuffer(bytes) => {
                self.receive_buffer = bytes.clamp(LEAST_RECEIVE_BUFFER, MOST_FORCED_BUFFER);
                self.set(setting::RECEIVE_BUFFER_CHOSEN, true);
            }
            SocketOption::BufferLock([send, receive]) => {
                self.set(setting::SEND_BUFFER_CHOSEN, send);
                self.set(setting::RECEIVE_BUFFER_CHOSEN, receive);
            }
            SocketOption::Congestion(algorithm) => {
                self.set(setting::RENO, algorithm == CongestionAlgorithm::Reno);
            }
            // For listeners only, see `Stack::set_listener_option`; on connections it has no
            // effect.
            SocketOption::DeferAccept(_) => {}
            _ => return Err(SocketError::InvalidInput),
        }
        Ok(())
    }

    /// Whether a listener at `[::]` accepts IPv6 only.
    pub fn v6_only(&self) -> bool {
        self.has(setting::V6_ONLY)
    }

    /// The program's bound of the segment size (TCP_MAXSEG); 0: none.
    pub fn max_segment(&self) -> u16 {
        self.max_segment
    }

    /// Whether a SYN waits for the first bytes (TCP_FASTOPEN_CONNECT).
    pub fn fast_open_connect(&self) -> bool {
        self.has(setting::FAST_OPEN_CONNECT)
    }

    /// Whether data in a SYN need no cookie (TCP_FASTOPEN_NO_COOKIE).
    pub fn fast_open_no_cookie(&self) -> bool {
        self.has(setting::FAST_OPEN_NO_COOKIE)
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

    /// Whether an address in TIME-WAIT may be bound again.
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

    /// Whether the send and the receive buffer keep their sizes (SO_BUF_LOCK).
    pub fn buffer_lock(&self) -> [bool; 2] {
        [setting::SEND_BUFFER_CHOSEN, setting::RECEIVE_BUFFER_CHOSEN].map(|lock| self.has(lock))
    }

    /// The congestion control's name in TCP_CONGESTION.
    pub fn congestion_name(&self) -> &'static str {
        match self.algorithm() {
            CongestionAlgorithm::Cubic => "cubic",
            CongestionAlgorithm::Reno => "reno",
        }
    }

    /// The longest wait of a close for queued bytes, if any.
    pub fn linger(&self) -> Option<Duration> {
        self.has(setting::LINGER)
            .then(|| Duration::from_secs(self.linger_s.into()))
    }

    /// Bytes the send queue holds at most.
    pub fn send_buffer(&self) -> u32 {
        self.send_buffer
    }

    /// Unsent bytes above which there is no room to queue more; 0: no mark.
    pub fn unsent_low_water(&self) -> u32 {
        self.unsent_low_water
    }

    /// Bytes the receive queue holds at most.
    pub fn receive_buffer(&self) -> u32 {
        self.receive_buffer
    }

    /// The longest time for which data may stay unacknowledged; zero: the number of retries
    /// decides.
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
        let mut settings = self.tcp.all_settings(index);
        settings.apply(option)?;
        let is_ipv4 = self.tcp.pcbs[index].tuple.local.is_ipv4();
        self.tcp.set_all(index, &settings.of_family(is_ipv4));
        let pcb = &mut self.tcp.pcbs[index];
        match option {
            SocketOption::NoDelay(true) | SocketOption::Cork(false) => {
                if pcb.unsent() > 0 {
                    // Queued data go out now, even if the socket stays corked (tcp(7)).
                    pcb.set(flag::PROBE);
                }
                self.tcp.mark_ready(index);
            }
            SocketOption::Keepalive(true) | SocketOption::KeepaliveIdle(_) => {
                pcb.start_keepalive(now);
                self.tcp.rearm(index);
            }
            SocketOption::UserTimeout(_) => self.tcp.rearm(index),
            SocketOption::QuickAck(true) if pcb.unacked_received > 0 => {
                pcb.set(flag::ACK_NOW);
                self.tcp.mark_ready(index);
            }
            SocketOption::ReceiveBuffer(_) | SocketOption::ForcedReceiveBuffer(_) => {
                self.tcp.window_opened(index);
            }
            SocketOption::MaxPacingRate(_) => self.tcp.forget_pace(index),
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
        let index = self.tcp.listeners.resolve(id)?;
        match option {
            SocketOption::FastOpen(limit) => self.tcp.listeners[index].set_fast_open(limit),
            SocketOption::DeferAccept(seconds) => self.tcp.set_deferral(index, seconds),
            _ => self.tcp.listeners[index].settings_mut().apply(option)?,
        }
        Ok(())
    }

    /// A connection's settings.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn settings(&self, id: ConnectionId) -> Result<Settings, SocketError> {
        Ok(self.tcp.all_settings(self.tcp.resolve(id)?))
    }
}
