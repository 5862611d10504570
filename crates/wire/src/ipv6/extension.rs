//! Extension headers between an IPv6 header and the transport header. The walk
//! is bounded and skips headers where RFC 8200 allows it.

use super::HEADER_LEN;
use crate::protocol::{DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};
use crate::put;

/// Most extension headers of a packet. RFC 8504 §5.3 permits such limits.
pub const MAX_EXTENSION_HEADERS: usize = 8;
/// Most options, padding included, of one extension header.
pub const MAX_OPTIONS: usize = 32;
/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

const OPTION_PAD1: u8 = 0;
const OPTION_PADN: u8 = 1;

/// Codes of the Parameter Problem message (RFC 4443 §3.4).
const ERRONEOUS_FIELD: u8 = 0;
const UNRECOGNIZED_NEXT_HEADER: u8 = 1;
const UNRECOGNIZED_OPTION: u8 = 2;

/// Offset of the payload length in an IPv6 header.
const PAYLOAD_LEN_AT: usize = 4;
/// Offset of the next header in an IPv6 header.
const NEXT_HEADER_AT: usize = 6;

/// The header that follows a packet's extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upper {
    /// The transport protocol, or the first unknown extension header. For a
    /// fragment, the next header that its fragment header names.
    pub protocol: u8,
    /// Offset of the header in bytes behind the IPv6 header.
    pub offset: usize,
    /// Offset in bytes, from the IPv6 header's start, of the field that names
    /// the protocol. A Parameter Problem message for it points there.
    pub named_at: usize,
    /// The fragment header, if the packet has one. The walk ends there. After
    /// reassembly, the whole payload is walked again.
    pub fragment: Option<Fragment>,
}

/// The content of a fragment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Offset in bytes of this fragment in the fragmentable part.
    pub offset: u16,
    /// Whether other fragments follow this one.
    pub more: bool,
    /// Identification; equal in all fragments of a packet.
    pub id: u32,
}

/// A fault that is reported to a packet's sender with an ICMPv6 Parameter
/// Problem message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem {
    /// The message's code.
    pub code: u8,
    /// The fault's offset in bytes from the IPv6 header's start.
    pub pointer: u32,
    /// Whether the message is sent even if the packet's destination is
    /// multicast.
    pub despite_multicast: bool,
}

/// Reason for which a packet is discarded because of its extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExtensionError {
    /// A header runs over the end of the packet or of the given bytes.
    #[error("extension headers are cut short")]
    Truncated,
    /// There are more than [`MAX_EXTENSION_HEADERS`] or [`MAX_OPTIONS`].
    #[error("too many extension headers or options")]
    TooMany,
    /// An unknown option asks the receiver to discard the packet silently.
    #[error("an unknown option asks to discard the packet")]
    Discard,
    /// A fault that the receiver reports to the sender.
    #[error("parameter problem {} at {}", .0.code, .0.pointer)]
    Problem(Problem),
}

type Result<T> = core::result::Result<T, ExtensionError>;

/// Walks the extension headers at the start of `bytes`, beginning with kind
/// `first`. `bytes` follow the IPv6 header, without padding, and may be cut
/// short. `payload_len` is their full length.
///
/// # Errors
///
/// The errors of [`ExtensionError`], for which the caller discards the packet.
#[inline]
pub fn walk(first: u8, bytes: &[u8], payload_len: usize) -> Result<Upper> {
    let upper = Upper {
        protocol: first,
        offset: 0,
        named_at: NEXT_HEADER_AT,
        fragment: None,
    };
    if matches!(first, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS) {
        walk_extensions(upper, bytes, payload_len)
    } else {
        Ok(upper)
    }
}

#[cold]
fn walk_extensions(mut upper: Upper, bytes: &[u8], payload_len: usize) -> Result<Upper> {
    for count in 0..=MAX_EXTENSION_HEADERS {
        let rest = bytes.get(upper.offset..).unwrap_or(&[]);
        let len = match upper.protocol {
            //= RFC 8200 §4.1
            // Hop-by-hop options may only be the first header (RFC 8200 §4.1).
            HOP_BY_HOP if count > 0 => return Err(problem(UNRECOGNIZED_NEXT_HEADER, upper.named_at)),
            HOP_BY_HOP | DESTINATION_OPTIONS => {
                let header = header_of(rest)?;
                check_options(header, HEADER_LEN + upper.offset)?;
                header.len()
            }
            ROUTING => routing_len(rest, HEADER_LEN + upper.offset)?,
            FRAGMENT => {
                let len = payload_len.saturating_sub(upper.offset + FRAGMENT_HEADER_LEN);
                upper.fragment = fragment(rest, len, HEADER_LEN + upper.offset)?;
                FRAGMENT_HEADER_LEN
            }
            _ => return Ok(upper),
        };
        upper.protocol = *rest.first().ok_or(ExtensionError::Truncated)?;
        upper.named_at = HEADER_LEN + upper.offset;
        upper.offset += len;
        if upper.fragment.is_some() {
            return Ok(upper);
        }
    }
    Err(ExtensionError::TooMany)
}

fn problem(code: u8, pointer: usize) -> ExtensionError {
    ExtensionError::Problem(Problem {
        code,
        pointer: pointer as u32,
        despite_multicast: false,
    })
}

/// Reads the header at the start of `bytes`. Its length field counts units of 8
/// bytes beyond the first 8.
fn header_of(bytes: &[u8]) -> Result<&[u8]> {
    let units = usize::from(*bytes.get(1).ok_or(ExtensionError::Truncated)?);
    bytes.get(..(units + 1) * 8).ok_or(ExtensionError::Truncated)
}

/// Returns a routing header's length if it has no segments left and is skipped.
fn routing_len(bytes: &[u8], at: usize) -> Result<usize> {
    let header = header_of(bytes)?;
    let segments_left = *header.get(3).ok_or(ExtensionError::Truncated)?;
    //= RFC 8200 §4.4
    //= RFC 5095 §3
    // No routing type is supported, not even the deprecated type 0.
    if segments_left == 0 {
        Ok(header.len())
    } else {
        Err(problem(ERRONEOUS_FIELD, at + 2))
    }
}

/// Reads a fragment header with `len` bytes behind it. Returns `None` if the
/// fragment is the whole packet (RFC 6946).
fn fragment(bytes: &[u8], len: usize, at: usize) -> Result<Option<Fragment>> {
    let &[_, _, high, low, a, b, c, d] = bytes.first_chunk().ok_or(ExtensionError::Truncated)?;
    let field = u16::from_be_bytes([high, low]);
    let fragment = Fragment {
        offset: field & !7,
        more: field & 1 != 0,
        id: u32::from_be_bytes([a, b, c, d]),
    };
    //= RFC 6946 §4
    if fragment.offset == 0 && !fragment.more {
        return Ok(None);
    }
    //= RFC 8200 §4.5
    if fragment.more && !len.is_multiple_of(8) {
        return Err(problem(ERRONEOUS_FIELD, PAYLOAD_LEN_AT));
    }
    if usize::from(fragment.offset) + len > usize::from(u16::MAX) {
        return Err(problem(ERRONEOUS_FIELD, at + 2));
    }
    if len == 0 {
        Err(ExtensionError::Truncated)
    } else {
        Ok(Some(fragment))
    }
}

/// Walks the options of a header `at` bytes from the IPv6 header's start. Only
/// padding is known. An unknown option's kind tells how to treat the packet
/// (RFC 8200 §4.2).
fn check_options(header: &[u8], at: usize) -> Result<()> {
    let mut next = 2;
    for _ in 0..MAX_OPTIONS {
        let Some(&kind) = header.get(next) else {
            return Ok(());
        };
        let len = match kind {
            OPTION_PAD1 => 1,
            _ => 2 + usize::from(*header.get(next + 1).ok_or(ExtensionError::Truncated)?),
        };
        if next + len > header.len() {
            return Err(ExtensionError::Truncated);
        }
        //= RFC 8200 §4.2
        match kind >> 6 {
            _ if kind == OPTION_PAD1 || kind == OPTION_PADN => {}
            0 => {}
            1 => return Err(ExtensionError::Discard),
            action => {
                let (code, pointer) = (UNRECOGNIZED_OPTION, (at + next) as u32);
                return Err(ExtensionError::Problem(Problem {
                    code,
                    pointer,
                    despite_multicast: action == 2,
                }));
            }
        }
        next += len;
    }
    if next < header.len() {
        Err(ExtensionError::TooMany)
    } else {
        Ok(())
    }
}

/// A fragment header for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Kind of the first header in the fragmentable part.
    pub next_header: u8,
    /// Range of the fragment. The offset is a multiple of 8.
    pub fragment: Fragment,
}

impl FragmentHeader {
    /// Writes the header and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`FRAGMENT_HEADER_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let [high, low] = (self.fragment.offset & !7 | u16::from(self.fragment.more)).to_be_bytes();
        let [a, b, c, d] = self.fragment.id.to_be_bytes();
        put(buffer, [self.next_header, 0, high, low, a, b, c, d]);
        FRAGMENT_HEADER_LEN
    }
}

#[cfg(test)]
mod tests;
