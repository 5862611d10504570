//! Socket options between C's form and the stack's.

pub mod table;

use crate::errno::{Errno, Outcome};
use core::ffi::c_int;
use core::time::Duration;
use libc::{
    IP_FREEBIND, IP_MINTTL, IP_MTU_DISCOVER, IP_RECVERR, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6,
    IPPROTO_TCP, IPV6_RECVERR, IPV6_TCLASS, IPV6_UNICAST_HOPS, IPV6_V6ONLY, SO_KEEPALIVE, SO_LINGER, SO_MARK,
    SO_MAX_PACING_RATE, SO_OOBINLINE, SO_PEEK_OFF, SO_RCVBUF, SO_RCVBUFFORCE, SO_RCVLOWAT, SO_RCVTIMEO,
    SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDBUFFORCE, SO_SNDTIMEO, SO_TIMESTAMP, SO_TIMESTAMPING,
    SO_TIMESTAMPNS, SO_ZEROCOPY, SOL_SOCKET, TCP_CONGESTION, TCP_CORK, TCP_DEFER_ACCEPT, TCP_FASTOPEN,
    TCP_FASTOPEN_CONNECT, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_LINGER2, TCP_MAXSEG, TCP_NODELAY,
    TCP_QUICKACK, TCP_SYNCNT, TCP_THIN_LINEAR_TIMEOUTS, TCP_USER_TIMEOUT, TCP_WINDOW_CLAMP,
};
use toehold_stack::{CongestionAlgorithm, SocketOption};

/// TCP_INQ, which libc does not name on every platform.
pub const TCP_INQ: c_int = 36;
/// TCP_FASTOPEN_NO_COOKIE (Linux 4.15), which libc does not name on every platform.
pub const TCP_FASTOPEN_NO_COOKIE: c_int = 34;
/// IP_LOCAL_PORT_RANGE (Linux 6.3), which libc does not name on every platform.
pub const IP_LOCAL_PORT_RANGE: c_int = 51;
/// SO_RCVTIMEO with a 64-bit time on every platform (Linux 5.1), which libc
/// does not name everywhere.
pub const SO_RCVTIMEO_NEW: c_int = 66;
/// SO_SNDTIMEO with a 64-bit time on every platform (Linux 5.1), which libc
/// does not name everywhere.
pub const SO_SNDTIMEO_NEW: c_int = 67;
/// TCP_NOTSENT_LOWAT, which libc does not name on every platform.
pub const TCP_NOTSENT_LOWAT: c_int = 25;
/// SO_BUF_LOCK (Linux 5.15), which libc does not name on every platform.
const SO_BUF_LOCK: c_int = 72;
/// SO_TIMESTAMP with 64-bit times on every platform (Linux 5.1), like the two
/// after it.
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;
const SO_TIMESTAMPING_NEW: c_int = 65;
const IPV6_MINHOPCOUNT: c_int = 73;
/// TCP_RTO_MAX_MS (Linux 6.15), which libc does not name on every platform.
const TCP_RTO_MAX_MS: c_int = 44;
const TCP_RTO_MIN_US: c_int = 45;
const TCP_DELACK_MAX_US: c_int = 46;

/// Receive timestamps, as SO_TIMESTAMP and SO_TIMESTAMPNS request them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    /// Whether stamps are in nanoseconds; otherwise in microseconds.
    pub nanos: bool,
    /// Whether the program used the option number with 64-bit times.
    pub new: bool,
}

/// Flags of SO_TIMESTAMPING that request stamps of sent data: by hardware, by
/// software, when queued, acknowledged or transmitted. A node stamps no sent data.
const STAMPS_OF_SENT: u32 = 1 << 0 | 1 << 1 | 1 << 8 | 1 << 9 | 1 << 18;

/// Flags of SO_TIMESTAMPING that together request software stamps of received
/// data.
const STAMPS_OF_RECEIVED: u32 = 1 << 3 | 1 << 4;

/// The meaning of an option of C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// An option of the stack.
    Stack(SocketOption),
    /// SO_RCVTIMEO; zero means no limit.
    ReceiveTimeout(Duration),
    /// SO_SNDTIMEO; zero means no limit.
    SendTimeout(Duration),
    /// TCP_INQ.
    ReportUnread(bool),
    /// SO_ZEROCOPY.
    ZeroCopy(bool),
    /// SO_TIMESTAMP, SO_TIMESTAMPNS; `None` turns stamps off.
    Stamps(Option<Stamps>),
    /// SO_TIMESTAMPING: whether received data are stamped, and whether the program
    /// used the option number with 64-bit times.
    Stamping(bool, bool),
    /// SO_PEEK_OFF: the number of bytes that a peek skips; negative for off.
    PeekBehind(c_int),
    /// IP_LOCAL_PORT_RANGE: the first and last port for a socket without a bound
    /// port; zero for the system's limit.
    LocalPorts(u16, u16),
    /// An accepted option without effect, because the stack has no routing tables
    /// and no firewall marks, and always discovers a path's MTU.
    Nothing,
}

/// Returns the meaning of an option and its value.
///
/// # Errors
///
/// `EINVAL` for a value that is too short or out of range. `ENOPROTOOPT` for an
/// option that the stack does not have.
pub fn meaning(level: c_int, name: c_int, value: &[u8]) -> Outcome<Meaning> {
    match level {
        SOL_SOCKET => socket_option(name, value),
        IPPROTO_TCP => tcp_option(name, value),
        IPPROTO_IP | IPPROTO_IPV6 => ip_option(level, name, value),
        _ => Err(Errno::NOPROTOOPT),
    }
}

fn socket_option(name: c_int, value: &[u8]) -> Outcome<Meaning> {
    Ok(Meaning::Stack(match name {
        SO_REUSEADDR => SocketOption::ReuseAddress(switch(value)?),
        SO_REUSEPORT => SocketOption::ReusePort(switch(value)?),
        SO_KEEPALIVE => SocketOption::Keepalive(switch(value)?),
        SO_OOBINLINE => SocketOption::UrgentInline(switch(value)?),
        SO_SNDBUF => SocketOption::SendBuffer(size(value)?),
        SO_RCVBUF => SocketOption::ReceiveBuffer(size(value)?),
        SO_RCVLOWAT => SocketOption::ReceiveLowWater(size(value)?),
        SO_SNDBUFFORCE => SocketOption::ForcedSendBuffer(size(value)?),
        SO_RCVBUFFORCE => SocketOption::ForcedReceiveBuffer(size(value)?),
        SO_BUF_LOCK => match integer(value)? {
            lock @ 0..=3 => SocketOption::BufferLock([lock & 1 != 0, lock & 2 != 0]),
            _ => return Err(Errno::INVAL),
        },
        SO_MAX_PACING_RATE => SocketOption::MaxPacingRate(rate(value)?),
        SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW => {
            let stamps = Stamps {
                nanos: [SO_TIMESTAMPNS, SO_TIMESTAMPNS_NEW].contains(&name),
                new: [SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW].contains(&name),
            };
            return Ok(Meaning::Stamps(switch(value)?.then_some(stamps)));
        }
        SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
            let flags = integer(value)?.cast_unsigned();
            if flags & STAMPS_OF_SENT != 0 {
                return Err(Errno::INVAL);
            }
            let stamps = flags & STAMPS_OF_RECEIVED == STAMPS_OF_RECEIVED;
            return Ok(Meaning::Stamping(stamps, name == SO_TIMESTAMPING_NEW));
        }
        SO_LINGER => {
            let [on, seconds] = pair(value)?;
            // Linux takes a negative span as a very long one.
            let span = Duration::from_secs(seconds.cast_unsigned().into());
            SocketOption::Linger((on != 0).then_some(span))
        }
        SO_RCVTIMEO | SO_RCVTIMEO_NEW => return Ok(Meaning::ReceiveTimeout(time(value)?)),
        SO_SNDTIMEO | SO_SNDTIMEO_NEW => return Ok(Meaning::SendTimeout(time(value)?)),
        SO_ZEROCOPY => return Ok(Meaning::ZeroCopy(switch(value)?)),
        SO_PEEK_OFF => return Ok(Meaning::PeekBehind(integer(value)?)),
        SO_MARK => return Ok(Meaning::Nothing),
        _ => return Err(Errno::NOPROTOOPT),
    }))
}

fn tcp_option(name: c_int, value: &[u8]) -> Outcome<Meaning> {
    let seconds = |value| Ok::<_, Errno>(Duration::from_secs(positive(value)?.into()));
    Ok(Meaning::Stack(match name {
        TCP_NODELAY => SocketOption::NoDelay(switch(value)?),
        TCP_CORK => SocketOption::Cork(switch(value)?),
        TCP_QUICKACK => SocketOption::QuickAck(switch(value)?),
        TCP_KEEPIDLE => SocketOption::KeepaliveIdle(seconds(value)?),
        TCP_KEEPINTVL => SocketOption::KeepaliveInterval(seconds(value)?),
        TCP_KEEPCNT => {
            SocketOption::KeepaliveProbes(u8::try_from(positive(value)?).map_err(|_| Errno::INVAL)?)
        }
        TCP_USER_TIMEOUT => SocketOption::UserTimeout(Duration::from_millis(positive(value)?.into())),
        TCP_MAXSEG => SocketOption::MaxSegment(u16::try_from(positive(value)?).map_err(|_| Errno::INVAL)?),
        TCP_NOTSENT_LOWAT => SocketOption::UnsentLowWater(integer(value)? as u32),
        TCP_FASTOPEN => SocketOption::FastOpen(positive(value)?),
        TCP_FASTOPEN_CONNECT => SocketOption::FastOpenConnect(zero_or_one(value)?),
        TCP_FASTOPEN_NO_COOKIE => SocketOption::FastOpenNoCookie(zero_or_one(value)?),
        // A negative value does not defer.
        TCP_DEFER_ACCEPT => SocketOption::DeferAccept(integer(value)?.try_into().unwrap_or(0)),
        TCP_SYNCNT => SocketOption::SynRetries(u8::try_from(positive(value)?).map_err(|_| Errno::INVAL)?),
        TCP_LINGER2 => SocketOption::FinWait2(integer(value)?),
        // A negative value is the least clamp.
        TCP_WINDOW_CLAMP => SocketOption::WindowClamp(u32::try_from(integer(value)?).unwrap_or(1)),
        TCP_THIN_LINEAR_TIMEOUTS => SocketOption::ThinLinearTimeouts(switch(value)?),
        TCP_RTO_MAX_MS => SocketOption::LongestTimeout(positive(value)?),
        TCP_RTO_MIN_US => SocketOption::ShortestTimeout(positive(value)?),
        TCP_DELACK_MAX_US => SocketOption::LongestAckDelay(positive(value)?),
        TCP_CONGESTION => SocketOption::Congestion(algorithm(value)?),
        TCP_INQ => return Ok(Meaning::ReportUnread(zero_or_one(value)?)),
        _ => return Err(Errno::NOPROTOOPT),
    }))
}

fn ip_option(level: c_int, name: c_int, value: &[u8]) -> Outcome<Meaning> {
    Ok(Meaning::Stack(match (level, name) {
        (IPPROTO_IP, IP_TOS) => SocketOption::TypeOfService(integer_or_byte(value) as u8),
        (IPPROTO_IPV6, IPV6_TCLASS) => SocketOption::TrafficClassIpv6(of_ipv6(integer(value)?)?.unwrap_or(0)),
        (IPPROTO_IP, IP_TTL) => SocketOption::TimeToLive(match integer_or_byte(value) {
            -1 => 0,
            hops => u8::try_from(hops)
                .ok()
                .filter(|hops| *hops > 0)
                .ok_or(Errno::INVAL)?,
        }),
        // With a hop limit of zero a packet still reaches the next hop.
        (IPPROTO_IPV6, IPV6_UNICAST_HOPS) => {
            SocketOption::HopLimit(of_ipv6(integer(value)?)?.map_or(0, |hops| hops.max(1)))
        }
        (IPPROTO_IP, IP_MINTTL) => {
            SocketOption::LeastTimeToLive(u8::try_from(integer_or_byte(value)).map_err(|_| Errno::INVAL)?)
        }
        (IPPROTO_IPV6, IPV6_MINHOPCOUNT) => {
            SocketOption::LeastHopLimit(u8::try_from(integer(value)?).map_err(|_| Errno::INVAL)?)
        }
        (IPPROTO_IP, IP_RECVERR) => SocketOption::ReportErrors(integer_or_byte(value) != 0),
        (IPPROTO_IPV6, IPV6_RECVERR) => SocketOption::ReportErrorsIpv6(switch(value)?),
        (IPPROTO_IPV6, IPV6_V6ONLY) => SocketOption::V6Only(switch(value)?),
        (IPPROTO_IP, IP_LOCAL_PORT_RANGE) => {
            let range = integer(value)?.cast_unsigned();
            return Ok(Meaning::LocalPorts(range as u16, (range >> 16) as u16));
        }
        (IPPROTO_IP, IP_MTU_DISCOVER | IP_FREEBIND) => return Ok(Meaning::Nothing),
        _ => return Err(Errno::NOPROTOOPT),
    }))
}

/// Reads a byte of an IPv6 header, or -1 for the default.
fn of_ipv6(value: c_int) -> Outcome<Option<u8>> {
    match value {
        -1 => Ok(None),
        value => u8::try_from(value).map(Some).map_err(|_| Errno::INVAL),
    }
}

/// Reads a rate in bytes per second, of 32 or 64 bits. All ones mean no limit.
fn rate(value: &[u8]) -> Outcome<Option<u64>> {
    let rate = match value.first_chunk() {
        Some(rate) => u64::from_ne_bytes(*rate),
        None => match integer(value)?.cast_unsigned() {
            u32::MAX => u64::MAX,
            rate => rate.into(),
        },
    };
    Ok((rate != u64::MAX).then_some(rate))
}

fn integer(value: &[u8]) -> Outcome<c_int> {
    Ok(c_int::from_ne_bytes(*value.first_chunk().ok_or(Errno::INVAL)?))
}

/// Reads an integer of an IPv4 option. A short value is one byte, an empty one
/// zero.
fn integer_or_byte(value: &[u8]) -> c_int {
    integer(value).unwrap_or_else(|_| value.first().copied().unwrap_or(0).into())
}

fn switch(value: &[u8]) -> Outcome<bool> {
    Ok(integer(value)? != 0)
}

fn zero_or_one(value: &[u8]) -> Outcome<bool> {
    match integer(value)? {
        on @ 0..=1 => Ok(on != 0),
        _ => Err(Errno::INVAL),
    }
}

fn positive(value: &[u8]) -> Outcome<u32> {
    u32::try_from(integer(value)?).map_err(|_| Errno::INVAL)
}

/// Reads a buffer size. Linux bounds it, and a negative value is the largest.
fn size(value: &[u8]) -> Outcome<u32> {
    integer(value).map(c_int::cast_unsigned)
}

/// Returns the value that Linux reports for a buffer of `bytes` bytes. Linux
/// includes its overhead, which doubles the value.
pub fn said_of_buffer(bytes: u32) -> c_int {
    c_int::try_from(bytes.saturating_mul(2)).unwrap_or(c_int::MAX)
}

fn pair(value: &[u8]) -> Outcome<[c_int; 2]> {
    let (first, rest) = value.split_first_chunk().ok_or(Errno::INVAL)?;
    let second = rest.first_chunk().ok_or(Errno::INVAL)?;
    Ok([*first, *second].map(c_int::from_ne_bytes))
}

/// Reads a `timeval`. Zero means no limit, and a negative time has passed
/// already.
fn time(value: &[u8]) -> Outcome<Duration> {
    let (seconds, rest) = value.split_first_chunk().ok_or(Errno::INVAL)?;
    let micros = i64::from_ne_bytes(*rest.first_chunk().ok_or(Errno::INVAL)?);
    let micros = u32::try_from(micros)
        .ok()
        .filter(|micros| *micros < 1_000_000)
        .ok_or(Errno(libc::EDOM))?;
    Ok(match u64::try_from(i64::from_ne_bytes(*seconds)) {
        Ok(seconds) => Duration::new(seconds, micros * 1000),
        Err(_) => Duration::from_nanos(1),
    })
}

fn algorithm(value: &[u8]) -> Outcome<CongestionAlgorithm> {
    match value.split(|byte| *byte == 0).next() {
        Some(b"reno") => Ok(CongestionAlgorithm::Reno),
        Some(b"cubic") => Ok(CongestionAlgorithm::Cubic),
        _ => Err(Errno::NOENT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_option_values_return_einval() {
        assert_eq!(switch(&[1]), Err(Errno::INVAL));
        assert_eq!(integer(&[7]), Err(Errno::INVAL));
        let shorter = [&[][..], &[7], &[7, 8, 9], &[1, 2, 0, 0]];
        assert_eq!(shorter.map(integer_or_byte), [0, 7, 7, 513]);
        assert_eq!(positive(&(-1_i32).to_ne_bytes()), Err(Errno::INVAL));
        assert_eq!(size(&(-1_i32).to_ne_bytes()), Ok(u32::MAX));
        let linger = [1_i32, 5].map(i32::to_ne_bytes).concat();
        assert_eq!(pair(&linger), Ok([1, 5]));
        assert_eq!(pair(&linger[..6]), Err(Errno::INVAL));
        let timeout = [2_i64, 500_000].map(i64::to_ne_bytes).concat();
        assert_eq!(time(&timeout), Ok(Duration::from_millis(2500)));
        let past = [-2_i64, 0].map(i64::to_ne_bytes).concat();
        assert_eq!(time(&past), Ok(Duration::from_nanos(1)));
        for name in [SO_RCVTIMEO, SO_RCVTIMEO_NEW] {
            let meaning = meaning(SOL_SOCKET, name, &timeout);
            assert_eq!(meaning, Ok(Meaning::ReceiveTimeout(Duration::from_millis(2500))));
        }
        for micros in [-1_i64, 1_000_000] {
            let wrong = [1, micros].map(i64::to_ne_bytes).concat();
            assert_eq!(time(&wrong), Err(Errno(libc::EDOM)));
        }
    }

    #[test]
    fn algorithm_name_ends_at_zero_byte() {
        assert_eq!(algorithm(b"reno\0rubbish"), Ok(CongestionAlgorithm::Reno));
        assert_eq!(algorithm(b"vegas"), Err(Errno::NOENT));
    }
}
