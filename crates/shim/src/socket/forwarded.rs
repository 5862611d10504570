//! Listeners of a process behind a filter of system calls, or of one that wants signals. They are the
//! kernel's; the engine connects all peers of the node's listener to them.

use core::ffi::c_int;
use std::os::fd::{IntoRawFd, OwnedFd};

use toehold_node::Forwarded as Which;

use super::{ForwardedPeers, Listener};
use crate::{next, node, table};

/// A forwarded listener. No call of its own goes to the node.
pub(crate) struct Forwarded {
    pub(crate) domain: c_int,
    pub(crate) behind: ForwardedPeers,
    /// The holder. As long as any process has it, the node's listener is open.
    holder: Option<OwnedFd>,
}

impl Forwarded {
    /// Has a listener's connections forwarded. Returns `None` if it has the kernel's alone from now
    /// on.
    pub(crate) fn of(listener: &Listener, number: c_int) -> Option<Forwarded> {
        listener.mode.restore(number);
        Some(Forwarded {
            domain: listener.domain,
            behind: ForwardedPeers::forward(&listener.inner, listener.domain, number, Which::All)?,
            holder: listener.pass_on().and_then(node::copy),
        })
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        // By nothing but the one system call, which is that of the program's call.
        if let Some(holder) = self.holder.take() {
            let number = holder.into_raw_fd();
            table::disown(number);
            // SAFETY: `number` was just taken out of `holder`, so this is its only close.
            unsafe { next::close(number) };
        }
    }
}
