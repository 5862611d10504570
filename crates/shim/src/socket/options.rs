//! `getsockopt` and `setsockopt` on connections.

use core::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{
    AF_INET6, IP_MTU, IP_TOS, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_TCLASS, IPV6_V6ONLY, SO_ACCEPTCONN,
    SO_DOMAIN, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_OOBINLINE, SO_PEERCRED, SO_PROTOCOL, SO_RCVBUF,
    SO_RCVLOWAT, SO_RCVTIMEO, SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDTIMEO, SO_TYPE, SOL_SOCKET,
    TCP_CONGESTION, TCP_CORK, TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_MAXSEG, TCP_NODELAY,
    TCP_QUICKACK, TCP_USER_TIMEOUT,
};
use toehold_posix::address;
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::options::{
    Meaning, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW, TCP_INQ, TCP_NOTSENT_LOWAT, meaning, said_of_buffer,
};
use toehold_socket::State;

use super::Stream;
use crate::answer::outcome;
use crate::next;

/// TCP_AO_ADD_KEY, TCP_AO_DEL_KEY and TCP_AO_INFO, which libc does not name yet.
const AUTHENTICATION: [c_int; 3] = [38, 39, 40];

/// Options of all sockets that what stands for a connection has itself: filters, which lie in the
/// program's memory when they are set and no longer, and what is of this one socket alone. It
/// has stood for others before, and is a Unix socket: so it is not asked for anything else.
const OF_DESCRIPTOR: [c_int; 5] = [
    libc::SO_ATTACH_FILTER,
    libc::SO_ATTACH_BPF,
    libc::SO_DETACH_FILTER,
    libc::SO_COOKIE,
    libc::SO_MEMINFO,
];

/// Options that the kernel would take, and that must not be taken if they have no effect.
pub(super) fn is_never_without_effect(level: c_int, name: c_int) -> bool {
    let names = [libc::TCP_MD5SIG, libc::TCP_MD5SIG_EXT, libc::TCP_REPAIR];
    level == IPPROTO_TCP && (names.contains(&name) || AUTHENTICATION.contains(&name))
}

/// Where an option's value is.
pub(crate) enum Value {
    Bytes(Vec<u8>),
    /// The same of what is as long as the program says, or longer.
    Whole(Vec<u8>),
    /// With the descriptor that stands for the connection, as of any socket.
    Descriptor,
    /// With a socket of the kernel's that the same was set of.
    Shadow(OwnedFd),
}

impl Stream {
    /// Sets an option. `None`: it is one of the descriptor's.
    pub(crate) fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Option<Outcome<c_int>> {
        match (level, name) {
            (IPPROTO_TCP, TCP_CONGESTION) => return Some(self.set_congestion(value)),
            // Of a socket that has no port yet.
            (IPPROTO_IPV6, IPV6_V6ONLY) if self.domain == AF_INET6 => return Some(Err(Errno::INVAL)),
            (IPPROTO_IPV6, _) if self.domain != AF_INET6 => {
                return Some(self.set_shadow(level, name, value));
            }
            _ => {}
        }
        match meaning(level, name, value) {
            Ok(Meaning::LocalPorts(..) | Meaning::Nothing) => Some(self.set_shadow(level, name, value)),
            // Before Linux 6.10, TCP had none.
            Ok(meaning @ Meaning::PeekBehind(_)) => {
                let set = self.set_shadow(level, name, value);
                Some(set.and_then(|set| self.apply(meaning).map(|()| set)))
            }
            Ok(meaning) => Some(self.apply(meaning).map(|()| {
                self.history.note(level, name, value);
                0
            })),
            Err(Errno::NOPROTOOPT) if level == SOL_SOCKET && OF_DESCRIPTOR.contains(&name) => {
                if self.history.switch(SOL_SOCKET, libc::SO_LOCK_FILTER) == Some(true) {
                    return Some(Err(Errno::PERM));
                }
                self.note_marked();
                None
            }
            Err(Errno::NOPROTOOPT) => Some(self.set_shadow(level, name, value)),
            Err(errno) => Some(Err(errno)),
        }
    }

    /// The stack has two of the kernel's ways to control congestion. Of another one the program sees no more
    /// than its name.
    fn set_congestion(&self, value: &[u8]) -> Outcome<c_int> {
        let set = self.set_shadow(IPPROTO_TCP, TCP_CONGESTION, value)?;
        if let Ok(meaning) = meaning(IPPROTO_TCP, TCP_CONGESTION, value) {
            self.apply(meaning)?;
        }
        Ok(set)
    }

    /// Options that change nothing, for a node has nothing that they could change, or does so
    /// anyhow: the kernel says whether the program may set them so, and they are kept.
    fn set_shadow(&self, level: c_int, name: c_int, value: &[u8]) -> Outcome<c_int> {
        if is_never_without_effect(level, name) {
            return Err(Errno::NOPROTOOPT);
        }
        // Only of a socket that is not connected.
        if (level, name) == (IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) && value.iter().all(|byte| *byte == 0) {
            return Err(Errno::INVAL);
        }
        let shadow = self.history.shadow(self.domain)?;
        let len = value.len() as libc::socklen_t;
        // SAFETY: the value is as long as said.
        let set = outcome(unsafe {
            next::setsockopt(shadow.as_raw_fd(), level, name, value.as_ptr().cast(), len)
        })?;
        self.history.note(level, name, value);
        Ok(set)
    }

    /// An option's value.
    pub(crate) fn option(&self, level: c_int, name: c_int) -> Outcome<Value> {
        let number = match level {
            SOL_SOCKET => return self.socket_option(name),
            IPPROTO_TCP => return self.tcp_option(name),
            IPPROTO_IP if name == IP_TOS => self.settings()?.traffic_class().into(),
            IPPROTO_IP if name == IP_MTU => self.path_mtu()?,
            IPPROTO_IPV6 if self.domain == AF_INET6 && name == IPV6_TCLASS => {
                self.settings()?.traffic_class().into()
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

    /// A socket of the kernel's that the same was set of, to say what one of TCP's says.
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
            SO_PROTOCOL => IPPROTO_TCP,
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
            // Who is at the other end, TCP cannot say.
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
                let info = self.inner.info().map_err(Errno::from)?;
                return Ok(Value::Bytes(toehold_posix::info::tcp_info(&info)));
            }
            _ => return self.shadow(),
        };
        Ok(Value::Bytes(bytes(number)))
    }
}

fn bytes(number: c_int) -> Vec<u8> {
    number.to_ne_bytes().to_vec()
}
