//! A network of the node's own: a namespace that no command has to name, make or remove.
//!
//! The engine process moves into it before it does anything else, and programs that run on the node
//! follow it. It ends with the last process in it, however that ends.

use rustix::process::{getegid, geteuid};
use toehold_link::interface::{Interface, InterfaceError, Namespace, NamespaceError, enter_new};

use super::device::{KERNEL_PORTS, PORT_RANGE};

/// The reason why there is no network of the node's own.
#[derive(Debug, thiserror::Error)]
pub enum OwnNetworkError {
    /// No namespace can be made.
    #[error("{0}; with --net host the program shares the host's network")]
    Namespace(#[from] NamespaceError),
    /// The loopback device of the namespace cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
}

/// Moves this process, which must have one thread only, into a new network namespace with a
/// loopback device. Without the right to that it makes itself a user namespace first,
/// in which its user and group stay what they are.
///
/// # Errors
///
/// If the system does not allow either.
pub fn enter_own_network() -> Result<(), OwnNetworkError> {
    enter_new(geteuid().as_raw(), getegid().as_raw())?;
    Interface::open(&Namespace::Own, "lo")?.set_up(true)?;
    let range = format!("{} {}", KERNEL_PORTS.start(), KERNEL_PORTS.end());
    // Where that is not allowed, there is what is left.
    let _ = std::fs::write(PORT_RANGE, range);
    Ok(())
}
