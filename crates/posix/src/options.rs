//! Socket options between C's form and the stack's.

use crate::errno::{Errno, Outcome};
use core::ffi::c_int;
use core::time::Duration;
use libc::{
    IP_FREEBIND, IP_MTU_DISCOVER, IP_TOS, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_TCLASS, IPV6_V6ONLY,
    SO_KEEPALIVE, SO_LINGER, SO_MARK, SO_OOBINLINE, SO_PEEK_OFF, SO_RCVBUF, SO_RCVLOWAT, SO_RCVTIMEO,
    SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDTIMEO, SO_ZEROCOPY, SOL_SOCKET, TCP_CONGESTION, TCP_CORK,
    TCP_DEFER_ACCEPT, TCP_FASTOPEN, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_MAXSEG, TCP_NODELAY,
    TCP_QUICKACK, TCP_USER_TIMEOUT,
};
use toehold_stack::{CongestionAlgorithm, SocketOption};

/// TCP_INQ, which libc does not name on every platform.
pub const TCP_INQ: c_int = 36;
/// IP_LOCAL_PORT_RANGE (Linux 6.3), likewise.
pub const IP_LOCAL_PORT_RANGE: c_int = 51;
/// SO_RCVTIMEO and SO_SNDTIMEO with a time of 64 bits everywhere (Linux 5.1), likewise.
pub const SO_RCVTIMEO_NEW: c_int = 66;
/// See [`SO_RCVTIMEO_NEW`].
pub const SO_SNDTIMEO_NEW: c_int = 67;
/// TCP_NOTSENT_LOWAT, likewise.
pub const TCP_NOTSENT_LOWAT: c_int = 25;

/// What an option of C means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// An option of the stack's.
    Stack(SocketOption),
    /// SO_RCVTIMEO; zero is no limit.
    ReceiveTimeout(Duration),
    /// SO_SNDTIMEO; zero is no limit.
    SendTimeout(Duration),
    /// TCP_INQ.
    ReportUnread(bool),
    /// SO_ZEROCOPY.
    ZeroCopy(bool),
    /// SO_PEEK_OFF: how many bytes are not peeked at; less than zero is off.
    PeekBehind(c_int),
    /// IP_LOCAL_PORT_RANGE: the first and the last port for a socket that is not bound to one; zero is the
    /// system's.
    LocalPorts(u16, u16),
    /// Taken, and without effect in a stack that has no routing tables, no
    /// firewall marks, and always discovers a path's MTU.
    Nothing,
}

/// What an option and its value mean.
///
/// # Errors
///
/// `EINVAL` for a value that is too short or out of range, `ENOPROTOOPT` for an option that
/// the stack does not have.
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
        SO_LINGER => {
            let [on, seconds] = pair(value)?;
            // What is negative is very long.
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
        // What is negative does not defer.
        TCP_DEFER_ACCEPT => SocketOption::DeferAccept(integer(value)?.try_into().unwrap_or(0)),
        TCP_CONGESTION => SocketOption::Congestion(algorithm(value)?),
        TCP_INQ => return Ok(Meaning::ReportUnread(switch(value)?)),
        _ => return Err(Errno::NOPROTOOPT),
    }))
}

fn ip_option(level: c_int, name: c_int, value: &[u8]) -> Outcome<Meaning> {
    Ok(Meaning::Stack(match (level, name) {
        (IPPROTO_IP, IP_TOS) => SocketOption::TrafficClass(integer_or_byte(value) as u8),
        (IPPROTO_IPV6, IPV6_TCLASS) => SocketOption::TrafficClass(integer(value)? as u8),
        (IPPROTO_IPV6, IPV6_V6ONLY) => SocketOption::V6Only(switch(value)?),
        (IPPROTO_IP, IP_LOCAL_PORT_RANGE) => {
            let range = integer(value)?.cast_unsigned();
            return Ok(Meaning::LocalPorts(range as u16, (range >> 16) as u16));
        }
        (IPPROTO_IP, IP_MTU_DISCOVER | IP_FREEBIND) => return Ok(Meaning::Nothing),
        _ => return Err(Errno::NOPROTOOPT),
    }))
}

fn integer(value: &[u8]) -> Outcome<c_int> {
    Ok(c_int::from_ne_bytes(*value.first_chunk().ok_or(Errno::INVAL)?))
}

/// As options of IPv4 are: what is too short is a byte, or nothing.
fn integer_or_byte(value: &[u8]) -> c_int {
    integer(value).unwrap_or_else(|_| value.first().copied().unwrap_or(0).into())
}

fn switch(value: &[u8]) -> Outcome<bool> {
    Ok(integer(value)? != 0)
}

fn positive(value: &[u8]) -> Outcome<u32> {
    u32::try_from(integer(value)?).map_err(|_| Errno::INVAL)
}

/// Bytes of a buffer, which Linux bounds: what is negative is as much as there may be.
fn size(value: &[u8]) -> Outcome<u32> {
    integer(value).map(c_int::cast_unsigned)
}

/// What asking for the size of a buffer gives, which holds so many bytes: Linux counts what it
/// needs besides, and makes that as much again.
pub fn said_of_buffer(bytes: u32) -> c_int {
    c_int::try_from(bytes.saturating_mul(2)).unwrap_or(c_int::MAX)
}

fn pair(value: &[u8]) -> Outcome<[c_int; 2]> {
    let (first, rest) = value.split_first_chunk().ok_or(Errno::INVAL)?;
    let second = rest.first_chunk().ok_or(Errno::INVAL)?;
    Ok([*first, *second].map(c_int::from_ne_bytes))
}

/// A `timeval`; zero is no limit, and what is negative has passed already.
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
    fn values_have_the_length_of_their_type() {
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
    fn names_end_at_a_zero() {
        assert_eq!(algorithm(b"reno\0rubbish"), Ok(CongestionAlgorithm::Reno));
        assert_eq!(algorithm(b"vegas"), Err(Errno::NOENT));
    }
}
