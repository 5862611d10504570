//! Frames through one piece of memory that all members map: between virtual machines that
//! share an ivshmem device, or between processes that cannot hand descriptors to each other.
//!
//! The memory is a [segment](toehold_shm::ring::segment). Each member has a number in it,
//! which it claims, and keeps by saying now and then that it lives; one that has said
//! nothing for [`STALE_NS`] is gone, and its number may be taken. Who has whose address is
//! learned from frames, as a switch does; what is for all is copied for each, and one that
//! makes no room misses it.
//!
//! Nobody can be woken: there are no descriptors, and the interrupts of ivshmem are not to be
//! had everywhere. So a member that waits looks again and again, and less often the longer
//! nothing has come ([`Link::longest_sleep`](crate::Link::longest_sleep)): a pause is at most
//! a quarter of the time that nothing has been carried, between 20 µs and 4 ms.
//!
//! A member can disturb the traffic of all others, as it can write all of the memory, but it
//! can do them no other harm. What it breaks is begun anew.
//!
//! ```no_run
//! use toehold_link::shared::{SharedLink, SharedSettings};
//!
//! // In a virtual machine: the memory of its ivshmem device.
//! let memory = "/sys/bus/pci/devices/0000:00:04.0/resource2";
//! let link = SharedLink::open(&SharedSettings::new(memory, [2, 0, 0, 0, 0, 1]))?;
//! println!("member {:?}", link.member());
//! # Ok::<(), toehold_link::shared::SharedError>(())
//! ```

mod error;
mod link;
mod peer;
mod record;
mod settings;
mod statistics;
#[cfg(test)]
mod tests;
mod vigil;

pub use self::error::SharedError;
pub use self::link::SharedLink;
pub use self::settings::SharedSettings;
pub use self::statistics::{SharedPeerInfo, SharedPeerStatistics, SharedStatistics};
pub use self::vigil::STALE_NS;
pub use toehold_shm::ring::segment::Part;
