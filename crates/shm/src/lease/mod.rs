//! The lease: at any time one thread, of all processes of a node, has it.
//!
//! [`Lease`] is who has it, [`Leased`] what one may only touch with it. A thread
//! that spins for frames holds it all the time, because taking it for every look
//! would cost more than the look. So whoever wants the lease says so, and a spinner
//! asks between two looks whether somebody does.

#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod leased;
#[cfg(not(loom))]
mod leaving;
mod protocol;
#[cfg(not(loom))]
mod stopped;

#[cfg(not(loom))]
pub use handle::{Lease, Vigil};
#[cfg(not(loom))]
pub use leased::{Farewell, LeaseGuard, Leased};
#[cfg(not(loom))]
pub use leaving::{begin_to_leave, stay};
pub(crate) use protocol::Side;

/// The lease cannot be had any more: the node is dead, or this process was taken
/// for dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease was revoked: the node is dead, or this process was taken for dead")]
pub struct Revoked;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
