//! The virtio-net header before the frames of TAP devices and packet sockets. It
//! describes the work that the kernel and this side leave to each other.
//!
//! Every field of a received header is checked against the frame. An invalid header
//! costs a frame and never more.

mod queue;

use toehold_wire::checksum::{finish, sum};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) use self::queue::{Counts, MAX_LINK_HEADER, MAX_PACKET, MIN_FRAME, Queue, last_error};
use crate::layout::{Layout, Transport};
use crate::{Checksum, Offload};

/// Most segments of an honest super-frame: 64 KB of TCP in pieces of at least 48
/// bytes, or 128 datagrams of UDP.
const MAX_SEGMENTS: usize = 1400;

/// `struct virtio_net_hdr` in native byte order, the default of TAP devices and
/// packet sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Header {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

pub(crate) const HEADER_LEN: usize = size_of::<Header>();
const _: () = assert!(HEADER_LEN == 10 && align_of::<Header>() == 2);

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Flag beside a TCP kind: only the first segment carries CWR.
const GSO_ECN: u8 = 0x80;

/// Reason for which a received header is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// The frame is shorter than an Ethernet header.
    #[error("the frame is too short")]
    TooShort,
    /// The kind of super-frame is unknown or was not asked for.
    #[error("the kind of super-frame is unknown")]
    UnknownKind,
    /// The headers of a super-frame contradict its kind.
    #[error("the super-frame's headers are not of its kind")]
    WrongKind,
    /// A super-frame has segments without length, or too many.
    #[error("the super-frame's segments have an impossible size")]
    SegmentSize,
    /// The position of the checksum is outside of the frame, or missing.
    #[error("the checksum's position is impossible")]
    ChecksumPlace,
}

impl Header {
    /// Returns the header for a frame of `frame_len` bytes. Writes lengths and the
    /// pseudo-header's sum into `headers`.
    ///
    /// `layout` is the frame's, if it has one. Without it, no work is left to the
    /// kernel. A super-frame always has a layout, and leaves its checksums to the
    /// kernel.
    pub(crate) fn describe(
        layout: Option<&Layout>,
        headers: &mut [u8],
        frame_len: usize,
        offload: Offload,
    ) -> Header {
        let (Some(layout), true) = (
            layout,
            offload.checksum == Checksum::Partial || offload.segment_size != 0,
        ) else {
            return Header::default();
        };
        let mut header = Header {
            flags: NEEDS_CHECKSUM,
            header_len: layout.payload as u16,
            checksum_start: layout.transport as u16,
            checksum_offset: layout.protocol.checksum_at() as u16,
            ..Header::default()
        };
        let mut packet_len = layout.packet_len(headers);
        if offload.segment_size != 0 {
            packet_len = frame_len - layout.network;
            layout.set_packet_len(headers, packet_len);
            header.gso_size = offload.segment_size;
            header.gso_type = kind_of(layout, headers);
        }
        let sum = layout.pseudo_sum(headers, packet_len.max(layout.payload - layout.network));
        headers[layout.checksum()].copy_from_slice(&sum.to_be_bytes());
        header
    }

    /// Checks the header of a frame and returns its offloads. Fills in a checksum
    /// that only the kernel's description can express.
    pub(crate) fn judge(&self, frame: &mut [u8]) -> Result<Offload, BadHeader> {
        if frame.len() < MIN_FRAME {
            return Err(BadHeader::TooShort);
        }
        let kind = self.gso_type & !GSO_ECN;
        if self.gso_type == GSO_NONE {
            return Ok(Offload {
                checksum: self.judge_checksum(frame)?,
                segment_size: 0,
            });
        }
        let layout = match kind {
            GSO_TCP_V4 | GSO_TCP_V6 | GSO_UDP => Layout::of(frame).ok_or(BadHeader::WrongKind)?,
            _ => return Err(BadHeader::UnknownKind),
        };
        if kind != kind_of(&layout, frame) & !GSO_ECN {
            return Err(BadHeader::WrongKind);
        }
        let payload_len = frame.len() - layout.payload;
        let size = usize::from(self.gso_size);
        if size == 0 || payload_len == 0 || payload_len.div_ceil(size) > MAX_SEGMENTS {
            return Err(BadHeader::SegmentSize);
        }
        // Each segment gets its own checksum. The super-frame's has no meaning.
        let left = self.flags & NEEDS_CHECKSUM != 0 && self.names_checksum_of(&layout);
        if !left && self.flags & DATA_VALID == 0 {
            return Err(BadHeader::ChecksumPlace);
        }
        if !layout.set_packet_len(frame, frame.len() - layout.network) {
            return Err(BadHeader::SegmentSize);
        }
        Ok(Offload {
            checksum: Checksum::Partial,
            segment_size: if payload_len > size { self.gso_size } else { 0 },
        })
    }

    fn judge_checksum(&self, frame: &mut [u8]) -> Result<Checksum, BadHeader> {
        if self.flags & NEEDS_CHECKSUM == 0 {
            return Ok(match self.flags & DATA_VALID {
                0 => Checksum::Complete,
                _ => Checksum::Verified,
            });
        }
        if let Some(layout) = Layout::of(frame)
            && self.names_checksum_of(&layout)
        {
            return Ok(Checksum::Partial);
        }
        // Another protocol, e.g. inside a tunnel: completes it as the kernel would.
        let start = usize::from(self.checksum_start);
        let at = start + usize::from(self.checksum_offset);
        if start < MIN_FRAME || at + 2 > frame.len() {
            return Err(BadHeader::ChecksumPlace);
        }
        let checksum = match finish(sum(&frame[start..])) {
            0 => 0xffff, // RFC 768: zero would mean that there is none
            checksum => checksum,
        };
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        Ok(Checksum::Complete)
    }

    fn names_checksum_of(&self, layout: &Layout) -> bool {
        usize::from(self.checksum_start) == layout.transport
            && usize::from(self.checksum_offset) == layout.protocol.checksum_at()
    }
}

fn kind_of(layout: &Layout, headers: &[u8]) -> u8 {
    const CWR: u8 = 0x80;
    match (layout.protocol, layout.is_v4) {
        (Transport::Udp, _) => GSO_UDP,
        (Transport::Tcp, is_v4) => {
            let kind = if is_v4 { GSO_TCP_V4 } else { GSO_TCP_V6 };
            //= RFC 3168 §6.1.2
            kind | if headers[layout.transport + 13] & CWR != 0 {
                GSO_ECN
            } else {
                0
            }
        }
    }
}

#[cfg(test)]
mod tests;
