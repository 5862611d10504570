//! An existing network interface of the kernel, real or one of a veth pair. Frames
//! cross a packet socket (AF_PACKET).
//!
//! The link takes the frames for the nodes behind it
//! ([`Link::note_beyond`](crate::Link::note_beyond)), and copies of multicast
//! frames. All other frames stay the kernel's, which ignores frames for the nodes,
//! as they are not for its own address. As with macvlan, the host of the interface
//! and the nodes do not reach each other over it.
//!
//! Super-frames cross in both directions uncut, and checksums stay partial where
//! the interface completes them (`virtio_net/`). Frames with a VLAN tag stay with the
//! kernel and its VLAN interface, which can have a link of its own.
//!
//! Closing the last descriptor undoes all changes: the address filter belongs to
//! the socket. If another program sets the interface down or removes it, frames are
//! dropped and counted. It never ends the process.

mod error;
mod filter;
mod link;
mod socket;
mod statistics;
#[cfg(test)]
mod tests;

pub use error::PacketError;
pub use link::PacketLink;
pub use statistics::PacketStatistics;
