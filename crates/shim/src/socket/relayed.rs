//! Connections whose bytes the engine carries. Most descriptors are Unix sockets that work by themselves, and
//! only say that they are TCP's. The others are TCP's, and only say that their ends are the node's.

use core::ffi::c_int;
use std::net::SocketAddr;

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SO_DOMAIN, SO_PROTOCOL, SOL_SOCKET};
use toehold_posix::errno::{Errno, Outcome};

use super::{Value, is_kernels_alone, is_refused, plain};

/// A connection whose bytes the engine carries.
pub(crate) struct Relayed {
    /// The family that the program asked for.
    pub(crate) domain: c_int,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    /// Whether the descriptor is not a Unix socket but one of TCP's indeed, with other ends.
    is_tcps: bool,
}

impl Relayed {
    pub(crate) fn new(ends: toehold_socket::Relayed, domain: Option<c_int>) -> Relayed {
        let is_ipv6 = ends.local.is_some_and(|local| local.is_ipv6());
        Relayed {
            domain: domain.unwrap_or(if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET }),
            local: ends.local.map(plain),
            peer: ends.peer.map(plain),
            is_tcps: false,
        }
    }

    /// The connection that the engine has made a connection of the kernel's for.
    pub(crate) fn of_kernel(ends: toehold_socket::Relayed, domain: c_int) -> Relayed {
        Relayed {
            is_tcps: true,
            ..Relayed::new(ends, Some(domain))
        }
    }

    pub(crate) fn local(&self) -> Outcome<SocketAddr> {
        self.local.ok_or(Errno::NOTCONN)
    }

    pub(crate) fn peer(&self) -> Outcome<SocketAddr> {
        self.peer.ok_or(Errno::NOTCONN)
    }

    /// Sets an option. Returns `None` if the kernel's socket has it.
    pub(crate) fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Option<Outcome<c_int>> {
        let is_of_tcp = [IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP].contains(&level);
        let refused = is_refused(level, name).or_else(|| is_kernels_alone(level, name, value));
        // The connection goes on with those it had.
        (is_of_tcp && !self.is_tcps).then_some(match refused {
            _ if value.is_empty() => Err(Errno::INVAL),
            Some(errno) => Err(errno),
            None => Ok(0),
        })
    }

    /// The value of an option. Returns `None` if the kernel's socket knows it.
    pub(crate) fn option(&self, level: c_int, name: c_int) -> Option<Outcome<Value>> {
        if self.is_tcps {
            return None;
        }
        let number = match (level, name) {
            (SOL_SOCKET, SO_DOMAIN) => self.domain,
            (SOL_SOCKET, SO_PROTOCOL) => IPPROTO_TCP,
            (SOL_SOCKET, _) => return None,
            (IPPROTO_IP | IPPROTO_IPV6, _) | (IPPROTO_TCP, libc::TCP_NODELAY) => 0,
            _ => return Some(Err(Errno(libc::ENOPROTOOPT))),
        };
        Some(Ok(Value::Bytes(number.to_ne_bytes().to_vec())))
    }
}
