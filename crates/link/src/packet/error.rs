//! Why frames cannot be taken from an interface.

use rustix::io::Errno;

use crate::interface::{InterfaceError, NamespaceError};

/// Why an interface does not become a link, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// There is no such interface.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// It carries something else than Ethernet.
    #[error("the interface {0} does not carry Ethernet frames (`ip link show {0}` says what it is)")]
    NotEthernet(String),
    /// The right is missing.
    #[error(
        "no permission to take frames from {0}: this takes CAP_NET_RAW and CAP_NET_ADMIN in its network \
         namespace; run as root"
    )]
    NotPermitted(String),
    /// The kernel refuses a step for another reason.
    #[error("cannot {action} of the interface {interface}: {error}")]
    System {
        /// What was to be done.
        action: &'static str,
        /// To which interface.
        interface: String,
        /// What the kernel says.
        error: Errno,
    },
}
