//! UDP headers (RFC 768).

use crate::{Result, WireError, checksum, put};

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;

const CHECKSUM_AT: usize = 6;

/// A received datagram.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Views the datagram at the start of `bytes`, which hold at least its
    /// header. `available` is the length in bytes of header and data, from the
    /// IP header.
    ///
    /// # Errors
    ///
    /// `Truncated` if the header is not complete. `BadLength` if the header
    /// claims less than its own length or more than is available.
    #[inline]
    pub fn new(bytes: &'a [u8], available: usize) -> Result<Self> {
        let (fixed, payload) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(WireError::Truncated)?;
        let view = Self { fixed, payload };
        let len = usize::from(view.len());
        if len < HEADER_LEN || len > available {
            return Err(WireError::BadLength);
        }
        let payload = payload.get(..len - HEADER_LEN).unwrap_or(payload);
        Ok(Self { fixed, payload })
    }

    #[inline]
    fn u16_at<const AT: usize>(&self) -> u16 {
        u16::from_be_bytes([self.fixed[AT], self.fixed[AT + 1]])
    }

    /// The sender's port; 0 if it expects no answer.
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

    /// Length of header and data in bytes: at least 8.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "the header itself counts: never zero")]
    pub fn len(&self) -> u16 {
        self.u16_at::<4>()
    }

    /// Returns whether the sender computed a checksum. Over IPv4 a datagram without
    /// one is accepted, over IPv6 it is not (RFC 8200 §8.1).
    #[inline]
    #[must_use]
    pub fn has_checksum(&self) -> bool {
        self.u16_at::<CHECKSUM_AT>() != 0
    }

    /// Returns whether the checksum is right, given the partial sums of the
    /// pseudo-header and of the data (see [`crate::checksum`]).
    #[inline]
    #[must_use]
    pub fn verify(&self, pseudo_header: u32, data: u32) -> bool {
        let sum = checksum::combine(pseudo_header, checksum::sum(self.fixed), false);
        checksum::is_valid(checksum::combine(sum, data, false))
    }

    /// The given bytes of the data.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A header for sending.
///
/// ```
/// use toehold_wire::{checksum, udp};
/// let data = b"hello";
/// let header = udp::Header { src_port: 5000, dst_port: 53, payload_len: 5 };
/// let mut bytes = [0; 8];
/// header.emit(&mut bytes);
/// let pseudo = checksum::pseudo_header("10.0.0.1".parse()?, "10.0.0.2".parse()?, 17, 13);
/// udp::set_checksum(&mut bytes, pseudo, checksum::sum(data));
/// assert!(udp::View::new(&bytes, 13)?.verify(pseudo, checksum::sum(data)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Number of data bytes, at most 65527.
    pub payload_len: u16,
}

impl Header {
    /// Writes the header, without checksum, and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`HEADER_LEN`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let [s0, s1] = self.src_port.to_be_bytes();
        let [d0, d1] = self.dst_port.to_be_bytes();
        let [l0, l1] = self.payload_len.saturating_add(HEADER_LEN as u16).to_be_bytes();
        put(buffer, [s0, s1, d0, d1, l0, l1, 0, 0]);
        HEADER_LEN
    }
}

/// Fills in the checksum of a datagram whose header is `header`. The caller
/// gives the partial sums of the pseudo-header and of the data (see
/// [`crate::checksum`]). The field's earlier value is ignored.
///
/// # Panics
///
/// If `header` is shorter than [`HEADER_LEN`].
#[inline]
pub fn set_checksum(header: &mut [u8], pseudo_header: u32, data: u32) {
    header[CHECKSUM_AT..HEADER_LEN].fill(0);
    let sum = checksum::combine(pseudo_header, checksum::sum(&header[..HEADER_LEN]), false);
    let sum = match checksum::finish(checksum::combine(sum, data, false)) {
        // RFC 768: zero means no checksum, so a computed zero is sent as
        // 0xffff.
        0 => 0xffff,
        sum => sum,
    };
    header[CHECKSUM_AT..HEADER_LEN].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wrong_lengths_return_errors() {
        let mut bytes = [0; 20];
        Header {
            src_port: 1,
            dst_port: 2,
            payload_len: 4,
        }
        .emit(&mut bytes);
        assert_eq!(View::new(&bytes, 20).unwrap().payload().len(), 4);
        assert_eq!(View::new(&bytes[..10], 12).unwrap().payload().len(), 2);
        assert_eq!(View::new(&bytes, 11).unwrap_err(), WireError::BadLength);
        assert_eq!(View::new(&bytes[..7], 12).unwrap_err(), WireError::Truncated);
        bytes[5] = 7;
        assert_eq!(View::new(&bytes, 20).unwrap_err(), WireError::BadLength);
    }

    #[test]
    fn checksum_of_zero_is_sent_as_ffff() {
        let mut bytes = [0; HEADER_LEN];
        Header {
            src_port: 0xfff6,
            dst_port: 1,
            payload_len: 0,
        }
        .emit(&mut bytes);
        set_checksum(&mut bytes, 0, 0);
        assert_eq!(bytes[6..], [0xff, 0xff]);
        let view = View::new(&bytes, 8).unwrap();
        assert!(view.has_checksum() && view.verify(0, 0));
    }

    proptest! {
        #[test]
        fn header_round_trips(src_port: u16, dst_port: u16, data in proptest::collection::vec(any::<u8>(), 0..50), pseudo: u32) {
            let mut bytes = vec![0; HEADER_LEN];
            Header { src_port, dst_port, payload_len: data.len() as u16 }.emit(&mut bytes);
            let sum = checksum::sum(&data);
            set_checksum(&mut bytes, pseudo, sum);
            bytes.extend(&data);
            let view = View::new(&bytes, bytes.len()).unwrap();
            prop_assert_eq!((view.src_port(), view.dst_port()), (src_port, dst_port));
            prop_assert_eq!(usize::from(view.len()), bytes.len());
            prop_assert_eq!(view.payload(), &data[..]);
            prop_assert!(view.has_checksum() && view.verify(pseudo, sum));
            prop_assert!(!view.verify(checksum::combine(pseudo, 1, false), sum));
        }

        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40), extra in 0usize..70000) {
            if let Ok(view) = View::new(&bytes, bytes.len() + extra) {
                prop_assert!(view.payload().len() + HEADER_LEN <= usize::from(view.len()));
                let _ = view.verify(u32::MAX, u32::MAX);
            }
        }
    }
}
