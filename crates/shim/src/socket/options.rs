//! `getsockopt` and `setsockopt` on connections.

use core::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use libc::{
    AF_INET6, IP_MTU, IP_TOS, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_TCLASS, IPV6_V6ONLY, SO_ACCEPTCONN,
    SO_DOMAIN, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_OOBINLINE, SO_PEERCRED, SO_PROTOCOL, SO_RCVBUF,
    SO_RCVLOWAT, SO_RCVTIMEO, SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDTIMEO, SO_TYPE, SOL_SOCKET,
    TCP_CONGESTION, TCP_CORK, TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_MAXSEG, TCP_NODELAY,
    TCP_QUICKACK, TCP_USER_TIMEOUT,
};
use toehold_posix::address;
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::options::table::{Fate, fate};
use toehold_posix::options::{
    Meaning, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW, TCP_FASTOPEN_NO_COOKIE, TCP_INQ, TCP_NOTSENT_LOWAT, meaning,
    said_of_buffer,
};
use toehold_socket::{SocketOption, State};

use super::Stream;
use crate::answer::outcome;
use crate::next;

/// TCP_ZEROCOPY_RECEIVE and TCP_TIMESTAMP, which libc does not name everywhere.
const ZEROCOPY_RECEIVE: c_int = 35;
const TIMESTAMP: c_int = 24;
/// The options IP_PROTOCOL and IPV6_PATHMTU, which `libc` lacks.
const PORT: c_int = 52;
const PATH_MTU: c_int = 61;

/// Options of all sockets that what stands for a connection has itself: what is of this one socket alone. It
/// has stood for others before, and is a Unix socket: so it is not asked for anything else.
const OF_DESCRIPTOR: [c_int; 2] = [libc::SO_COOKIE, libc::SO_MEMINFO];

/// Filters, which lie in the program's memory when they are set and no longer.
const FILTERS: [c_int; 2] = [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF];

/// Whether an option is one that the kernel alone has an effect of, and set so that it has.
pub(crate) fn is_kernels_alone(level: c_int, name: c_int, value: &[u8]) -> Option<Errno> {
    let is_set = match (level, name) {
        // A name that is empty binds to none.
        (SOL_SOCKET, libc::SO_BINDTODEVICE) => value.first().is_some_and(|byte| *byte != 0),
        _ => value.iter().any(|byte| *byte != 0),
    };
    match fate(level, name) {
        Fate::Kernels(errno) if is_set => Some(Errno(errno)),
        _ => None,
    }
}

/// Whether no socket that may come to be the node's has an option.
pub(crate) fn is_refused(level: c_int, name: c_int) -> Option<Errno> {
    match fate(level, name) {
        Fate::Refused(errno) => Some(Errno(errno)),
        _ => None,
    }
}

/// Whether the kernel is asked first about an option that has its effect on the node. The kernel knows more
/// of the values that a program may set.
fn is_checked(meaning: &Meaning) -> bool {
    match meaning {
        Meaning::Stack(option) => matches!(
            option,
            SocketOption::TimeToLive(_)
                | SocketOption::HopLimit(_)
                | SocketOption::LeastTimeToLive(_)
                | SocketOption::LeastHopLimit(_)
                | SocketOption::ReportErrors(_)
                | SocketOption::ReportErrorsIpv6(_)
                | SocketOption::MaxPacingRate(_)
                | SocketOption::ForcedSendBuffer(_)
                | SocketOption::ForcedReceiveBuffer(_)
                | SocketOption::BufferLock(_)
                | SocketOption::SynRetries(_)
                | SocketOption::FinWait2(_)
                | SocketOption::WindowClamp(_)
                | SocketOption::ThinLinearTimeouts(_)
                | SocketOption::LongestTimeout(_)
                | SocketOption::ShortestTimeout(_)
                | SocketOption::LongestAckDelay(_)
        ),
        // Before Linux 6.10, TCP had no place to peek at.
        Meaning::PeekBehind(_)
        | Meaning::Stamps(_)
        | Meaning::Stamping(..)
        | Meaning::LocalPorts(..)
        | Meaning::Nothing => true,
        Meaning::ReceiveTimeout(_)
        | Meaning::SendTimeout(_)
        | Meaning::ReportUnread(_)
        | Meaning::ZeroCopy(_) => false,
    }
}

/// The source of an option's value.
pub(crate) enum Value {
    Bytes(Vec<u8>),
    /// A value as long as the program asks for, or longer.
    Whole(Vec<u8>),
    /// A value for which the program has room, or it is told nothing.
    Unbroken(Vec<u8>),
    /// A number of an option of IPv4. A small one is returned as one byte if the program has no room for all
    /// of it.
    OfIpv4(c_int),
    /// The descriptor of the connection, which any socket is.
    Descriptor,
    /// A socket of the kernel's with the same options.
    Shadow(OwnedFd),
}

impl Stream {
    /// Sets an option.
    pub(crate) fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Outcome<c_int> {
        match (level, name) {
            (IPPROTO_TCP, TCP_CONGESTION) => return self.set_congestion(value),
            // Of a socket that has no port yet.
            (IPPROTO_IPV6, IPV6_V6ONLY) if self.domain == AF_INET6 => return Err(Errno::INVAL),
            (IPPROTO_IPV6, _) if self.domain != AF_INET6 => return self.set_shadow(level, name, value),
            (SOL_SOCKET, _) if FILTERS.contains(&name) => return Err(self.refused_filter(level, name)),
            (SOL_SOCKET, libc::SO_DETACH_FILTER) if value.len() >= size_of::<c_int>() => {
                // None was attached.
                let lock = self.history.switch(SOL_SOCKET, libc::SO_LOCK_FILTER);
                return Err(if lock == Some(true) {
                    Errno::PERM
                } else {
                    Errno::NOENT
                });
            }
            // No socket of the node's has a protocol above, whether the kernel's could have.
            (IPPROTO_TCP, libc::TCP_ULP) if !value.is_empty() => return Err(Errno::NOENT),
            // Of a socket that is not connected.
            (IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT | TCP_FASTOPEN_NO_COOKIE) => return Err(Errno::INVAL),
            (IPPROTO_TCP, libc::TCP_QUEUE_SEQ) if value.len() >= size_of::<c_int>() => {
                return Err(Errno::PERM);
            }
            _ => {}
        }
        if let Some(errno) = is_kernels_alone(level, name, value) {
            // The kernel says what is wrong besides.
            self.history
                .shadow(self.domain)
                .and_then(|shadow| set(&shadow, level, name, value))?;
            return Err(errno);
        }
        match meaning(level, name, value) {
            Ok(meaning) if is_checked(&meaning) => {
                self.set_shadow(level, name, value)?;
                self.apply(meaning)?;
                Ok(0)
            }
            Ok(meaning) => {
                self.apply(meaning)?;
                self.history.note(level, name, value);
                Ok(0)
            }
            Err(Errno::NOPROTOOPT) => self.set_shadow(level, name, value),
            Err(errno) => Err(errno),
        }
    }

    fn refused_filter(&self, level: c_int, name: c_int) -> Errno {
        match self.history.switch(SOL_SOCKET, libc::SO_LOCK_FILTER) {
            Some(true) => Errno::PERM,
            _ => is_kernels_alone(level, name, &[1]).unwrap_or(Errno::NOPROTOOPT),
        }
    }

    /// Sets the congestion control. The stack has two of the kernel's. Of another one the program
    /// sees no more than its name.
    fn set_congestion(&self, value: &[u8]) -> Outcome<c_int> {
        let set = self.set_shadow(IPPROTO_TCP, TCP_CONGESTION, value)?;
        if let Ok(meaning) = meaning(IPPROTO_TCP, TCP_CONGESTION, value) {
            self.apply(meaning)?;
        }
        Ok(set)
    }

    /// Keeps an option that has no effect on a node. The node has nothing that it could change, or does so
    /// anyhow. The kernel says whether the program may set it so.
    fn set_shadow(&self, level: c_int, name: c_int, value: &[u8]) -> Outcome<c_int> {
        // Only of a socket that is not connected.
        if (level, name) == (IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) && value.iter().all(|byte| *byte == 0) {
            return Err(Errno::INVAL);
        }
        let shadow = self.history.shadow(self.domain)?;
        let set = set(&shadow, level, name, value)?;
        self.history.note(level, name, value);
        Ok(set)
    }

    /// An option's value.
    pub(crate) fn option(&self, level: c_int, name: c_int) -> Outcome<Value> {
        let number = match level {
            SOL_SOCKET => return self.socket_option(name),
            IPPROTO_TCP => return self.tcp_option(name),
            IPPROTO_IP if name == IP_TOS => {
                return Ok(Value::OfIpv4(self.settings()?.type_of_service().into()));
            }
            IPPROTO_IP if name == IP_MTU => self.path_mtu()?,
            // Despite its name, of sockets that are bound it is the port.
            IPPROTO_IP if name == PORT => self.local()?.port().into(),
            IPPROTO_IPV6 if self.domain == AF_INET6 && name == IPV6_TCLASS => {
                self.settings()?.traffic_class_ipv6().into()
            }
            // An address that no host has, and the MTU.
            IPPROTO_IPV6 if self.domain == AF_INET6 && name == PATH_MTU => {
                let address = [0; size_of::<libc::sockaddr_in6>()];
                return Ok(Value::Unbroken([&address[..], &bytes(self.path_mtu()?)].concat()));
            }
            IPPROTO_IPV6 if self.domain == AF_INET6 && name == libc::IPV6_MTU => self.path_mtu()?,
            IPPROTO_IPV6 if self.domain == AF_INET6 && name == libc::IPV6_ADDRFORM => self.family()?,
            _ => return self.shadow(),
        };
        Ok(Value::Bytes(bytes(number)))
    }

    fn shadow(&self) -> Outcome<Value> {
        self.kernels_like().map(Value::Shadow)
    }

    /// A socket of the kernel's with the same options, whose answers are those of a TCP socket.
    pub(crate) fn kernels_like(&self) -> Outcome<OwnedFd> {
        self.history.shadow(self.domain)
    }

    fn path_mtu(&self) -> Outcome<c_int> {
        let info = self.inner.info().map_err(Errno::from)?;
        match info.state {
            State::Closed => Err(Errno::NOTCONN),
            _ => Ok(info.path_mtu.into()),
        }
    }

    fn family(&self) -> Outcome<c_int> {
        match self.inner.info().map_err(Errno::from)?.state {
            State::Established => Ok(self.domain),
            _ => Err(Errno::NOTCONN),
        }
    }

    fn settings(&self) -> Outcome<toehold_socket::Settings> {
        self.inner.settings().map_err(Errno::from)
    }

    fn socket_option(&self, name: c_int) -> Outcome<Value> {
        let settings = self.settings()?;
        let number = match name {
            SO_ERROR => {
                let error = self.inner.take_error().map_err(Errno::from)?;
                error.map_or(0, |error| Errno::from(error).0)
            }
            SO_TYPE => libc::SOCK_STREAM,
            SO_DOMAIN => self.domain,
            SO_PROTOCOL => self.history.protocol(),
            SO_ACCEPTCONN => 0,
            SO_KEEPALIVE => settings.keepalive().into(),
            SO_REUSEADDR => settings.reuse_address().into(),
            // The node's listener lets processes share its port, whatever the program has set.
            SO_REUSEPORT => self.history.switch(SOL_SOCKET, name).unwrap_or(false).into(),
            SO_OOBINLINE => settings.urgent_inline().into(),
            SO_SNDBUF => said_of_buffer(settings.send_buffer()),
            SO_RCVBUF => said_of_buffer(settings.receive_buffer()),
            SO_RCVLOWAT => settings.receive_low_water() as c_int,
            // The kernel remembers a span that does not count any more.
            SO_LINGER => return self.shadow(),
            // The kernel rounds a span that was set.
            SO_RCVTIMEO | SO_RCVTIMEO_NEW if self.has_set([SO_RCVTIMEO, SO_RCVTIMEO_NEW]) => {
                return self.shadow();
            }
            SO_SNDTIMEO | SO_SNDTIMEO_NEW if self.has_set([SO_SNDTIMEO, SO_SNDTIMEO_NEW]) => {
                return self.shadow();
            }
            SO_RCVTIMEO | SO_RCVTIMEO_NEW | SO_SNDTIMEO | SO_SNDTIMEO_NEW => {
                let span = match name {
                    SO_RCVTIMEO | SO_RCVTIMEO_NEW => self.inner.read_timeout(),
                    _ => self.inner.write_timeout(),
                };
                let span = span.map_err(Errno::from)?.unwrap_or_default();
                let parts = [span.as_secs() as i64, span.subsec_micros().into()];
                return Ok(Value::Bytes(parts.map(i64::to_ne_bytes).concat()));
            }
            // TCP cannot say which user is at the other end.
            SO_PEERCRED => {
                return Ok(Value::Bytes([0, -1, -1].map(c_int::to_ne_bytes).concat()));
            }
            libc::SO_PEERNAME => return Ok(Value::Whole(address::bytes(self.peer()?, self.domain))),
            libc::SO_PEEK_OFF => self.inner.description().peek_behind(),
            _ if OF_DESCRIPTOR.contains(&name) => {
                if name == libc::SO_COOKIE {
                    // No other connection is to have it.
                    self.note_marked();
                }
                return Ok(Value::Descriptor);
            }
            _ => return self.shadow(),
        };
        Ok(Value::Bytes(bytes(number)))
    }

    /// The length of TCP_INFO in this kernel, which programs expect.
    fn length_of_info(&self) -> usize {
        static LENGTH: OnceLock<usize> = OnceLock::new();
        let ask = || {
            let mut told = [0_u8; 512];
            let mut len = told.len() as libc::socklen_t;
            let shadow = self.kernels_like().ok()?;
            let (number, told) = (shadow.as_raw_fd(), told.as_mut_ptr().cast());
            // SAFETY: `told` points to a local with room for `len` bytes, to which the kernel
            // writes during this call alone.
            let got = unsafe { next::getsockopt(number, IPPROTO_TCP, TCP_INFO, told, &mut len) };
            (got == 0).then_some(len as usize)
        };
        match LENGTH.get() {
            Some(length) => *length,
            None => ask().map_or(usize::MAX, |length| *LENGTH.get_or_init(|| length)),
        }
    }

    /// Whether one of these options of all sockets was set.
    fn has_set(&self, names: [c_int; 2]) -> bool {
        self.history
            .any(|level, name, _| level == SOL_SOCKET && names.contains(&name))
    }

    fn tcp_option(&self, name: c_int) -> Outcome<Value> {
        let settings = self.settings()?;
        let number = match name {
            TCP_NODELAY => settings.no_delay().into(),
            TCP_CORK => settings.cork().into(),
            TCP_QUICKACK => self.history.switch(IPPROTO_TCP, name).unwrap_or(true).into(),
            TCP_KEEPIDLE => settings.keepalive_idle().as_secs() as c_int,
            TCP_KEEPINTVL => settings.keepalive_interval().as_secs() as c_int,
            TCP_KEEPCNT => settings.keepalive_probes().into(),
            TCP_USER_TIMEOUT => settings.user_timeout().as_millis() as c_int,
            TCP_NOTSENT_LOWAT => settings.unsent_low_water() as c_int,
            TCP_INQ => self.reports_unread().into(),
            TCP_MAXSEG => self.inner.info().map_err(Errno::from)?.segment_size.into(),
            TCP_INFO => {
                let details = self.inner.details().map_err(Errno::from)?;
                let mut told = toehold_posix::info::tcp_info(&details);
                told.truncate(self.length_of_info());
                return Ok(Value::Bytes(told));
            }
            TIMESTAMP => self.inner.details().map_err(Errno::from)?.timestamp.cast_signed(),
            // No pages are given away.
            ZEROCOPY_RECEIVE => return Err(Errno::NOPROTOOPT),
            _ => return self.shadow(),
        };
        Ok(Value::Bytes(bytes(number)))
    }
}

/// Sets an option of a socket of the kernel's.
fn set(shadow: &OwnedFd, level: c_int, name: c_int, value: &[u8]) -> Outcome<c_int> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: `value` is a slice of `len` bytes, borrowed for this call.
    outcome(unsafe { next::setsockopt(shadow.as_raw_fd(), level, name, value.as_ptr().cast(), len) })
}

fn bytes(number: c_int) -> Vec<u8> {
    number.to_ne_bytes().to_vec()
}
