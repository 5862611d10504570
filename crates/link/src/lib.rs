//! Transports for frames between nodes.
//!
//! A [`Link`] is for a driver what a network card is: burst receive, burst
//! transmit, and capabilities. It knows nothing of IP.

mod address_table;
pub mod bridge;
pub mod capture;
mod checksum;
pub mod credentials;
mod frame;
mod gso;
pub mod impair;
pub mod interface;
pub mod ivshmem;
mod layout;
pub mod loopback;
pub mod mq;
pub mod packet;
mod random;
pub mod steering;
pub mod tap;
#[cfg(test)]
mod test_cable;
#[cfg(test)]
mod test_frames;
pub mod udp;
mod virtio_net;
mod watch;
pub mod xdp;

pub use frame::{Checksum, Fence, MIN_PRIVATE, Offload, Received, Transmit, TransmitError, Transmitter};
pub use watch::Watch;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A link's capabilities, as a network card's driver would report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Capabilities {
    /// Largest IP packet in a plain frame, in bytes, without the Ethernet header.
    pub mtu: u16,
    /// Largest IP packet in a super-frame, in bytes. The link cuts super-frames
    /// into segments. Equal to `mtu` if the link carries none.
    pub super_frame: u32,
    /// Whether transport checksums may be left [`Checksum::Partial`].
    pub checksum_offload: bool,
    /// Whether the link never loses or delays frames on its own. The floor of the
    /// retransmission timer may then be lower (RFC 6298 §2.4 is for paths that
    /// cross networks).
    pub local: bool,
    /// Whether any thread may drive the link, or only the one that created it.
    pub any_thread: bool,
}

/// A way for frames to other nodes, driven by one thread at a time.
///
/// A driver's round: `receive`, pass the frames to the stack, let the stack
/// `transmit`, `flush`. To sleep, call `prepare_sleep`. If it returns true, wait
/// for `descriptor` to become readable, or for `longest_sleep` to pass, and call
/// `finish_sleep`.
pub trait Link: Transmitter + Send {
    /// Returns the link's capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Returns the link's own hardware address.
    fn address(&self) -> [u8; 6];

    /// Passes up to `budget` frames to `handler`, oldest first, and returns their
    /// number. Rarely also does the link's housekeeping. Time is in nanoseconds on
    /// the driver's monotonic clock.
    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize;

    /// Shows up to `most` of the next frames and takes none. A driver uses this to
    /// prefetch for several frames at once. The received frames may differ. A link
    /// that cannot look ahead shows nothing.
    fn look_ahead(&mut self, most: usize, see: &mut dyn FnMut(&Received<'_>)) {
        let _ = (most, see);
    }

    /// Returns whether `receive` would find nothing, at less cost than a call of
    /// it. For a thread that polls. May return false without need, but never true
    /// while there is work. With many neighbours this looks at the active ones, and
    /// `receive` at some others, too. Only `prepare_sleep` checks all.
    fn is_quiet(&self) -> bool {
        false
    }

    /// Publishes all frames transmitted since the last flush, and wakes
    /// sleepers.
    fn flush(&mut self);

    /// Returns a descriptor that becomes readable when frames or events arrive
    /// during sleep. Returns `None` if only time can end the sleep.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the longest sleep after which a driver must poll again, if nothing
    /// tells it of frames. Returns `None` if the descriptor tells.
    fn longest_sleep(&self) -> Option<Duration> {
        None
    }

    /// Announces that the driver will sleep. Returns `false` if something arrived
    /// meanwhile. The driver then runs another round, without `finish_sleep`.
    fn prepare_sleep(&mut self) -> bool;

    /// Ends an announced sleep and handles the wake-up.
    fn finish_sleep(&mut self, now_ns: u64);

    /// Returns the oldest unreported change among the link's neighbours, if the
    /// link notices any. `receive` and `finish_sleep` notice changes. A change that
    /// cuts a node off precedes anything from the node's next life.
    fn next_change(&mut self) -> Option<NeighborChange> {
        None
    }

    /// Notes that a node came or went behind this link's driver. A bridge tells
    /// each link of the nodes on the other one. For a link that has to know which
    /// senders to accept.
    fn note_beyond(&mut self, change: NeighborChange) {
        let _ = change;
    }

    /// Sets `watch` to the places where the next frames will appear. A thread can
    /// then look for frames while another thread, or none, drives. Returns `false`
    /// if the link cannot be watched now: drive it instead. A watch sees frames
    /// only. Poll the link itself now and then, and before sleeping.
    fn watch(&self, watch: &mut Watch) -> bool {
        watch.clear();
        false
    }
}

/// A change of a link's neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighborChange {
    /// Frames can reach the node with this hardware address from now on.
    Joined([u8; 6]),
    /// The node with this hardware address is gone, with all its state. A later
    /// node with this address is another one, or another life of it.
    Left([u8; 6]),
    /// The fabric gave a present node an IP address, which no other node may
    /// claim.
    Bound {
        /// The node's hardware address.
        mac: [u8; 6],
        /// The IP address.
        address: IpAddr,
    },
    /// The node with this IP address of the fabric is gone. No node answers at
    /// it.
    Unbound {
        /// The hardware address that the node had.
        mac: [u8; 6],
        /// The IP address.
        address: IpAddr,
    },
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn address(&self) -> [u8; 6] {
        (**self).address()
    }

    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        (**self).receive(now_ns, budget, handler)
    }

    fn look_ahead(&mut self, most: usize, see: &mut dyn FnMut(&Received<'_>)) {
        (**self).look_ahead(most, see);
    }

    fn is_quiet(&self) -> bool {
        (**self).is_quiet()
    }

    fn flush(&mut self) {
        (**self).flush();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        (**self).longest_sleep()
    }

    fn prepare_sleep(&mut self) -> bool {
        (**self).prepare_sleep()
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        (**self).finish_sleep(now_ns);
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        (**self).next_change()
    }

    fn note_beyond(&mut self, change: NeighborChange) {
        (**self).note_beyond(change);
    }

    fn watch(&self, watch: &mut Watch) -> bool {
        (**self).watch(watch)
    }
}
