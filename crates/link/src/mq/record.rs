//! A frame in a ring: a header, then the frame's bytes. Instead of its payload there may be
//! references to where that lies in the sender's payload memory. For a short packet between the two
//! nodes, the record has the packet alone: moving a message to another core costs its cache lines.
//!
//! Reading decides only on bytes that were copied to private memory first.

use core::mem::size_of;
use std::os::fd::OwnedFd;

use toehold_shm::ring::Record;
use toehold_shm::{Gather, MAX_PARTS, Region};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Checksum, MIN_PRIVATE, Offload, Received, Transmit};

/// Longest IP packet in a frame, in bytes.
pub(super) const MAX_PACKET: usize = 65_535;
/// Longest header in front of it: Ethernet with two VLAN tags.
pub(super) const MAX_LINK_HEADER: usize = 22;
/// Longest frame.
pub(super) const MAX_FRAME: usize = MAX_PACKET + MAX_LINK_HEADER;
/// Shortest frame: its Ethernet header.
pub(super) const MIN_FRAME: usize = 14;

/// Frames up to this length are copied whole to private memory: one copy and
/// one place are cheaper than two. Of longer ones [`MIN_PRIVATE`] bytes are.
pub(super) const WHOLE: usize = 512;

/// Payload from this length on is referenced instead of copied, if it can be. Shorter payload is
/// faster in the ring, where it lies beside its headers. A copy costs the sender, a reference the
/// receiver. By themselves the rings break even at 4 KiB (`benches/mq.rs`), but a stack has more
/// work to do for sending than for receiving.
pub(super) const REFERENCE_FROM: usize = 640;

/// Headers of a referenced frame may have this length; longer ones travel inline.
pub(super) const MAX_REFERENCED_HEADERS: usize = WHOLE - REFERENCES_LEN;

const REFERENCES_LEN: usize = MAX_PARTS * size_of::<Reference>();

/// Kind of a record with a frame whose bytes all follow the header.
pub(super) const INLINE: u16 = 1;
/// Kind of a record whose header is followed by references and then the frame's headers.
pub(super) const REFERENCED: u16 = 2;

/// Kind of a record with a short packet between the two nodes themselves, and nothing else. Both
/// know the Ethernet header in front of it. The kind's lowest bits say what a [`Header`] would, and
/// whether the packet is IPv6.
const PLAIN: u16 = 0x100;
/// State of the checksum.
const PLAIN_CHECKSUM: u16 = 0b011;
const PLAIN_IPV6: u16 = 0b100;

/// Begins every other record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Header {
    segment_size: u16,
    checksum: u8,
    references: u8,
    reserved: u32,
}

/// A run of bytes in the sender's payload memory, counted from the start of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Reference {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) reserved: u32,
}

pub(super) const HEADER_LEN: usize = size_of::<Header>();
pub(super) const REFERENCE_LEN: usize = size_of::<Reference>();
const _: () = assert!(HEADER_LEN == 8 && REFERENCE_LEN == 16 && MAX_PARTS == 8);

/// Longest record.
pub(super) const MAX_RECORD: usize = HEADER_LEN + MAX_FRAME;

/// Private memory for the beginning of a record.
pub(super) type Private = [u8; HEADER_LEN + WHOLE];

/// The reason why a record is bad. No Toehold node writes such a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum BadRecord {
    /// Shorter than its header and an Ethernet header.
    #[error("the record is too short")]
    TooShort,
    /// The frame is longer than any can be.
    #[error("the frame is too long")]
    TooLong,
    /// An unknown kind of record or state of the checksum.
    #[error("the record's header is unknown")]
    Unknown,
    /// More references than a record may have, or none, or empty ones.
    #[error("the record's references are malformed")]
    References,
    /// A reference outside of the payload memory that was handed over.
    #[error("a reference points outside of the payload memory")]
    OutOfBounds,
}

impl BadRecord {
    const ALL: [BadRecord; 5] = [
        BadRecord::TooShort,
        BadRecord::TooLong,
        BadRecord::Unknown,
        BadRecord::References,
        BadRecord::OutOfBounds,
    ];

    /// The number of the error, to be kept in shared memory.
    pub(super) fn code(self) -> u64 {
        self as u64
    }

    /// The error that has this number. A number that no error has stands for
    /// [`BadRecord::Unknown`].
    pub(super) fn from_code(code: u64) -> BadRecord {
        let known = usize::try_from(code).ok().and_then(|code| Self::ALL.get(code));
        known.copied().unwrap_or(BadRecord::Unknown)
    }
}

fn checksum_code(checksum: Checksum) -> u8 {
    match checksum {
        Checksum::Complete => 0,
        Checksum::Partial => 1,
        Checksum::Verified => 2,
    }
}

fn checksum_of_code(code: u8) -> Result<Checksum, BadRecord> {
    match code {
        0 => Ok(Checksum::Complete),
        1 => Ok(Checksum::Partial),
        2 => Ok(Checksum::Verified),
        _ => Err(BadRecord::Unknown),
    }
}

impl Header {
    /// For a frame with this many references.
    pub(super) fn new(offload: Offload, references: usize) -> Header {
        Header {
            segment_size: offload.segment_size,
            checksum: checksum_code(offload.checksum),
            references: references as u8,
            reserved: 0,
        }
    }

    fn offload(&self) -> Result<Offload, BadRecord> {
        Ok(Offload {
            checksum: checksum_of_code(self.checksum)?,
            segment_size: self.segment_size,
        })
    }
}

/// The two nodes that share a ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) sender: [u8; 6],
    pub(super) receiver: [u8; 6],
}

impl Ends {
    /// Kind of the record if of this frame the packet is enough.
    #[inline]
    pub(super) fn plain_kind(&self, frame: &Transmit<'_>) -> Option<u16> {
        let (ethernet, _) = frame.headers.split_first_chunk::<MIN_FRAME>()?;
        let version = match ethernet[12..] {
            [0x08, 0x00] => 0,
            [0x86, 0xdd] => PLAIN_IPV6,
            _ => return None,
        };
        let between_them = ethernet[..6] == self.receiver && ethernet[6..12] == self.sender;
        let short = frame.len() <= WHOLE && frame.offload.segment_size == 0;
        (between_them && short).then(|| PLAIN | version | u16::from(checksum_code(frame.offload.checksum)))
    }

    /// The Ethernet header in front of a packet of such a record.
    #[inline]
    fn ethernet(&self, kind: u16) -> [u8; MIN_FRAME] {
        let mut header = [0; MIN_FRAME];
        header[..6].copy_from_slice(&self.receiver);
        header[6..12].copy_from_slice(&self.sender);
        header[12..].copy_from_slice(if kind & PLAIN_IPV6 == 0 {
            &[0x08, 0x00]
        } else {
            &[0x86, 0xdd]
        });
        header
    }
}

/// The frame in a record that another node wrote.
///
/// `payload` is the other node's payload memory, if it was handed over:
/// the region and the range of it that references may name.
#[inline]
pub(super) fn open<'a>(
    record: &Record<'a>,
    ends: &Ends,
    payload: Option<&'a PayloadView>,
    private: &'a mut Private,
) -> Result<Received<'a>, BadRecord> {
    let len = record.len();
    if record.kind() & !(PLAIN_CHECKSUM | PLAIN_IPV6) == PLAIN {
        return open_plain(record, ends, private);
    }
    if len < HEADER_LEN + MIN_FRAME {
        return Err(BadRecord::TooShort);
    }
    let copied = if len <= HEADER_LEN + WHOLE {
        len
    } else {
        HEADER_LEN + MIN_PRIVATE
    };
    record.copy_to(0, &mut private[..copied]);
    let (header, beginning) = private[..copied].split_at(HEADER_LEN);
    let header = Header::read_from_bytes(header).map_err(|_| BadRecord::TooShort)?;
    let offload = header.offload()?;
    match record.kind() {
        INLINE if len > MAX_RECORD => Err(BadRecord::TooLong),
        INLINE => {
            let rest = if copied == len {
                Gather::EMPTY
            } else {
                record.slice(copied, len - copied)
            };
            Ok(Received {
                private: beginning,
                rest,
                offload,
            })
        }
        // References and headers fit into private memory, or it is not ours.
        REFERENCED if copied < len => Err(BadRecord::TooLong),
        REFERENCED => {
            let view = payload.ok_or(BadRecord::OutOfBounds)?;
            let (references, headers) = split_references(beginning, usize::from(header.references))?;
            let rest = view.gather(references)?;
            if headers.len() + rest.len() > MAX_FRAME {
                return Err(BadRecord::TooLong);
            }
            Ok(Received {
                private: headers,
                rest,
                offload,
            })
        }
        _ => Err(BadRecord::Unknown),
    }
}

#[inline]
fn open_plain<'a>(
    record: &Record<'a>,
    ends: &Ends,
    private: &'a mut Private,
) -> Result<Received<'a>, BadRecord> {
    let (kind, len) = (record.kind(), MIN_FRAME + record.len());
    let frame = private.get_mut(..len.min(WHOLE)).unwrap_or_default();
    let (ethernet, packet) = frame.split_at_mut(MIN_FRAME);
    if packet.len() != record.len() {
        return Err(BadRecord::TooLong);
    }
    ethernet.copy_from_slice(&ends.ethernet(kind));
    record.copy_to(0, packet);
    Ok(Received {
        private: frame,
        rest: Gather::EMPTY,
        offload: Offload {
            checksum: checksum_of_code((kind & PLAIN_CHECKSUM) as u8)?,
            segment_size: 0,
        },
    })
}

fn split_references(beginning: &[u8], count: usize) -> Result<(&[u8], &[u8]), BadRecord> {
    if !(1..=MAX_PARTS).contains(&count) {
        return Err(BadRecord::References);
    }
    match beginning.split_at_checked(count * REFERENCE_LEN) {
        Some((references, headers)) if headers.len() >= MIN_FRAME => Ok((references, headers)),
        _ => Err(BadRecord::TooShort),
    }
}

/// Payload memory of another node, mapped for reading.
#[derive(Debug)]
pub(super) struct PayloadView {
    region: Region,
    start: u64,
    end: u64,
}

impl PayloadView {
    /// `None` unless the range lies in the region.
    pub(super) fn new(region: Region, offset: u64, len: u64) -> Option<PayloadView> {
        let end = offset
            .checked_add(len)
            .filter(|&end| end <= region.len() as u64)?;
        Some(PayloadView {
            region,
            start: offset,
            end,
        })
    }

    /// Unmaps the memory and keeps its descriptor.
    pub(super) fn into_fd(self) -> Option<OwnedFd> {
        self.region.into_fd()
    }

    fn gather(&self, references: &[u8]) -> Result<Gather<'_>, BadRecord> {
        let mut gather = Gather::EMPTY;
        for reference in references.chunks_exact(REFERENCE_LEN) {
            let Ok(Reference { offset, len, .. }) = Reference::read_from_bytes(reference) else {
                break;
            };
            let inside = offset >= self.start
                && offset
                    .checked_add(u64::from(len))
                    .is_some_and(|end| end <= self.end);
            if !inside {
                return Err(BadRecord::OutOfBounds);
            }
            let part = self
                .region
                .gather(offset, u64::from(len))
                .ok_or(BadRecord::OutOfBounds)?;
            if len == 0 || !gather.append(&part) {
                return Err(BadRecord::References);
            }
        }
        Ok(gather)
    }
}
