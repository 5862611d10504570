//! Errors of AF_XDP.

use rustix::io::Errno;

use super::Mode;
use crate::interface::NamespaceError;

/// Reason for which AF_XDP is not available, with advice.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The process lacks the right.
    #[error("no permission to {0}: this takes CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF; run as root")]
    NotPermitted(&'static str),
    /// The kernel lacks AF_XDP, or this mode of it.
    #[error(
        "the kernel does not {action}: {error} (it needs Linux 5.9, CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS)"
    )]
    Kernel {
        /// The attempted step.
        action: &'static str,
        /// The kernel's error.
        error: Errno,
    },
    /// Another program is attached.
    #[error(
        "another XDP program is attached to {0} (`ip -d link show {0}` names it): detach it \
         (`ip link set {0} xdp off`, or end what attached it), or use --xdp off"
    )]
    Taken(String),
    /// The interface's frames exceed the longest buffer.
    #[error("its MTU {0} is more than {1}")]
    Mtu(u16, u16),
    /// The driver does not support the mode.
    #[error("{mode} is not available: its driver does not {action} ({error})")]
    Mode {
        /// The attempted mode.
        mode: Mode,
        /// The failed step.
        action: &'static str,
        /// The kernel's error.
        error: Errno,
    },
}
