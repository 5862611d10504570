//! Options of sockets of the kernel's: read from one, and set on another.

use core::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::socklen_t;
use toehold_posix::errno::Outcome;

use super::History;
use crate::answer::outcome;
use crate::{next, table};

impl History {
    /// The options that another process has set of a socket of the kernel's of this protocol: those
    /// that differ from a new one.
    pub(in crate::socket) fn of_kernels(&self, number: c_int, domain: c_int) -> Vec<(c_int, c_int, Vec<u8>)> {
        let Ok(new) = History::of(self.protocol()).shadow(domain) else {
            return Vec::new();
        };
        let all = OPTIONS
            .iter()
            .flat_map(|(level, names)| names.iter().map(move |name| (*level, *name)));
        let set = all.filter_map(|(level, name)| {
            let value = value_of(number, level, name)?;
            (value_of(new.as_raw_fd(), level, name)? != value).then_some((level, name, value))
        });
        set.map(|(level, name, value)| (level, name, as_set(level, name, value)))
            .collect()
    }

    /// A socket of the kernel's with these options. It answers as the kernel would.
    pub(in crate::socket) fn shadow(&self, domain: c_int) -> Outcome<OwnedFd> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: the call takes numbers alone, and no pointer.
        let shadow = table::adopt(outcome(unsafe { next::socket(domain, kind, self.protocol()) })?);
        self.replay(shadow.as_raw_fd());
        Ok(shadow)
    }

    /// Sets the same of a socket of the kernel's.
    fn replay(&self, number: c_int) {
        for setting in &*self.settings() {
            let value = setting.value.as_ptr().cast::<c_void>();
            let len = setting.value.len() as socklen_t;
            // SAFETY: the value is as long as said. What the kernel does not take, it has not taken before.
            unsafe { next::setsockopt(number, setting.level, setting.name, value, len) };
        }
    }
}

/// Options that a socket of the kernel's may have from another process: all that it remembers.
const OPTIONS: [(c_int, &[c_int]); 4] = [
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_REUSEADDR,
            libc::SO_DONTROUTE,
            libc::SO_BROADCAST,
            libc::SO_SNDBUF,
            libc::SO_RCVBUF,
            libc::SO_KEEPALIVE,
            libc::SO_OOBINLINE,
            libc::SO_NO_CHECK,
            libc::SO_PRIORITY,
            libc::SO_LINGER,
            libc::SO_REUSEPORT,
            libc::SO_RCVLOWAT,
            libc::SO_RCVTIMEO,
            libc::SO_SNDTIMEO,
            libc::SO_BINDTODEVICE,
            libc::SO_TIMESTAMP,
            libc::SO_TIMESTAMPNS,
            libc::SO_MARK,
            libc::SO_TIMESTAMPING,
            libc::SO_RXQ_OVFL,
            libc::SO_WIFI_STATUS,
            libc::SO_PEEK_OFF,
            libc::SO_NOFCS,
            libc::SO_LOCK_FILTER,
            libc::SO_SELECT_ERR_QUEUE,
            libc::SO_BUSY_POLL,
            libc::SO_MAX_PACING_RATE,
            libc::SO_ZEROCOPY,
            libc::SO_TXTIME,
            // Those that libc does not name: SO_PREFER_BUSY_POLL, SO_BUSY_POLL_BUDGET, SO_RESERVE_MEM, SO_TXREHASH,
            // SO_RCVMARK.
            69,
            70,
            73,
            74,
            75,
        ],
    ),
    (
        libc::IPPROTO_IP,
        &[
            libc::IP_TOS,
            libc::IP_TTL,
            libc::IP_RECVOPTS,
            libc::IP_RETOPTS,
            libc::IP_PKTINFO,
            libc::IP_MTU_DISCOVER,
            libc::IP_RECVERR,
            libc::IP_RECVTTL,
            libc::IP_RECVTOS,
            libc::IP_FREEBIND,
            libc::IP_PASSSEC,
            libc::IP_TRANSPARENT,
            libc::IP_ORIGDSTADDR,
            libc::IP_MINTTL,
            libc::IP_CHECKSUM,
            libc::IP_BIND_ADDRESS_NO_PORT,
            libc::IP_RECVFRAGSIZE,
            libc::IP_MULTICAST_TTL,
            libc::IP_MULTICAST_LOOP,
            libc::IP_MULTICAST_ALL,
            libc::IP_UNICAST_IF,
            // IP_LOCAL_PORT_RANGE.
            51,
        ],
    ),
    (
        libc::IPPROTO_IPV6,
        &[
            libc::IPV6_UNICAST_HOPS,
            libc::IPV6_MULTICAST_HOPS,
            libc::IPV6_MULTICAST_LOOP,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_RECVERR,
            libc::IPV6_V6ONLY,
            libc::IPV6_FLOWINFO_SEND,
            libc::IPV6_RECVPKTINFO,
            libc::IPV6_RECVHOPLIMIT,
            libc::IPV6_RECVHOPOPTS,
            libc::IPV6_RECVRTHDR,
            libc::IPV6_RECVDSTOPTS,
            libc::IPV6_RECVPATHMTU,
            libc::IPV6_DONTFRAG,
            libc::IPV6_RECVTCLASS,
            libc::IPV6_TCLASS,
            libc::IPV6_AUTOFLOWLABEL,
            libc::IPV6_ADDR_PREFERENCES,
            libc::IPV6_MINHOPCOUNT,
            libc::IPV6_ORIGDSTADDR,
            libc::IPV6_TRANSPARENT,
            libc::IPV6_UNICAST_IF,
            libc::IPV6_RECVFRAGSIZE,
            libc::IPV6_FREEBIND,
        ],
    ),
    (
        libc::IPPROTO_TCP,
        &[
            libc::TCP_NODELAY,
            libc::TCP_MAXSEG,
            libc::TCP_CORK,
            libc::TCP_KEEPIDLE,
            libc::TCP_KEEPINTVL,
            libc::TCP_KEEPCNT,
            libc::TCP_SYNCNT,
            libc::TCP_LINGER2,
            libc::TCP_DEFER_ACCEPT,
            libc::TCP_WINDOW_CLAMP,
            libc::TCP_QUICKACK,
            libc::TCP_CONGESTION,
            libc::TCP_THIN_LINEAR_TIMEOUTS,
            libc::TCP_THIN_DUPACK,
            libc::TCP_USER_TIMEOUT,
            libc::TCP_FASTOPEN,
            // TCP_NOTSENT_LOWAT, TCP_SAVE_SYN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE, TCP_INQ, TCP_TX_DELAY,
            // TCP_RTO_MAX_MS, TCP_RTO_MIN_US, TCP_DELACK_MAX_US.
            25,
            27,
            30,
            34,
            36,
            37,
            44,
            45,
            46,
        ],
    ),
];

/// The kernel's value of an option.
fn value_of(number: c_int, level: c_int, name: c_int) -> Option<Vec<u8>> {
    let mut value = vec![0; 32];
    let mut len = value.len() as socklen_t;
    // SAFETY: `value` has room for `len` bytes, and is borrowed mutably for this call.
    let got = unsafe { next::getsockopt(number, level, name, value.as_mut_ptr().cast(), &mut len) };
    value.truncate(len as usize);
    (got == 0).then_some(value)
}

/// The value that was set, from the kernel's: Linux counts a buffer's bytes twice.
fn as_set(level: c_int, name: c_int, value: Vec<u8>) -> Vec<u8> {
    let is_buffer = level == libc::SOL_SOCKET && [libc::SO_SNDBUF, libc::SO_RCVBUF].contains(&name);
    match <[u8; 4]>::try_from(&*value) {
        Ok(bytes) if is_buffer => (c_int::from_ne_bytes(bytes) / 2).to_ne_bytes().to_vec(),
        _ => value,
    }
}
