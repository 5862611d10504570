//! Why there is no TAP device.

use rustix::io::Errno;

use crate::interface::{InterfaceError, NamespaceError};

use super::settings::{MAX_MTU, MIN_MTU};

/// Why a TAP device could not be made, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The kernel has no TAP devices, or the container was not given them.
    #[error(
        "/dev/net/tun is not there: load the module (`modprobe tun`); in a container, hand the device in \
         (`--device /dev/net/tun`)"
    )]
    NoDriver,
    /// The file cannot be opened.
    #[error("no permission to open /dev/net/tun: run as root, or `chmod 666 /dev/net/tun`")]
    NoAccess,
    /// The right to make a device in this namespace is missing.
    #[error(
        "no permission to make the network interface {0}: this takes CAP_NET_ADMIN in its network namespace; \
         run as root, or in a namespace of its own (`unshare --map-root-user --net`)"
    )]
    NotPermitted(String),
    /// Somebody else has the name.
    #[error(
        "there is a network interface {0} already: choose another name, or end the program that has it \
         (`ip -d link show {0}` says what it is; `ip link delete {0}` removes it, if nobody needs it)"
    )]
    NameTaken(String),
    /// An MTU outside of what TAP devices can have.
    #[error("MTU {0} is not between {MIN_MTU} and {MAX_MTU}")]
    BadMtu(u16),
    /// A group address, or none at all.
    #[error("{0:02x?} is not the hardware address of one interface")]
    BadAddress([u8; 6]),
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The interface cannot be configured.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The kernel refuses a step for another reason.
    #[error("cannot {action} of the TAP device {name}: {error}")]
    System {
        /// What was to be done.
        action: &'static str,
        /// To which device.
        name: String,
        /// What the kernel says.
        error: Errno,
    },
}
