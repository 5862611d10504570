//! The frames between a link and a stack: one Ethernet frame or super-frame each,
//! with the metadata of a network card's descriptor.

use toehold_shm::{ArenaId, Gather};

use crate::steering::Flow;

/// Work that a frame's sender leaves to the link, or facts that a link found
/// out about a frame.
///
/// A virtio-net header carries equivalent facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Whether the transport checksum is in the frame.
    pub checksum: Checksum,
    /// Payload bytes of each segment of a TCP super-frame (the last one may be
    /// shorter). 0 for a plain frame.
    pub segment_size: u16,
}

/// State of a frame's transport checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// The checksum field is filled in; a receiver has to verify it.
    #[default]
    Complete,
    /// The field holds at most the pseudo-header's sum, and a receiver skips it:
    /// the frame never leaves memory that keeps its bits. A link onto a medium that
    /// can damage bits must complete it.
    Partial,
    /// The link has verified the checksum; a receiver skips it.
    Verified,
}

/// A frame for sending. Valid during one call of [`Transmitter::transmit`].
#[derive(Debug, Clone, Copy)]
pub struct Transmit<'a> {
    /// Ethernet, IP and transport headers; for small frames the payload too.
    pub headers: &'a [u8],
    /// The rest of the frame, in place (commonly in payload memory).
    pub payload: &'a Gather<'a>,
    /// The work left to the link.
    pub offload: Offload,
}

impl Transmit<'_> {
    /// Length of the whole frame in bytes, from the Ethernet header on.
    pub fn len(&self) -> usize {
        self.headers.len() + self.payload.len()
    }

    /// Returns whether the frame has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A received frame. Valid during one call of a receive handler.
#[derive(Debug)]
pub struct Received<'a> {
    /// The frame's beginning in memory that no other process writes. It is the
    /// whole frame if that is short, otherwise at least [`MIN_PRIVATE`] bytes.
    /// Parse all headers from here.
    pub private: &'a [u8],
    /// The rest of the frame. The sender may still be able to write it. Copy it out
    /// once, and never interpret it in place.
    pub rest: Gather<'a>,
    /// The link's facts about the frame.
    pub offload: Offload,
}

impl Received<'_> {
    /// Length of the whole frame in bytes, from the Ethernet header on.
    pub fn len(&self) -> usize {
        self.private.len() + self.rest.len()
    }

    /// Returns whether the frame has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Least number of bytes of a longer frame that a link copies to private memory. It
/// holds Ethernet with VLAN tag 18, IPv6 40 and 64 of extensions, TCP 60.
pub const MIN_PRIVATE: usize = 192;

/// Reason for which a frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransmitError {
    /// There is no room now. The frame may be taken later.
    #[error("the link is full")]
    Full,
    /// No peer on this link has the destination address.
    #[error("no such peer on the link")]
    Unreachable,
    /// The frame is longer than the link's largest frame.
    #[error("the frame exceeds the link's maximum")]
    TooLong,
}

/// Point in a link's outgoing traffic, see [`Transmitter::fence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fence(pub u64);

/// A stack's way to send frames.
pub trait Transmitter {
    /// Takes a frame, or leaves it untouched and returns the reason. The other side
    /// sees taken frames after the driver's `flush` at the latest.
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError>;

    /// Marks the current end of a connection's sent frames to the node with the
    /// hardware address `destination`. That node may read payload of earlier frames
    /// in place until [`Transmitter::passed`] returns true. A stack must not reuse
    /// the payload before, unless the other stack acknowledged it.
    fn fence(&self, destination: [u8; 6], flow: &Flow) -> Fence {
        let _ = (destination, flow);
        Fence::default()
    }

    /// Returns whether the other side has finished with everything before `fence`,
    /// or can never read it again.
    fn passed(&self, fence: Fence) -> bool {
        let _ = fence;
        true
    }

    /// Returns the best arena for payload that goes to the last frame's
    /// destination. If the link can let the receiver read payload there, it is read
    /// in place. Payload elsewhere is copied.
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
