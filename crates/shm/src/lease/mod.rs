//! The lease: a lock that one thread of all processes of a node holds at a time.
//!
//! [`Lease`] is the lock, [`Leased`] the values that only its holder may access. A thread that
//! spins for frames holds the lease all the time, because acquiring it would cost more than the
//! check for frames. Another thread that wants the lease sets a flag, which the spinner reads
//! between two checks.

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

/// The lease is not available any more: the node is dead, or the engine took this process for dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease was revoked: the node is dead, or this process was taken for dead")]
pub struct Revoked;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
