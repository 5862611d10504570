//! What a packet of each kind says.

use super::header::Fixed;
use super::{HEADER_LEN, MissingRanges, PacketKind};
use crate::{Result, WireError};

/// Longest message that an OFFER may announce, in bytes.
pub const OFFER_TOTAL_MAX: u64 = 1 << 63;

/// What a packet says, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketBody<'a> {
    /// A whole message.
    Eager {
        /// The message's tag; 0 if it has none.
        tag: u64,
        /// The message.
        bytes: &'a [u8],
    },
    /// A piece of an eager message. The packets of a message follow one another in
    /// sequence.
    Part {
        /// The message's tag; 0 if it has none.
        tag: u64,
        /// Place of the first byte in the message.
        offset: u32,
        /// Length of the message in bytes.
        total: u32,
        /// The piece, within the message.
        bytes: &'a [u8],
    },
    /// A message whose bytes stay with the sender.
    Offer {
        /// The message's tag; 0 if it has none.
        tag: u64,
        /// The sender's name for the message.
        token: u64,
        /// Length of the message in bytes, at most [`OFFER_TOTAL_MAX`].
        len: u64,
        /// Address of the bytes in the sender's memory; 0 if they cannot be read there.
        address: u64,
        /// Proves to a reader of that memory that it reads the sender's.
        nonce: u64,
    },
    /// Asks for a range of an offered message.
    Pull {
        /// The sender's name for the message.
        token: u64,
        /// The receiver's name for it, which a PIECE repeats.
        sink: u64,
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes, at least 1.
        len: u64,
    },
    /// Bytes that a PULL asked for.
    Piece {
        /// The receiver's name for the message.
        sink: u64,
        /// Place of the first byte in the message.
        offset: u64,
        /// The bytes, at least one.
        bytes: &'a [u8],
    },
    /// The receiver needs nothing more of an offered message. With the flag DELIVERED: it
    /// has placed an eager message.
    Done {
        /// The sender's name for the message, or its sequence number.
        token: u64,
    },
    /// Nothing but acknowledgement and grant.
    Ack,
    /// Names missing packets.
    Nack(MissingRanges<'a>),
    /// Asks by its own length whether the path carries such packets, or answers that.
    Hello {
        /// Length of the asking packet in bytes.
        len: u32,
        /// Whether this packet answers. An asking packet has zeroes up to its length.
        is_answer: bool,
    },
    /// The flow's other end does not live, or never did.
    Reset,
    /// No packet but acknowledgements follows.
    Bye,
}

/// The bit of a HELLO's token that tells an answer.
const HELLO_ANSWER: u64 = 1 << 32;

impl<'a> PacketBody<'a> {
    /// Returns the kind of a packet with this body.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        match self {
            Self::Eager { .. } => PacketKind::Eager,
            Self::Part { .. } => PacketKind::Part,
            Self::Offer { .. } => PacketKind::Offer,
            Self::Pull { .. } => PacketKind::Pull,
            Self::Piece { .. } => PacketKind::Piece,
            Self::Done { .. } => PacketKind::Done,
            Self::Ack => PacketKind::Ack,
            Self::Nack(_) => PacketKind::Nack,
            Self::Hello { .. } => PacketKind::Hello,
            Self::Reset => PacketKind::Reset,
            Self::Bye => PacketKind::Bye,
        }
    }

    /// Returns the message bytes of the packet; none for most kinds.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Eager { bytes, .. } | Self::Part { bytes, .. } | Self::Piece { bytes, .. } => bytes,
            _ => &[],
        }
    }

    /// Length of the fields between the header and the message bytes.
    pub(super) fn fields_len(&self) -> usize {
        match self {
            Self::Part { .. } => 8,
            Self::Offer { .. } => 32,
            Self::Pull { .. } => 24,
            Self::Piece { .. } => 16,
            Self::Nack(missing) => missing.bytes().len(),
            _ => 0,
        }
    }

    /// The value of the header's last field.
    pub(super) fn tag(&self) -> u64 {
        match *self {
            Self::Eager { tag, .. } | Self::Part { tag, .. } | Self::Offer { tag, .. } => tag,
            Self::Pull { token, .. } | Self::Done { token } => token,
            Self::Piece { sink, .. } => sink,
            Self::Nack(missing) => missing.count() as u64,
            Self::Hello { len, is_answer } => {
                u64::from(len) | (u64::from(is_answer) << HELLO_ANSWER.trailing_zeros())
            }
            Self::Ack | Self::Reset | Self::Bye => 0,
        }
    }

    /// Writes the fields between the header and the message bytes.
    pub(super) fn emit_fields(&self, buffer: &mut [u8]) {
        match *self {
            Self::Part { offset, total, .. } => {
                put_words(buffer, [u64::from(offset) | u64::from(total) << 32]);
            }
            Self::Offer {
                token,
                len,
                address,
                nonce,
                ..
            } => put_words(buffer, [token, len, address, nonce]),
            Self::Pull {
                sink, offset, len, ..
            } => put_words(buffer, [sink, offset, len]),
            Self::Piece { offset, bytes, .. } => put_words(buffer, [offset, bytes.len() as u64]),
            Self::Nack(missing) => buffer[..missing.bytes().len()].copy_from_slice(missing.bytes()),
            _ => {}
        }
    }

    /// Reads the body from the bytes behind the header and its options. `rest` does not
    /// hold the checksum if the kind's last byte is the packet's; else it may hold padding.
    ///
    /// # Errors
    ///
    /// `Truncated`, `BadLength` or `BadField`.
    pub(super) fn parse(fixed: &Fixed, rest: &'a [u8], packet_len: usize) -> Result<Self> {
        let tag = fixed.tag;
        match fixed.kind {
            PacketKind::Eager => Ok(Self::Eager { tag, bytes: rest }),
            PacketKind::Part => part(tag, rest),
            PacketKind::Offer => {
                let ([token, len, address, nonce], _) = words(rest)?;
                let body = Self::Offer {
                    tag,
                    token,
                    len,
                    address,
                    nonce,
                };
                within(len <= OFFER_TOTAL_MAX, body)
            }
            PacketKind::Pull => {
                let ([sink, offset, len], _) = words(rest)?;
                let is_range = len > 0 && offset.checked_add(len).is_some_and(|end| end <= OFFER_TOTAL_MAX);
                let body = Self::Pull {
                    token: tag,
                    sink,
                    offset,
                    len,
                };
                within(is_range, body)
            }
            PacketKind::Piece => piece(tag, rest),
            PacketKind::Done => Ok(Self::Done { token: tag }),
            PacketKind::Nack => Ok(Self::Nack(MissingRanges::parse(tag, rest)?)),
            PacketKind::Hello => {
                let (len, is_answer) = (tag as u32, tag & HELLO_ANSWER != 0);
                let is_known = tag & !(HELLO_ANSWER | u64::from(u32::MAX)) == 0;
                let is_whole =
                    is_answer || (packet_len as u64 >= u64::from(len) && len as usize >= HEADER_LEN);
                within(is_known && is_whole, Self::Hello { len, is_answer })
            }
            PacketKind::Ack => Ok(Self::Ack),
            PacketKind::Reset => Ok(Self::Reset),
            PacketKind::Bye => Ok(Self::Bye),
        }
    }
}

fn within<T>(is_valid: bool, value: T) -> Result<T> {
    if is_valid {
        Ok(value)
    } else {
        Err(WireError::BadLength)
    }
}

fn part(tag: u64, rest: &[u8]) -> Result<PacketBody<'_>> {
    let ([word], rest) = words(rest)?;
    let (offset, total) = (word as u32, (word >> 32) as u32);
    let left = total.checked_sub(offset).ok_or(WireError::BadLength)?;
    let bytes = &rest[..rest.len().min(left as usize)];
    // An empty piece would repeat without end, but for the one of an empty message.
    let is_progress = !bytes.is_empty() || total == 0;
    let body = PacketBody::Part {
        tag,
        offset,
        total,
        bytes,
    };
    within(is_progress, body)
}

fn piece(sink: u64, rest: &[u8]) -> Result<PacketBody<'_>> {
    let ([offset, len], rest) = words(rest)?;
    let len = usize::try_from(len).map_err(|_| WireError::BadLength)?;
    let bytes = rest.get(..len).ok_or(WireError::Truncated)?;
    let is_range = len > 0
        && offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= OFFER_TOTAL_MAX);
    within(is_range, PacketBody::Piece { sink, offset, bytes })
}

/// Reads `N` words, and returns the bytes behind them.
pub(super) fn words<const N: usize>(bytes: &[u8]) -> Result<([u64; N], &[u8])> {
    let mut words = [0; N];
    let mut rest = bytes;
    for word in &mut words {
        let (bytes, behind) = rest.split_first_chunk().ok_or(WireError::Truncated)?;
        *word = u64::from_le_bytes(*bytes);
        rest = behind;
    }
    Ok((words, rest))
}

/// Writes words to the start of `buffer`.
pub(super) fn put_words<const N: usize>(buffer: &mut [u8], words: [u64; N]) {
    for (place, word) in buffer.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
}
