//! RMPP: reliable messages directly on Ethernet frames (the splinter paper's protocol).
//!
//! A packet lies behind an Ethernet header of type [`ETHERTYPE`], or alone in a record of
//! a message queue. All fields are little-endian:
//!
//! ```text
//!  0 version:4 kind:4 | 1 flags | 2 credit u16 | 4 check u32
//!  8 sequence u32     | 12 acknowledgement u32 | 16 tag or token u64
//! 24 both incarnations, 16 bytes, with FIRST | data, 8 bytes, with DATA
//!    fields of the kind | message bytes | CRC32C, 4 bytes, with CHECKSUM
//! ```
//!
//! | kind | fields of the kind | message bytes |
//! | --- | --- | --- |
//! | EAGER | | all up to the packet's end |
//! | PART | offset u32, total u32 | as `total` tells, at most up to the end |
//! | OFFER | token, length, address, nonce, u64 each | |
//! | PULL | sink, offset, length, u64 each | |
//! | PIECE | offset u64, length u64 | `length` |
//! | NACK | up to 16 ranges of two u32; the token is their number | |
//! | HELLO | zeroes up to the length in the token, if it asks | |
//! | DONE, ACK, RESET, BYE | | |
//!
//! An Ethernet may pad short frames, and an EAGER packet has no length field. A sender on
//! such a path uses a PART with offset 0 for a short message.

mod body;
mod crc32c;
mod flags;
mod header;
mod lives;
mod missing;
mod packet;

pub use crate::tcp::Seq;
pub use body::{OFFER_TOTAL_MAX, PacketBody};
pub use crc32c::crc32c;
pub use flags::PacketFlags;
pub use header::{HEADER_LEN, PacketKind, VERSION};
pub use lives::Lives;
pub use missing::{MAX_RANGES, MissingRange, MissingRanges, RangeList};
pub use packet::{MAX_HEADERS_LEN, Packet};

use crate::ethernet::EtherType;

/// The EtherType of RMPP, from the range for local experiments (IEEE 802, 88b5 and 88b6).
pub const ETHERTYPE: EtherType = EtherType(0x88b6);

#[cfg(test)]
mod tests;
