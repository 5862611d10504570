//! A TAP device: a network interface of the kernel with its other end in this
//! process.
//!
//! The kernel receives frames that are transmitted here, and the link receives
//! frames that the kernel sends. Super-frames cross in both directions uncut and
//! checksums stay partial, as between a driver and a network card (`virtio_net/`).
//!
//! The device lasts as long as its descriptors. If another program sets it down or
//! deletes it, the result is a counted drop or
//! [`Unreachable`](crate::TransmitError::Unreachable). It never ends the process.

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

pub use crate::virtio_net::BadHeader;
