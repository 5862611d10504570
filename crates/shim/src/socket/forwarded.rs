//! Listeners of a process behind a filter of system calls: the kernel's, to which the engine
//! connects all who connect to the node's.

use core::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{IntoRawFd, OwnedFd};

use toehold_node::Callers;

use super::{Listener, Relayed, plain};
use crate::{inherited, next, table};

/// One of them. No call of its own goes to the node.
pub(crate) struct Forwarded {
    pub(crate) domain: c_int,
    at: IpAddr,
    /// For good: to give the memory back is a system call that the filter may not know.
    callers: &'static Callers,
    /// As long as somebody has it, the node's listener is open.
    holder: Option<OwnedFd>,
}

impl Forwarded {
    /// Has a listener's connections forwarded. `None`: it has the kernel's alone from now on.
    pub(crate) fn of(listener: &Listener, number: c_int) -> Option<Forwarded> {
        let descriptor = table::borrow(&number);
        listener.restore_mode(number);
        let name = rustix::net::getsockname(descriptor).ok()?;
        let at = SocketAddr::try_from(name).ok().map(plain)?;
        let callers = Callers::create()?;
        listener.inner.forward(descriptor, &callers).ok()?;
        Some(Forwarded {
            domain: listener.domain,
            at: at.ip(),
            callers: Box::leak(Box::new(callers)),
            holder: listener.pass_on().and_then(inherited::copy),
        })
    }

    /// The node's connection that is behind one of the kernel's, by its peer.
    pub(crate) fn behind(&self, peer: SocketAddr) -> Option<Relayed> {
        let is_engine = match self.at.is_unspecified() {
            true => peer.ip().is_loopback(),
            false => peer.ip() == self.at,
        };
        let ends = is_engine.then(|| self.callers.of(peer.port())).flatten()?;
        Some(Relayed::of_kernel(ends, self.domain))
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        // By nothing but the one system call, which is that of the program's call.
        if let Some(holder) = self.holder.take() {
            let number = holder.into_raw_fd();
            table::disown(number);
            // SAFETY: nobody else has it.
            unsafe { next::close(number) };
        }
    }
}
