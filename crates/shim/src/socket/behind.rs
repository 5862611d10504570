//! The peers behind connections of the kernel's that the engine has made to this process's listeners, on
//! behalf of the node's peers.

use core::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use toehold_node::{Callers, Forwarded};
use toehold_socket::TcpListener;

use super::{Relayed, plain};
use crate::table;

/// The peers of one listener that the engine forwards to the kernel's.
#[derive(Clone, Copy)]
pub(crate) struct ForwardedPeers {
    domain: c_int,
    at: IpAddr,
    callers: &'static Callers,
}

impl ForwardedPeers {
    /// Has the engine connect the peers of the node's listener to the kernel's listener beside it. Returns
    /// `None` if it cannot.
    pub(super) fn forward(
        listener: &TcpListener,
        domain: c_int,
        number: c_int,
        which: Forwarded,
    ) -> Option<ForwardedPeers> {
        let descriptor = table::borrow(&number);
        let at = SocketAddr::try_from(rustix::net::getsockname(descriptor).ok()?).ok()?;
        let callers = callers()?;
        listener.forward(descriptor, callers, which).ok()?;
        Some(ForwardedPeers {
            domain,
            at: plain(at).ip(),
            callers,
        })
    }

    /// The node's connection that is behind one of the kernel's, by its peer.
    pub(crate) fn connection(&self, peer: SocketAddr) -> Option<Relayed> {
        let is_engine = match self.at.is_unspecified() {
            true => peer.ip().is_loopback(),
            false => peer.ip() == self.at,
        };
        let ends = is_engine.then(|| self.callers.of(peer.port())).flatten()?;
        Some(Relayed::of_kernel(ends, self.domain))
    }
}

/// The table of all listeners of this process and its children. It is never freed: that would be a system
/// call that a filter may not know.
fn callers() -> Option<&'static Callers> {
    static CALLERS: OnceLock<Option<Callers>> = OnceLock::new();
    CALLERS.get_or_init(Callers::create).as_ref()
}
