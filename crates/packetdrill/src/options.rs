//! Socket options between C's form and the stack's.

use crate::errno::{Errno, Outcome};
use crate::node::State;
use crate::sockets::{Kind, Socket};
use core::time::Duration;
use libc::{
    IP_FREEBIND, IP_MTU_DISCOVER, IP_TOS, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_TCLASS, IPV6_V6ONLY,
    SO_ACCEPTCONN, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_MARK, SO_OOBINLINE, SO_RCVBUF, SO_RCVLOWAT,
    SO_RCVTIMEO, SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDTIMEO, SO_TYPE, SO_ZEROCOPY, SOL_SOCKET,
    TCP_CONGESTION, TCP_CORK, TCP_FASTOPEN, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_MAXSEG,
    TCP_NODELAY, TCP_QUICKACK, TCP_USER_TIMEOUT, c_int,
};
use toehold_stack::{CongestionAlgorithm, SocketError, SocketOption};

/// TCP_INQ, which libc does not name on every platform.
const TCP_INQ: c_int = 36;
/// TCP_NOTSENT_LOWAT, likewise.
const TCP_NOTSENT_LOWAT: c_int = 25;
/// Segment size that a socket without a connection reports (RFC 9293 §3.7.1).
const DEFAULT_SEGMENT: c_int = 536;

/// What an option of C means here.
enum Meaning {
    /// An option of the stack's.
    Stack(SocketOption),
    ReceiveTimeout(Duration),
    SendTimeout(Duration),
    ReportUnread(bool),
    ZeroCopy(bool),
    /// Taken, and without effect in a stack that has no routing tables, no
    /// firewall marks, and always discovers a path's MTU.
    Nothing,
}

impl State {
    pub(crate) fn set_option(&mut self, fd: i32, level: c_int, name: c_int, value: &[u8]) -> Outcome<()> {
        let now = self.now;
        let socket = self.descriptors.socket(fd)?;
        match meaning(level, name, value)? {
            Meaning::Stack(SocketOption::FastOpen(limit)) if matches!(socket.kind, Kind::Fresh) => {
                socket.fast_open = Some(limit);
            }
            Meaning::Stack(option) => match socket.kind {
                Kind::Fresh => socket.settings.apply(option)?,
                Kind::Listening(id) => self.stack.set_listener_option(id, option)?,
                Kind::Connected(id) => self.stack.set_option(now, id, option)?,
            },
            Meaning::ReceiveTimeout(span) => socket.receive_timeout = span,
            Meaning::SendTimeout(span) => socket.send_timeout = span,
            Meaning::ReportUnread(on) => socket.report_unread = on,
            Meaning::ZeroCopy(on) => socket.completions.wanted = on,
            Meaning::Nothing => {}
        }
        Ok(())
    }

    /// An option's value, in the bytes that C has for it.
    pub(crate) fn option(&mut self, fd: i32, level: c_int, name: c_int) -> Outcome<Vec<u8>> {
        let socket = self.descriptors.socket(fd)?;
        let settings = match socket.kind {
            Kind::Connected(id) => self.stack.settings(id)?,
            Kind::Fresh | Kind::Listening(_) => socket.settings,
        };
        let number = match (level, name) {
            (SOL_SOCKET, SO_TYPE) => libc::SOCK_STREAM,
            (SOL_SOCKET, SO_ACCEPTCONN) => c_int::from(matches!(socket.kind, Kind::Listening(_))),
            (SOL_SOCKET, SO_ERROR) => self.pending_error(fd)?,
            (SOL_SOCKET, SO_SNDBUF) => settings.send_buffer() as c_int,
            (SOL_SOCKET, SO_RCVBUF) => settings.receive_buffer() as c_int,
            (SOL_SOCKET, SO_KEEPALIVE) => c_int::from(settings.keepalive()),
            (SOL_SOCKET, SO_ZEROCOPY) => c_int::from(socket.completions.wanted),
            (SOL_SOCKET, SO_LINGER) => {
                let linger = settings.linger();
                let seconds = linger.map_or(0, |span| span.as_secs() as c_int);
                return Ok([c_int::from(linger.is_some()), seconds]
                    .map(c_int::to_ne_bytes)
                    .concat());
            }
            (IPPROTO_TCP, TCP_NODELAY) => c_int::from(settings.no_delay()),
            (IPPROTO_TCP, TCP_CORK) => c_int::from(settings.cork()),
            (IPPROTO_TCP, TCP_NOTSENT_LOWAT) => settings.unsent_low_water() as c_int,
            (IPPROTO_TCP, TCP_INQ) => c_int::from(socket.report_unread),
            (IPPROTO_TCP, TCP_USER_TIMEOUT) => settings.user_timeout().as_millis() as c_int,
            (IPPROTO_TCP, TCP_MAXSEG) => self.segment_size(fd)?,
            _ => return Err(Errno::NOPROTOOPT),
        };
        Ok(number.to_ne_bytes().to_vec())
    }

    fn pending_error(&mut self, fd: i32) -> Outcome<c_int> {
        match self.descriptors.socket(fd)?.kind {
            Kind::Connected(id) => Ok(self
                .stack
                .take_error(id)?
                .map_or(0, |error: SocketError| Errno::from(error).0)),
            Kind::Fresh | Kind::Listening(_) => Ok(0),
        }
    }

    fn segment_size(&mut self, fd: i32) -> Outcome<c_int> {
        let socket: &mut Socket = self.descriptors.socket(fd)?;
        match socket.kind {
            Kind::Connected(id) => Ok(c_int::from(self.stack.info(id)?.segment_size)),
            Kind::Fresh | Kind::Listening(_) => Ok(DEFAULT_SEGMENT),
        }
    }
}

fn meaning(level: c_int, name: c_int, value: &[u8]) -> Outcome<Meaning> {
    match level {
        SOL_SOCKET => socket_option(name, value),
        IPPROTO_TCP => tcp_option(name, value),
        IPPROTO_IP | IPPROTO_IPV6 => ip_option(level, name, value),
        _ => Err(Errno::NOPROTOOPT),
    }
}

fn socket_option(name: c_int, value: &[u8]) -> Outcome<Meaning> {
    Ok(Meaning::Stack(match name {
        SO_REUSEADDR | SO_REUSEPORT => SocketOption::ReuseAddress(switch(value)?),
        SO_KEEPALIVE => SocketOption::Keepalive(switch(value)?),
        SO_OOBINLINE => SocketOption::UrgentInline(switch(value)?),
        SO_SNDBUF => SocketOption::SendBuffer(positive(value)?),
        SO_RCVBUF => SocketOption::ReceiveBuffer(positive(value)?),
        SO_RCVLOWAT => SocketOption::ReceiveLowWater(u8::try_from(positive(value)?).unwrap_or(u8::MAX)),
        SO_LINGER => {
            let [on, seconds] = pair(value)?;
            let span = Duration::from_secs(u64::try_from(seconds).map_err(|_| Errno::INVAL)?);
            SocketOption::Linger((on != 0).then_some(span))
        }
        SO_RCVTIMEO => return Ok(Meaning::ReceiveTimeout(time(value)?)),
        SO_SNDTIMEO => return Ok(Meaning::SendTimeout(time(value)?)),
        SO_ZEROCOPY => return Ok(Meaning::ZeroCopy(switch(value)?)),
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
        TCP_CONGESTION => SocketOption::Congestion(algorithm(value)?),
        TCP_INQ => return Ok(Meaning::ReportUnread(switch(value)?)),
        _ => return Err(Errno::NOPROTOOPT),
    }))
}

fn ip_option(level: c_int, name: c_int, value: &[u8]) -> Outcome<Meaning> {
    Ok(Meaning::Stack(match (level, name) {
        (IPPROTO_IP, IP_TOS) | (IPPROTO_IPV6, IPV6_TCLASS) => {
            SocketOption::TrafficClass(integer(value)? as u8)
        }
        (IPPROTO_IPV6, IPV6_V6ONLY) => SocketOption::V6Only(switch(value)?),
        (IPPROTO_IP, IP_MTU_DISCOVER | IP_FREEBIND) => return Ok(Meaning::Nothing),
        _ => return Err(Errno::NOPROTOOPT),
    }))
}

/// An int, or where Linux allows it, a byte.
fn integer(value: &[u8]) -> Outcome<c_int> {
    match value {
        [byte] => Ok(c_int::from(*byte)),
        value => Ok(c_int::from_ne_bytes(*value.first_chunk().ok_or(Errno::INVAL)?)),
    }
}

fn switch(value: &[u8]) -> Outcome<bool> {
    Ok(c_int::from_ne_bytes(*value.first_chunk().ok_or(Errno::INVAL)?) != 0)
}

fn positive(value: &[u8]) -> Outcome<u32> {
    u32::try_from(integer(value)?).map_err(|_| Errno::INVAL)
}

fn pair(value: &[u8]) -> Outcome<[c_int; 2]> {
    let (first, rest) = value.split_first_chunk().ok_or(Errno::INVAL)?;
    let second = rest.first_chunk().ok_or(Errno::INVAL)?;
    Ok([*first, *second].map(c_int::from_ne_bytes))
}

/// A `timeval`; zero is no limit.
fn time(value: &[u8]) -> Outcome<Duration> {
    let (seconds, rest) = value.split_first_chunk().ok_or(Errno::INVAL)?;
    let micros = i64::from_ne_bytes(*rest.first_chunk().ok_or(Errno::INVAL)?);
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).map_err(|_| Errno::INVAL)?;
    let micros = u32::try_from(micros)
        .ok()
        .filter(|micros| *micros < 1_000_000)
        .ok_or(Errno::INVAL)?;
    Ok(Duration::new(seconds, micros * 1000))
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
        assert_eq!(integer(&[7]), Ok(7));
        assert_eq!(positive(&(-1_i32).to_ne_bytes()), Err(Errno::INVAL));
        let linger = [1_i32, 5].map(i32::to_ne_bytes).concat();
        assert_eq!(pair(&linger), Ok([1, 5]));
        assert_eq!(pair(&linger[..6]), Err(Errno::INVAL));
        let timeout = [2_i64, 500_000].map(i64::to_ne_bytes).concat();
        assert_eq!(time(&timeout), Ok(Duration::from_millis(2500)));
    }

    #[test]
    fn names_end_at_a_zero() {
        assert_eq!(algorithm(b"reno\0rubbish"), Ok(CongestionAlgorithm::Reno));
        assert_eq!(algorithm(b"vegas"), Err(Errno::NOENT));
    }
}
