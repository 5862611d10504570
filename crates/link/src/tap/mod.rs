//! A TAP device: a network interface of the kernel whose cable ends in this process.
//!
//! What is transmitted here, the kernel receives; what the kernel sends over the
//! interface is received here. Super-frames cross in both directions unsegmented,
//! checksums stay undone, as between a driver and a network card (`vnet.rs`).
//!
//! The device lasts as long as its descriptors. What somebody else does to it (sets it
//! down, deletes it) is a counted drop or [`Unreachable`](crate::TransmitError::Unreachable),
//! never an end of the process.

mod device;
mod error;
mod offloads;
mod queue;
mod settings;
mod statistics;
#[cfg(test)]
mod tests;

pub use error::TapError;
pub use offloads::Offloads;
pub use queue::Tap;
pub use settings::{MAX_MTU, MIN_MTU, TapDescription, TapSettings};
pub use statistics::TapStatistics;

pub use crate::vnet::BadHeader;
