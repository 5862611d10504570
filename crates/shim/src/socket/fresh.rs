//! Sockets that are neither connected nor listen yet.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::options::{Meaning, meaning};
use toehold_socket::{ConnectOptions, Node, Settings, SocketOption, TcpStream};

use super::{Stream, plain, replace};
use crate::file::File;
use crate::{node, table};

/// A TCP socket of which it is not known yet who will have it.
pub(crate) struct Fresh {
    pub(crate) domain: c_int,
    /// What the program has set, in its order.
    options: Mutex<Vec<Meaning>>,
    bound: AtomicBool,
    /// It is bound to something that only the kernel has.
    kernels: AtomicBool,
    /// Calls do not wait, whatever the kernel's socket says.
    nonblocking: AtomicBool,
}

impl Fresh {
    pub(crate) fn new(domain: c_int) -> Fresh {
        Fresh {
            domain,
            options: Mutex::default(),
            bound: AtomicBool::new(false),
            kernels: AtomicBool::new(false),
            nonblocking: AtomicBool::new(false),
        }
    }

    /// The kernel has taken an option. What it means to a node is kept; what means nothing to
    /// a node leaves the socket to the kernel, if it says which way packets go.
    pub(crate) fn note_option(&self, level: c_int, name: c_int, value: &[u8]) {
        match meaning(level, name, value) {
            Ok(meaning) => {
                let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
                options.push(meaning);
            }
            Err(_) if is_for_kernel(level, name) => self.kernels.store(true, Relaxed),
            Err(_) => {}
        }
    }

    /// It stands for one that is not the kernel's any more, and was in that mode.
    pub(crate) fn take_mode(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Relaxed);
    }

    pub(crate) fn note_bound(&self) {
        self.bound.store(true, Relaxed);
    }

    /// Whether only the kernel can do what the program has asked for.
    pub(crate) fn is_for_kernel(&self) -> bool {
        self.kernels.load(Relaxed)
    }

    /// The settings for the node's stack.
    pub(super) fn settings(&self, node: &Node) -> Outcome<Settings> {
        let mut settings = node.default_settings().map_err(Errno::from)?;
        let options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        for option in &*options {
            if let Meaning::Stack(option) = option {
                // The kernel has taken it; what this stack cannot do, it does without.
                let _ = settings.apply(*option);
            }
        }
        Ok(settings)
    }

    /// How many connections may be opened early (TCP_FASTOPEN), if any.
    pub(super) fn fast_open(&self) -> Option<u32> {
        let options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        options.iter().rev().find_map(|option| match option {
            Meaning::Stack(SocketOption::FastOpen(limit)) => Some(*limit),
            _ => None,
        })
    }

    /// The last that is not the stack's affair.
    pub(super) fn other_options(&self) -> Vec<Meaning> {
        let options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        let others = options
            .iter()
            .filter(|option| !matches!(option, Meaning::Stack(_)));
        others.copied().collect()
    }

    /// Where the kernel has bound the socket, if it is bound.
    pub(super) fn local(&self, number: c_int) -> Option<SocketAddr> {
        if !self.bound.load(Relaxed) {
            return None;
        }
        let name = rustix::net::getsockname(table::borrow(&number)).ok()?;
        SocketAddr::try_from(name).ok().map(plain)
    }

    /// Whether the kernel lets a connection leave from where the socket is bound to.
    pub(crate) fn may_leave(&self, number: c_int) -> bool {
        let local = self.local(number).map(|local| local.ip());
        !self.is_for_kernel() && local.is_none_or(node::listens)
    }

    /// Connects it to an address of the node's part of the world.
    pub(crate) fn connect(&self, file: &File, number: c_int, to: SocketAddr) -> Outcome<c_int> {
        let node = node::get().ok_or(Errno::NETDOWN)?;
        let options = ConnectOptions {
            local: self.local(number),
            timeout: None,
            settings: Some(self.settings(node)?),
        };
        let begun = TcpStream::begin(node, &target(to), &options).map_err(Errno::from)?;
        let stream = Stream::connecting(begun, self.domain);
        for option in self.other_options() {
            stream.apply(option)?;
        }
        let nonblocking = self.nonblocking.load(Relaxed) || is_nonblocking(table::borrow(&number));
        stream.set_nonblocking(nonblocking);
        let file = replace(file, number, stream)?;
        match file.stream() {
            Some(stream) => stream.finish_connect(nonblocking),
            None => Err(Errno::BADF),
        }
    }
}

/// `connect` to no address at all is to this host.
fn target(to: SocketAddr) -> SocketAddr {
    match to.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (std::net::Ipv4Addr::LOCALHOST, to.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (std::net::Ipv6Addr::LOCALHOST, to.port()).into(),
        _ => to,
    }
}

pub(crate) fn is_nonblocking(descriptor: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Options that no node has, and whose absence would change where packets go.
fn is_for_kernel(level: c_int, name: c_int) -> bool {
    (level, name) == (libc::SOL_SOCKET, libc::SO_BINDTODEVICE)
        || (level == libc::IPPROTO_IP && [libc::IP_TRANSPARENT, libc::IP_OPTIONS].contains(&name))
}

/// A span of a `timeval` option as the node's sockets have it.
pub(super) fn limit(span: Duration) -> Option<Duration> {
    (!span.is_zero()).then_some(span)
}
