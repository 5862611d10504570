//! What crosses between a link and a stack: one Ethernet frame, or one
//! super-frame, with what a network card's descriptor would say about it.

use toehold_shm::{ArenaId, Gather};

use crate::steering::Flow;

/// What the sender of a frame leaves to the link, or a link found out about a frame.
///
/// The same facts as a virtio-net header carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Whether the transport checksum is in the frame.
    pub checksum: Checksum,
    /// For a TCP super-frame, the payload bytes of each segment it stands for
    /// (its last one may be shorter); 0 for a plain frame.
    pub segment_size: u16,
}

/// State of a frame's transport checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// The checksum field is filled in; a receiver has to verify it.
    #[default]
    Complete,
    /// The frame never leaves memory that is trusted to keep its bits: the
    /// field holds the pseudo-header sum at most, and a receiver skips it.
    /// A link onto a medium that can damage bits must complete it.
    Partial,
    /// Verified by the link; a receiver skips it.
    Verified,
}

/// A frame on its way out. Valid during one call of [`Transmitter::transmit`].
#[derive(Debug, Clone, Copy)]
pub struct Transmit<'a> {
    /// Ethernet, IP and transport headers; for small frames the payload too.
    pub headers: &'a [u8],
    /// The rest of the frame, where it lies (commonly in payload memory).
    pub payload: &'a Gather<'a>,
    /// What is left to the link.
    pub offload: Offload,
}

impl Transmit<'_> {
    /// Bytes of the whole frame, from the Ethernet header on.
    pub fn len(&self) -> usize {
        self.headers.len() + self.payload.len()
    }

    /// Whether the frame has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A frame that arrived. Valid during one call of a receive handler.
#[derive(Debug)]
pub struct Received<'a> {
    /// The frame's beginning in memory nobody else writes: the whole frame if
    /// it is short, otherwise at least [`MIN_PRIVATE`] bytes of it. Every
    /// header is parsed from here.
    pub private: &'a [u8],
    /// The rest of the frame. The sender may still be able to write it, so it
    /// can be copied out once and never be interpreted in place.
    pub rest: Gather<'a>,
    /// What the link knows of the frame.
    pub offload: Offload,
}

impl Received<'_> {
    /// Bytes of the whole frame, from the Ethernet header on.
    pub fn len(&self) -> usize {
        self.private.len() + self.rest.len()
    }

    /// Whether the frame has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A link copies at least this much of a longer frame to private memory:
/// Ethernet with VLAN tag 18, IPv6 40 and 64 of extensions, TCP 60.
pub const MIN_PRIVATE: usize = 192;

/// Why a frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransmitError {
    /// No room now; the same frame may be taken later.
    #[error("the link is full")]
    Full,
    /// Nobody at that address is reachable over this link.
    #[error("no such peer on the link")]
    Unreachable,
    /// Longer than the link's largest frame.
    #[error("the frame exceeds the link's maximum")]
    TooLong,
}

/// Point in a link's outgoing traffic, see [`Transmitter::fence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fence(pub u64);

/// Where a stack puts frames.
pub trait Transmitter {
    /// Takes a frame, or leaves it untouched and says why. Frames become
    /// visible to the other side by the driver's `flush` at the latest.
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError>;

    /// Marks the present end of what was sent of a connection to the node that has
    /// `destination` as its hardware address. Payload of earlier frames may be read in place
    /// by that node until [`Transmitter::passed`] says otherwise; a stack must
    /// not reuse it before, unless the other stack acknowledged it.
    fn fence(&self, destination: [u8; 6], flow: &Flow) -> Fence {
        let _ = (destination, flow);
        Fence::default()
    }

    /// Whether the other side has finished with everything before `fence`, or
    /// can never read it again.
    fn passed(&self, fence: Fence) -> bool {
        let _ = fence;
        true
    }

    /// Where payload should lie that goes where the last transmitted frame went: in an arena if
    /// the link can have the receiver read it there. It copies what lies elsewhere.
    fn payload_arena(&self) -> ArenaId {
        ArenaId::PRIVATE
    }
}

impl<T: Transmitter + ?Sized> Transmitter for Box<T> {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        (**self).transmit(frame)
    }

    fn fence(&self, destination: [u8; 6], flow: &Flow) -> Fence {
        (**self).fence(destination, flow)
    }

    fn passed(&self, fence: Fence) -> bool {
        (**self).passed(fence)
    }

    fn payload_arena(&self) -> ArenaId {
        (**self).payload_arena()
    }
}
