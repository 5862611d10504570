//! A received TCP header, viewed in place.

use super::{Flags, Header, MIN_HEADER_LEN, Options, Seq};
use crate::{Result, WireError, checksum};

/// The header of a received segment.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    fixed: &'a [u8; MIN_HEADER_LEN],
    options: &'a [u8],
}

impl<'a> View<'a> {
    /// Views the header at the start of `bytes`, which hold at least all of it.
    /// `transport_len` is the segment's length in bytes, header and data, from
    /// the IP header.
    ///
    /// # Errors
    ///
    /// `Truncated` if the fixed header is not complete. `BadLength` if the data
    /// offset is less than 5, or beyond the segment or `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8], transport_len: usize) -> Result<Self> {
        let (fixed, rest) = bytes
            .split_first_chunk::<MIN_HEADER_LEN>()
            .ok_or(WireError::Truncated)?;
        //= RFC 9293 §3.1
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < MIN_HEADER_LEN || header_len > transport_len {
            return Err(WireError::BadLength);
        }
        let options = rest
            .get(..header_len - MIN_HEADER_LEN)
            .ok_or(WireError::BadLength)?;
        Ok(Self { fixed, options })
    }

    #[inline]
    fn u16_at<const AT: usize>(&self) -> u16 {
        u16::from_be_bytes([self.fixed[AT], self.fixed[AT + 1]])
    }

    #[inline]
    fn u32_at<const AT: usize>(&self) -> u32 {
        u32::from_be_bytes([
            self.fixed[AT],
            self.fixed[AT + 1],
            self.fixed[AT + 2],
            self.fixed[AT + 3],
        ])
    }

    /// The sender's port.
    #[inline]
    #[must_use]
    pub fn src_port(&self) -> u16 {
        self.u16_at::<0>()
    }

    /// The receiver's port.
    #[inline]
    #[must_use]
    pub fn dst_port(&self) -> u16 {
        self.u16_at::<2>()
    }

    /// Sequence number of the first byte of data, or of the SYN.
    #[inline]
    #[must_use]
    pub fn seq(&self) -> Seq {
        Seq(self.u32_at::<4>())
    }

    /// The sender's next expected sequence number; with ACK only.
    #[inline]
    #[must_use]
    pub fn ack(&self) -> Seq {
        Seq(self.u32_at::<8>())
    }

    /// The control bits without the reserved ones.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags(self.u16_at::<12>()) & Flags::ALL
    }

    /// The window as the header has it: unscaled.
    #[inline]
    #[must_use]
    pub fn window(&self) -> u16 {
        self.u16_at::<14>()
    }

    /// The checksum field.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.u16_at::<16>()
    }

    /// The urgent pointer, relative to the sequence number; with URG only.
    #[inline]
    #[must_use]
    pub fn urgent(&self) -> u16 {
        self.u16_at::<18>()
    }

    /// Length of the header in bytes: the data's offset.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        MIN_HEADER_LEN + self.options.len()
    }

    /// The options. Options for a SYN are ignored in other segments.
    #[inline]
    #[must_use]
    pub fn options(&self) -> Options {
        self.options_checked().0
    }

    /// Returns whether the option list was malformed. [`View::options`] has its
    /// readable part.
    #[inline]
    #[must_use]
    pub fn options_malformed(&self) -> bool {
        self.options_checked().1
    }

    /// Reads [`View::options`] and [`View::options_malformed`] in one pass.
    #[inline]
    #[must_use]
    pub fn options_checked(&self) -> (Options, bool) {
        let (options, malformed) = Options::parse(self.options);
        let options = if self.flags().contains(Flags::SYN) {
            options
        } else {
            options.without_syn_options()
        };
        (options, malformed)
    }

    /// Returns whether the checksum is right, given the partial sums of the
    /// pseudo-header and of the data (see [`crate::checksum`]).
    #[inline]
    #[must_use]
    pub fn verify(&self, pseudo_header: u32, data: u32) -> bool {
        //= RFC 9293 §3.1
        let header = checksum::combine(checksum::sum(self.fixed), checksum::sum(self.options), false);
        checksum::is_valid(checksum::combine(
            checksum::combine(pseudo_header, header, false),
            data,
            false,
        ))
    }

    /// Decodes everything in the header but the checksum.
    #[must_use]
    pub fn header(&self) -> Header {
        Header {
            src_port: self.src_port(),
            dst_port: self.dst_port(),
            seq: self.seq(),
            ack: self.ack(),
            flags: self.flags(),
            window: self.window(),
            urgent: self.urgent(),
            options: self.options(),
        }
    }
}
