//! An existing network interface of the kernel, through AF_XDP. Frames for nodes
//! leave the kernel's path before it allocates anything for them. They go directly
//! into memory of this process, without a copy if the interface's driver supports
//! that.
//!
//! The kernel runs a program (`program.rs`) for each frame. It looks for the
//! frame's destination among the nodes behind the link
//! ([`Link::note_beyond`](crate::Link::note_beyond)), and steers the frame to the
//! socket of its queue. Every other frame goes on to the kernel. A packet socket
//! ([`packet`](crate::packet)) gets copies of multicast frames. It also gets frames
//! that do not fit this memory: those of queues without a socket, and super-frames
//! of virtual interfaces.
//!
//! No work is left to the interface: frames are sent with checksums, and are cut.
//!
//! Closing the descriptors ends everything, even if the process is killed: the
//! program's attachment is one of them.

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
