//! Sockets that are neither connected nor listen yet.

use core::ffi::c_int;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use libc::socklen_t;
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, sockopt};
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::options::Meaning;
use toehold_socket::{ConnectOptions, Node, Settings, SocketOption, TcpStream};

use super::options::is_kernels_alone;
use super::owner::Owner;
use super::ports::Ports;
use super::{History, InheritedListener, Stream, plain, replace};
use crate::file::File;
use crate::{next, node, relay, table};

/// The pace of a call that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The call waits, unless the socket says otherwise.
    Waits,
    /// The call does not wait, whatever the socket says.
    AtOnce,
    /// The call sends, and the SYN waits for its bytes.
    WithData,
}

/// A TCP socket before `connect` or `listen`.
pub(crate) struct UnconnectedSocket {
    pub(crate) domain: c_int,
    pub(super) history: History,
    bound: AtomicBool,
    /// Whether the program has left the choice of the bound port to the kernel.
    any_port: AtomicBool,
    /// Whether the program knows the bound address.
    named: AtomicBool,
    /// Whether the program has done something to the socket that only the kernel knows of.
    kernels: AtomicBool,
    /// Whether another process may have the socket, too.
    shared: AtomicBool,
    /// Whether the kernel has begun to connect it, and the program has not been told the outcome.
    attempted: AtomicBool,
    /// The port of the connection that it was before, which it does not have any more; 0: there was none.
    former_port: AtomicU16,
}

impl UnconnectedSocket {
    pub(crate) fn new(domain: c_int, protocol: c_int) -> UnconnectedSocket {
        UnconnectedSocket {
            domain,
            history: History::of(protocol),
            bound: AtomicBool::new(false),
            any_port: AtomicBool::new(false),
            named: AtomicBool::new(false),
            kernels: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            attempted: AtomicBool::new(false),
            former_port: AtomicU16::new(0),
        }
    }

    /// The socket that another process has made, if a descriptor is a TCP socket that is neither
    /// connected nor listens.
    pub(crate) fn at(number: c_int) -> Option<UnconnectedSocket> {
        let descriptor = table::borrow(&number);
        let family = sockopt::socket_domain(descriptor);
        let is_tcp = [Ok(AddressFamily::INET), Ok(AddressFamily::INET6)].contains(&family)
            && UnconnectedSocket::is_carried(protocol_of(number));
        (is_tcp && is_closed(number)).then(|| UnconnectedSocket::found(number))
    }

    /// Whether a node carries streams of a protocol. One of MPTCP's goes on as TCP where the peer does not know
    /// of MPTCP, as no node does.
    pub(crate) fn is_carried(protocol: c_int) -> bool {
        [0, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP].contains(&protocol)
    }

    /// A socket with the settings of another process.
    pub(super) fn found(number: c_int) -> UnconnectedSocket {
        let fresh = UnconnectedSocket::new(InheritedListener::domain_of(number), protocol_of(number));
        for (level, name, value) in fresh.history.of_kernels(number, fresh.domain) {
            fresh.note_option(level, name, &value);
        }
        let name = rustix::net::getsockname(table::borrow(&number)).ok();
        let local = name.and_then(|name| SocketAddr::try_from(name).ok());
        if local.is_some_and(|local| local.port() != 0 || !local.ip().is_unspecified()) {
            fresh.note_bound(false);
        }
        fresh.note_shared();
        fresh
    }

    /// A socket in the place of another, with that one's settings, and bound, if that one was.
    pub(super) fn again(domain: c_int, history: &History, bound: bool) -> UnconnectedSocket {
        UnconnectedSocket {
            history: history.copy(),
            bound: AtomicBool::new(bound),
            ..UnconnectedSocket::new(domain, 0)
        }
    }

    /// Keeps an option that the kernel has taken. An option that means nothing to a node leaves the
    /// socket to the kernel, if it says which way packets go.
    pub(crate) fn note_option(&self, level: c_int, name: c_int, value: &[u8]) {
        self.history.note(level, name, value);
    }

    /// Notes the port of a connection that is over, which the program is told.
    pub(super) fn note_former_port(&self, port: u16) {
        self.former_port.store(port, Relaxed);
    }

    pub(crate) fn former_port(&self) -> u16 {
        self.former_port.load(Relaxed)
    }

    /// Notes that the socket is bound, to a port of the kernel's choice if the program has asked
    /// for `any_port`.
    pub(crate) fn note_bound(&self, any_port: bool) {
        self.bound.store(true, Relaxed);
        self.any_port.store(any_port, Relaxed);
    }

    /// Notes that the program is told where the socket is bound to.
    pub(crate) fn note_named(&self) {
        self.named.store(true, Relaxed);
    }

    /// Notes that another process is about to have the socket, too.
    pub(crate) fn note_shared(&self) {
        self.shared.store(true, Relaxed);
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Relaxed)
    }

    /// Notes whether the kernel is connecting the socket. The attempt is over once the program has
    /// been told what became of it.
    pub(crate) fn note_attempt(&self, goes_on: bool) {
        self.attempted.store(goes_on, Relaxed);
    }

    pub(crate) fn is_attempted(&self) -> bool {
        self.attempted.load(Relaxed)
    }

    /// Notes that the program has shut the socket before there was anything to be shut, which only
    /// the kernel knows of.
    pub(crate) fn note_shut(&self) {
        self.kernels.store(true, Relaxed);
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.bound.load(Relaxed)
    }

    /// Returns whether only the kernel can fulfil the program's requests.
    pub(crate) fn is_for_kernel(&self) -> bool {
        self.kernels.load(Relaxed) || self.history.any(is_for_kernel)
    }

    /// Whether IPv4 addresses are not to be written as IPv6 ones.
    pub(crate) fn is_only_ipv6(number: c_int) -> bool {
        sockopt::ipv6_v6only(table::borrow(&number)) == Ok(true)
    }

    /// The settings for the node's stack.
    pub(super) fn settings(&self, node: &Node) -> Outcome<Settings> {
        let mut settings = node.default_settings().map_err(Errno::from)?;
        for option in self.history.meanings() {
            if let Meaning::Stack(option) = option {
                // The kernel has taken it; what this stack cannot do, it does without.
                let _ = settings.apply(option);
            }
        }
        Ok(settings)
    }

    /// The options that are a listener's own, and not its connections'.
    pub(super) fn of_listener(&self) -> Vec<SocketOption> {
        let options = self.history.meanings().into_iter();
        let own = options.filter_map(|option| match option {
            Meaning::Stack(option @ (SocketOption::FastOpen(_) | SocketOption::DeferAccept(_))) => {
                Some(option)
            }
            _ => None,
        });
        own.collect()
    }

    /// Whether the program has asked for `connect` to leave the SYN to the first bytes (TCP_FASTOPEN_CONNECT).
    fn opens_early(&self) -> bool {
        let asked = self.history.switch(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
        asked == Some(true)
    }

    /// The latest of each option that is not the stack's.
    pub(super) fn other_options(&self) -> Vec<Meaning> {
        self.history.other_meanings()
    }

    /// The ports from which it may leave, if the program has said so.
    fn ports(&self) -> Option<Ports> {
        let options = self.history.meanings();
        options.into_iter().find_map(|option| match option {
            Meaning::LocalPorts(0, 0) => None,
            Meaning::LocalPorts(first, last) => Some(Ports::within_systems(first, last)),
            _ => None,
        })
    }

    /// The address to which the kernel has bound the socket, if it is bound.
    pub(super) fn local(&self, number: c_int) -> Option<SocketAddr> {
        if !self.bound.load(Relaxed) {
            return None;
        }
        let name = rustix::net::getsockname(table::borrow(&number)).ok()?;
        SocketAddr::try_from(name).ok().map(plain)
    }

    /// Whether a connection of the node's has the port that the program wants to bind the socket
    /// to. The kernel knows the ports of listeners and other sockets, but not those of the node's
    /// connections.
    pub(crate) fn is_port_taken(&self, number: c_int, at: SocketAddr) -> bool {
        let descriptor = table::borrow(&number);
        let is_shared = sockopt::socket_reuseport(descriptor) == Ok(true);
        if at.port() == 0 || self.is_bound() || is_shared || !node::listens(at.ip()) {
            return false;
        }
        let reuses = sockopt::socket_reuseaddr(descriptor) == Ok(true);
        let of_both = at.ip().is_unspecified() && at.is_ipv6() && !UnconnectedSocket::is_only_ipv6(number);
        let ipv4 = of_both.then(|| SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), at.port()));
        let mut places = ipv4.into_iter().chain([at]);
        places.any(|at| {
            let taken = node::with(|node| node.is_port_taken(at, reuses).map_err(Errno::from));
            taken == Ok(true)
        })
    }

    /// Whether the kernel lets a connection leave from where the socket is bound to.
    pub(crate) fn may_leave(&self, number: c_int) -> bool {
        self.catch_up(number);
        let local = self.local(number).map(|local| local.ip());
        !self.is_for_kernel() && local.is_none_or(node::listens)
    }

    /// Takes over the options that another process has set of the socket meanwhile, which the
    /// kernel knows.
    pub(super) fn catch_up(&self, number: c_int) {
        if self.is_shared() {
            for (level, name, value) in self.history.of_kernels(number, self.domain) {
                self.note_option(level, name, &value);
            }
        }
    }

    /// Connects it to an address of the node's part of the world.
    pub(crate) fn connect(&self, file: &File, number: c_int, to: SocketAddr, pace: Pace) -> Outcome<c_int> {
        let begin = |local: Option<SocketAddr>| {
            node::with(|node| {
                let options = ConnectOptions {
                    local,
                    timeout: None,
                    settings: Some(self.settings(node)?),
                    with_data: pace == Pace::WithData,
                    over_tcp: self.opens_early(),
                };
                TcpStream::begin(node, &target(to), &options).map_err(Errno::from)
            })
        };
        let local = self.local(number);
        // The kernel, which has chosen the port, knows nothing of the node's connections.
        let may_be_another = self.any_port.load(Relaxed) && !self.named.load(Relaxed);
        let begun = match (self.ports(), local) {
            (Some(ports), None) => ports.first_free(target(to).ip(), |local| begin(Some(local))),
            _ => begin(local),
        };
        let begun = match (begun, local) {
            (Err(Errno::ADDRINUSE), Some(local)) if may_be_another => {
                begin(Some(SocketAddr::new(local.ip(), 0)))
            }
            // As the kernel calls a pair of ends that is taken.
            (Err(Errno::ADDRINUSE), Some(_)) => Err(Errno::ADDRNOTAVAIL),
            (begun, _) => begun,
        }?;
        let stream = Stream::connecting(begun, self);
        if let Some(local) = local {
            stream.history.note_bound(local.ip());
        }
        for option in self.other_options() {
            stream.apply(option)?;
        }
        let flags = rustix::fs::fcntl_getfl(table::borrow(&number)).unwrap_or(OFlags::empty());
        let nonblocking = flags.contains(OFlags::NONBLOCK);
        stream.set_nonblocking(nonblocking);
        let owner = Owner::of(number, flags);
        let made = replace(file, number, stream)?;
        crate::epoll::moved(file, &made);
        let connected = match made.stream() {
            Some(stream) if pace == Pace::WithData || (self.opens_early() && stream.is_deferred()) => {
                Ok(stream.note_deferred())
            }
            Some(stream) => stream.finish_connect(nonblocking || pace == Pace::AtOnce),
            None => Err(Errno::BADF),
        };
        if let Some(owner) = owner {
            self.pass_on(&owner, &made, number, connected.is_ok());
        }
        connected
    }

    /// Makes the owner of the socket that of its connection.
    #[cold]
    fn pass_on(&self, owner: &Owner, made: &File, number: c_int, is_connected: bool) {
        owner.has(number);
        if let Some(stream) = made.stream() {
            stream.note_marked();
        }
        if owner.is_told_all && is_connected {
            relay::to_kernel(number);
        } else if let Some(stream) = made.stream() {
            stream.signal_owner(number);
        }
    }
}

/// The protocol of a socket of the kernel's; less than zero if the kernel does not say.
fn protocol_of(number: c_int) -> c_int {
    let protocol = sockopt::socket_protocol(table::borrow(&number));
    protocol.map_or(-1, |protocol| {
        protocol.map_or(0, |protocol| protocol.as_raw().get().cast_signed())
    })
}

/// Whether the kernel's socket is in no state of a connection's.
fn is_closed(number: c_int) -> bool {
    /// TCP_CLOSE.
    const CLOSED: u8 = 7;
    let mut info = [0; offset_of!(libc::tcp_info, tcpi_state) + 1];
    let mut len = info.len() as socklen_t;
    // SAFETY: `info` is a local of `len` bytes, to which the kernel writes during this call alone.
    let got = unsafe {
        next::getsockopt(
            number,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut len,
        )
    };
    got == 0 && info.last() == Some(&CLOSED)
}

/// The address to connect to: no address at all is this host's.
fn target(to: SocketAddr) -> SocketAddr {
    match to.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (std::net::Ipv4Addr::LOCALHOST, to.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (std::net::Ipv6Addr::LOCALHOST, to.port()).into(),
        _ => to,
    }
}

/// Options that no node has, and whose absence would change where packets go, or whose they are.
fn is_for_kernel(level: c_int, name: c_int, value: &[u8]) -> bool {
    is_kernels_alone(level, name, value).is_some()
}

/// A span of a `timeval` option in the form of the node's sockets.
pub(super) fn limit(span: Duration) -> Option<Duration> {
    (!span.is_zero()).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SO_BINDTOIFINDEX, which libc does not name.
    const SO_BINDTOIFINDEX: c_int = 62;

    #[test]
    fn who_is_bound_to_no_device_is_not_the_kernels() {
        let fresh = UnconnectedSocket::new(libc::AF_INET, 0);
        let bind = |name: &[u8]| fresh.note_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name);
        for (name, is_kernels) in [
            (&b""[..], false),
            (&[0; 4], false),
            (b"lo\0", true),
            (b"\0lo", false),
        ] {
            bind(name);
            assert_eq!(fresh.is_for_kernel(), is_kernels, "{name:?}");
        }
        fresh.note_option(libc::SOL_SOCKET, SO_BINDTOIFINDEX, &256_i32.to_ne_bytes());
        assert!(fresh.is_for_kernel());
        fresh.note_option(libc::SOL_SOCKET, SO_BINDTOIFINDEX, &0_i32.to_ne_bytes());
        fresh.note_option(libc::SOL_SOCKET, libc::SO_MARK, &7_i32.to_ne_bytes());
        assert!(!fresh.is_for_kernel());
    }
}
