//! Why frames cannot be taken from an interface this way.

use rustix::io::Errno;

use super::Mode;
use crate::interface::NamespaceError;

/// Why AF_XDP is not to be had, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The right is missing.
    #[error("no permission to {0}: this takes CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF; run as root")]
    NotPermitted(&'static str),
    /// The kernel has no AF_XDP, or none of this kind.
    #[error(
        "the kernel does not {action}: {error} (it needs Linux 5.9, CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS)"
    )]
    Kernel {
        /// What was to be done.
        action: &'static str,
        /// What the kernel says.
        error: Errno,
    },
    /// Somebody else's program is there.
    #[error(
        "another XDP program is attached to {0} (`ip -d link show {0}` names it): detach it \
         (`ip link set {0} xdp off`, or end what attached it), or use --xdp off"
    )]
    Taken(String),
    /// Frames of the interface are longer than a place for one.
    #[error("its MTU {0} is more than {1}")]
    Mtu(u16, u16),
    /// The driver cannot do it.
    #[error("{mode} is not to be had: its driver does not {action} ({error})")]
    Mode {
        /// What was tried.
        mode: Mode,
        /// At what it failed.
        action: &'static str,
        /// What the kernel says.
        error: Errno,
    },
}
