//! Frames through one memory that all members map: between virtual machines with an
//! ivshmem device, or between processes that cannot pass descriptors to each other.
//!
//! The memory is a [segment](toehold_shm::ring::segment). Each member claims a
//! number in it, and keeps it by a regular sign of life. After [`STALE_NS`] without
//! one, the member is gone and its number may be taken. As in a switch, addresses
//! are learnt from frames. A multicast frame is copied for each member, and a full
//! member misses it.
//!
//! No member can be woken: there are no descriptors, and ivshmem interrupts are not
//! available everywhere. A waiting member polls, less often the longer no frame has
//! come ([`Link::longest_sleep`](crate::Link::longest_sleep)). A pause is at most a
//! quarter of the idle time, between 20 µs and 4 ms.
//!
//! A member can write all of the memory, and so can disturb the traffic of all
//! others. It can do no other harm. A broken session is replaced by a new one.
//!
//! ```no_run
//! use toehold_link::ivshmem::{IvshmemLink, IvshmemSettings};
//!
//! // In a virtual machine: the memory of its ivshmem device.
//! let memory = "/sys/bus/pci/devices/0000:00:04.0/resource2";
//! let link = IvshmemLink::open(&IvshmemSettings::new(memory, [2, 0, 0, 0, 0, 1]))?;
//! println!("member {:?}", link.member());
//! # Ok::<(), toehold_link::ivshmem::IvshmemError>(())
//! ```

mod error;
mod link;
mod liveness;
mod peer;
mod record;
mod settings;
mod statistics;
#[cfg(test)]
mod tests;

pub use self::error::IvshmemError;
pub use self::link::IvshmemLink;
pub use self::liveness::STALE_NS;
pub use self::settings::IvshmemSettings;
pub use self::statistics::{IvshmemPeerInfo, IvshmemPeerStatistics, IvshmemStatistics};
pub use toehold_shm::ring::segment::Part;
