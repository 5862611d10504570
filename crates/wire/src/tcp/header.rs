//! A TCP header for sending.

use super::options::{ALIGNED_TIMESTAMPS_LEN, aligned_timestamps_bytes};
use super::{Flags, Options, Seq};
use crate::{checksum, put, start};

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// Length in bytes of the longest header.
pub const MAX_HEADER_LEN: usize = 60;

/// Offset of the checksum in a header.
const CHECKSUM_AT: usize = 16;

/// A TCP header for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Header {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Sequence number of the first byte of data, or of the SYN.
    pub seq: Seq,
    /// The next expected sequence number; with ACK only.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The window, already scaled down.
    pub window: u16,
    /// The urgent pointer, relative to `seq`; with URG only.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Length of the header in bytes, at most [`MAX_HEADER_LEN`]. SACK blocks
    /// without room are left out.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        MIN_HEADER_LEN + self.options.len()
    }

    /// Returns `false`: a header is never empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header and returns its length. The checksum field is zero.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Header::len`].
    #[inline(always)]
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        if let Some(timestamps) = self.options.only_timestamps() {
            const LEN: usize = MIN_HEADER_LEN + ALIGNED_TIMESTAMPS_LEN;
            let bytes: &mut [u8; LEN] = start(buffer);
            self.emit_fixed(LEN, start(bytes));
            put(&mut bytes[MIN_HEADER_LEN..], aligned_timestamps_bytes(timestamps));
            return LEN;
        }
        let len = MIN_HEADER_LEN + self.options.len();
        self.emit_fixed(len, start(buffer));
        if len > MIN_HEADER_LEN {
            self.options.emit(&mut buffer[MIN_HEADER_LEN..]);
        }
        len
    }

    /// Writes the fixed part of a header that is `len` bytes long.
    #[inline]
    fn emit_fixed(&self, len: usize, bytes: &mut [u8; MIN_HEADER_LEN]) {
        let offset_and_flags = ((len as u16 / 4) << 12) | (self.flags & Flags::ALL).0;
        bytes[0..2].copy_from_slice(&self.src_port.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        bytes[12..14].copy_from_slice(&offset_and_flags.to_be_bytes());
        bytes[14..16].copy_from_slice(&self.window.to_be_bytes());
        bytes[16..18].fill(0);
        bytes[18..20].copy_from_slice(&self.urgent.to_be_bytes());
    }
}

/// Fills in the checksum of a segment whose header, and nothing else, is
/// `header`. The caller gives the partial sums of the pseudo-header and of the
/// data (see [`crate::checksum`]). The field's earlier value is ignored.
///
/// # Panics
///
/// If `header` is shorter than [`MIN_HEADER_LEN`].
#[inline]
pub fn set_checksum(header: &mut [u8], pseudo_header: u32, data: u32) {
    //= RFC 9293 §3.1
    header[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
    let sum = checksum::combine(pseudo_header, checksum::sum(header), false);
    let sum = checksum::finish(checksum::combine(sum, data, false));
    header[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}
