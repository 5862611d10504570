//! A network interface of the kernel that is there already, a real one or one of a veth
//! pair: frames through a packet socket (AF_PACKET).
//!
//! The link takes the frames for the nodes that are said to be beyond it
//! ([`Link::note_beyond`](crate::Link::note_beyond)), and copies of those for groups. All
//! else that the interface carries stays the kernel's, which ignores what is for the nodes,
//! as it is not for its own address. So the host of the interface and the nodes do not reach
//! each other over it, as is so with macvlan.
//!
//! Super-frames cross in both directions unsegmented, checksums stay undone where the
//! interface does them (`vnet/`). Frames with a VLAN tag are left to the kernel and its
//! interface of that VLAN, which can be given to this link instead.
//!
//! With the last descriptor goes all that was changed: the filter of addresses is the
//! socket's. What somebody else does to the interface (sets it down, removes it) is a counted
//! drop, never an end of the process.

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
