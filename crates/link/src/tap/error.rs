//! Errors of a TAP device.

use rustix::io::Errno;

use crate::interface::{InterfaceError, NamespaceError};

use super::settings::{MAX_MTU, MIN_MTU};

/// Reason for which a TAP device could not be created, with advice.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The kernel has no TAP devices, or the container lacks the device.
    #[error(
        "/dev/net/tun is not there: load the module (`modprobe tun`); in a container, hand the device in \
         (`--device /dev/net/tun`)"
    )]
    NoDriver,
    /// The device file cannot be opened.
    #[error("no permission to open /dev/net/tun: run as root, or `chmod 666 /dev/net/tun`")]
    NoAccess,
    /// The process lacks the right to create a device in this namespace.
    #[error(
        "no permission to make the network interface {0}: this takes CAP_NET_ADMIN in its network namespace; \
         run as root, or in a namespace of its own (`unshare --map-root-user --net`)"
    )]
    NotPermitted(String),
    /// Another program has an interface of this name.
    #[error(
        "there is a network interface {0} already: choose another name, or end the program that has it \
         (`ip -d link show {0}` says what it is; `ip link delete {0}` removes it, if no program needs it)"
    )]
    NameTaken(String),
    /// The MTU exceeds the bounds of TAP devices.
    #[error("MTU {0} is not between {MIN_MTU} and {MAX_MTU}")]
    BadMtu(u16),
    /// The address is multicast or zero.
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
        /// The attempted step.
        action: &'static str,
        /// Name of the device.
        name: String,
        /// The kernel's error.
        error: Errno,
    },
}
