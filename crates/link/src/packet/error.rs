//! Errors of a packet socket.

use rustix::io::Errno;

use crate::interface::{InterfaceError, NamespaceError};

/// Reason for which an interface cannot become a link, with advice.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// There is no such interface.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The interface does not carry Ethernet.
    #[error("the interface {0} does not carry Ethernet frames (`ip link show {0}` says what it is)")]
    NotEthernet(String),
    /// The process lacks the right.
    #[error(
        "no permission to take frames from {0}: this takes CAP_NET_RAW and CAP_NET_ADMIN in its network \
         namespace; run as root"
    )]
    NotPermitted(String),
    /// The kernel refuses a step for another reason.
    #[error("cannot {action} of the interface {interface}: {error}")]
    System {
        /// The attempted step.
        action: &'static str,
        /// Name of the interface.
        interface: String,
        /// The kernel's error.
        error: Errno,
    },
}
