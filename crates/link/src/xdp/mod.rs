//! A network interface of the kernel that is there already, through AF_XDP: frames for nodes
//! leave the kernel's path before it makes anything of them, straight into memory of this
//! process, without a copy where the interface's driver can.
//!
//! A program that the kernel runs for each frame (`program.rs`) looks for its destination
//! among the nodes that are said to be beyond the link
//! ([`Link::note_beyond`](crate::Link::note_beyond)), and gives it to the socket of the queue
//! that it came from. Every other frame goes on to the kernel as if nothing were there. Those
//! for groups are for both: of them a packet socket beside has copies ([`packet`](crate::packet)),
//! and it has what cannot be put into this memory, too: frames that are too long, as virtual
//! interfaces hand them on, or of queues without a socket.
//!
//! Nothing is left to the interface on this way: frames have checksums, and are cut.
//!
//! All ends with its descriptors, also if the process is killed: what attaches the program is
//! one of them.

mod bpf;
mod error;
mod link;
mod program;
mod ring;
mod socket;
mod statistics;
#[cfg(test)]
mod tests;

pub use error::XdpError;
pub use link::{Mode, XdpLink};
pub use statistics::XdpStatistics;
