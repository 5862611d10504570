//! The way frames get from one node to another.
//!
//! A [`Link`] is what a network card is to a driver: burst receive, burst
//! transmit, and capabilities. It knows nothing of IP.

mod address_table;
pub mod bridge;
pub mod capture;
mod checksum;
pub mod credentials;
mod frame;
pub mod impair;
pub mod interface;
mod layout;
pub mod loopback;
pub mod mq;
pub mod packet;
mod random;
mod segment;
pub mod shared;
pub mod steering;
pub mod tap;
#[cfg(test)]
mod test_cable;
#[cfg(test)]
mod test_frames;
pub mod udp;
mod vnet;
mod watch;
pub mod xdp;

pub use frame::{Checksum, Fence, MIN_PRIVATE, Offload, Received, Transmit, TransmitError, Transmitter};
pub use watch::Watch;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a link can do, as a network card's driver would report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Capabilities {
    /// Largest IP packet in a plain frame, in bytes, without the Ethernet header.
    pub mtu: u16,
    /// Largest IP packet in a super-frame (segmentation left to the link), in
    /// bytes; equal to `mtu` if the link carries none.
    pub super_frame: u32,
    /// Whether transport checksums may be left [`Checksum::Partial`].
    pub checksum_offload: bool,
    /// Whether the link never loses or delays frames on its own, so that the
    /// retransmission timer's floor may be lowered (RFC 6298 §2.4 is for paths
    /// that cross networks).
    pub local: bool,
    /// Whether any thread may drive the link, or only the one that made it.
    pub any_thread: bool,
}

/// A way for frames to other nodes, driven by one thread at a time.
///
/// A driver's round: `receive`, hand the frames to the stack, let the stack
/// `transmit`, `flush`. To sleep: `prepare_sleep`; if it returns true, wait for
/// `descriptor` to become readable, or `longest_sleep` to pass; `finish_sleep`.
pub trait Link: Transmitter + Send {
    /// What the link can do.
    fn capabilities(&self) -> Capabilities;

    /// The link's own hardware address.
    fn address(&self) -> [u8; 6];

    /// Hands up to `budget` frames to `handler`, oldest first, and returns how
    /// many. Also does the link's housekeeping, rarely. Time is in nanoseconds
    /// on the driver's monotonic clock.
    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize;

    /// Shows up to `most` of the frames that `receive` would hand over next, and takes none: for
    /// a driver that prepares for several at once. Those that do come may be others. A link that
    /// cannot look shows nothing.
    fn look_ahead(&mut self, most: usize, see: &mut dyn FnMut(&Received<'_>)) {
        let _ = (most, see);
    }

    /// Whether `receive` would find nothing: a look that costs less than that, for a
    /// thread that does nothing else until something comes. May say no of a link where
    /// there is nothing, never yes of one where there is something to be done. Of many
    /// neighbours it looks at those that are not silent, and `receive` at some others, too:
    /// only `prepare_sleep` tells of all.
    fn is_quiet(&self) -> bool {
        false
    }

    /// Publishes what was transmitted since the last flush, and wakes sleepers.
    fn flush(&mut self);

    /// Becomes readable when frames or events arrive while the link is prepared
    /// for sleep. `None`: the link has nothing to wait for but time.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The longest that a driver may sleep now, if nothing tells it of frames that arrive: it
    /// has to look for itself. `None`: the descriptor tells.
    fn longest_sleep(&self) -> Option<Duration> {
        None
    }

    /// Announces that the driver will sleep. False: something arrived in the
    /// meantime, do another round instead (nothing has to be finished then).
    fn prepare_sleep(&mut self) -> bool;

    /// Takes the announcement back and does what the wake-up asks for.
    fn finish_sleep(&mut self, now_ns: u64);

    /// The oldest change among the link's neighbours not yet asked for, if the
    /// link notices any. Changes are noticed by `receive` and `finish_sleep`;
    /// one that cuts a node off comes before anything from its next life.
    fn next_change(&mut self) -> Option<NeighborChange> {
        None
    }

    /// A node came or went that is reached through this link's driver, which is not where its
    /// frames end: a bridge says so to each of its links of those on the other. For a link
    /// that has to know whose frames to take.
    fn note_beyond(&mut self, change: NeighborChange) {
        let _ = change;
    }

    /// Fills `watch` with the places where the next frames will appear, so that a
    /// thread can look for frames while another one drives, or nobody does. False: the
    /// link cannot be watched, or not now; drive it instead. A watch tells of frames
    /// only: look at the link itself now and then for anything else, and before
    /// sleeping.
    fn watch(&self, watch: &mut Watch) -> bool {
        watch.clear();
        false
    }
}

/// A node that appeared on a link, or disappeared from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighborChange {
    /// Frames can reach the node with this hardware address from now on.
    Joined([u8; 6]),
    /// The node with this hardware address is gone, with all it knew: whoever
    /// answers at this address later is another one, or another life of it.
    Left([u8; 6]),
    /// The fabric gave a node that is there an IP address: no other node may claim it.
    Bound {
        /// The node's hardware address.
        mac: [u8; 6],
        /// The IP address.
        address: IpAddr,
    },
    /// The node that the fabric gave an IP address is gone: nobody answers at it.
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
