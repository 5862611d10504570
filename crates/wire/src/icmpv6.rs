//! Control messages of IPv6 (RFC 4443). Neighbour discovery messages, which
//! ICMPv6 carries, have their own module, [`crate::ndisc`].

use core::net::Ipv6Addr;

pub use crate::icmp::View;
use crate::icmp::{self, Fields};
use crate::{checksum, protocol};

/// Bytes before a message's data or the packet that it quotes.
pub const HEADER_LEN: usize = icmp::HEADER_LEN;

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// Codes of a Destination Unreachable message (RFC 4443 §3.1).
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Communication is prohibited.
    pub const PROHIBITED: u8 = 1;
    /// The destination is beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The address does not answer.
    pub const ADDRESS: u8 = 3;
    /// No socket listens on the port.
    pub const PORT: u8 = 4;
    /// The source address failed a policy.
    pub const POLICY: u8 = 5;
    /// The route rejects.
    pub const REJECTED: u8 = 6;
}

/// Codes of a Parameter Problem message (RFC 4443 §3.4).
pub mod problem {
    /// A header field is invalid.
    pub const ERRONEOUS_FIELD: u8 = 0;
    /// The receiver does not know a next header.
    pub const UNRECOGNIZED_NEXT_HEADER: u8 = 1;
    /// The receiver does not know an option.
    pub const UNRECOGNIZED_OPTION: u8 = 2;
}

/// An ICMPv6 message. In errors, `original` is the beginning of the packet that
/// caused the error, see [`crate::quote::Quote::v6`].
///
/// ```
/// use std::net::Ipv6Addr;
/// use toehold_wire::icmpv6::{Message, View, pseudo_header};
/// let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
/// let message = Message::EchoRequest { id: 1, seq: 2, data: b"ping" };
/// let mut bytes = [0; 12];
/// assert_eq!(message.emit(src, dst, &mut bytes), 12);
/// let view = View::new(&bytes)?;
/// assert!(view.verify(pseudo_header(src, dst, 12), 0));
/// assert_eq!(Message::parse(&view), message);
/// # Ok::<(), toehold_wire::WireError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message<'a> {
    /// Asks a host for an [`Message::EchoReply`].
    EchoRequest {
        /// Identifies the sender's process or socket.
        id: u16,
        /// Sequence number of the request.
        seq: u16,
        /// Data that the reply has to repeat.
        data: &'a [u8],
    },
    /// Answers an [`Message::EchoRequest`].
    EchoReply {
        /// The request's identifier.
        id: u16,
        /// The request's sequence number.
        seq: u16,
        /// The request's data.
        data: &'a [u8],
    },
    /// A packet could not be delivered.
    DestinationUnreachable {
        /// The reason, see [`mod@unreachable`].
        code: u8,
        /// The packet's beginning.
        original: &'a [u8],
    },
    /// A packet is too long for a link on its path.
    PacketTooBig {
        /// The largest packet in bytes that fits.
        mtu: u32,
        /// The packet's beginning.
        original: &'a [u8],
    },
    /// A packet used up its hops (code 0), or its fragments did not arrive in
    /// time (code 1).
    TimeExceeded {
        /// 0 for hops, 1 for fragments.
        code: u8,
        /// The packet's beginning.
        original: &'a [u8],
    },
    /// A packet's headers are invalid.
    ParameterProblem {
        /// The reason, see [`problem`].
        code: u8,
        /// The fault's offset in bytes from the packet's start.
        pointer: u32,
        /// The packet's beginning.
        original: &'a [u8],
    },
    /// A neighbour discovery message, which [`crate::ndisc::Message::parse`]
    /// reads.
    NeighborDiscovery,
    /// Any other message. A type below 128 is an error about the quoted packet.
    /// A type from 128 on is ignored (RFC 4443 §2.4).
    Other {
        /// The message's type.
        kind: u8,
        /// The message's code.
        code: u8,
    },
}

impl<'a> Message<'a> {
    /// Decodes the message of a view. Data and quoted packets end with the view's
    /// bytes.
    #[must_use]
    pub fn parse(view: &View<'a>) -> Self {
        let fields = view.fields();
        let Fields {
            kind,
            code,
            word,
            body,
        } = fields;
        let (id, seq) = fields.halves();
        match kind {
            ECHO_REQUEST => Self::EchoRequest { id, seq, data: body },
            ECHO_REPLY => Self::EchoReply { id, seq, data: body },
            DESTINATION_UNREACHABLE => Self::DestinationUnreachable { code, original: body },
            PACKET_TOO_BIG => Self::PacketTooBig {
                mtu: u32::from_be_bytes(word),
                original: body,
            },
            TIME_EXCEEDED => Self::TimeExceeded { code, original: body },
            PARAMETER_PROBLEM => Self::ParameterProblem {
                code,
                pointer: u32::from_be_bytes(word),
                original: body,
            },
            crate::ndisc::FIRST_TYPE..=crate::ndisc::LAST_TYPE => Self::NeighborDiscovery,
            _ => Self::Other { kind, code },
        }
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields().map_or(0, |fields| fields.len())
    }

    /// Returns whether [`Message::emit`] writes nothing: true for
    /// [`Message::NeighborDiscovery`] only.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields().is_none()
    }

    fn fields(&self) -> Option<Fields<'a>> {
        Some(match *self {
            Self::EchoRequest { id, seq, data } => Fields::echo(ECHO_REQUEST, id, seq, data),
            Self::EchoReply { id, seq, data } => Fields::echo(ECHO_REPLY, id, seq, data),
            Self::DestinationUnreachable { code, original } => {
                Fields::about(DESTINATION_UNREACHABLE, code, [0; 4], original)
            }
            Self::PacketTooBig { mtu, original } => {
                Fields::about(PACKET_TOO_BIG, 0, mtu.to_be_bytes(), original)
            }
            Self::TimeExceeded { code, original } => Fields::about(TIME_EXCEEDED, code, [0; 4], original),
            Self::ParameterProblem {
                code,
                pointer,
                original,
            } => Fields::about(PARAMETER_PROBLEM, code, pointer.to_be_bytes(), original),
            Self::NeighborDiscovery => return None,
            Self::Other { kind, code } => Fields::empty(kind, code),
        })
    }

    /// Writes the message with the checksum for a packet from `src` to `dst`.
    /// Returns the message's length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Message::len`].
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, buffer: &mut [u8]) -> usize {
        let Some(fields) = self.fields() else {
            return 0;
        };
        fields.emit(pseudo_header(src, dst, fields.len()), buffer)
    }
}

/// Returns the partial sum of the pseudo-header of a message of `len` bytes.
#[must_use]
pub fn pseudo_header(src: Ipv6Addr, dst: Ipv6Addr, len: usize) -> u32 {
    //= RFC 4443 §2.3
    checksum::pseudo_header_v6(src, dst, protocol::ICMPV6, len as u32)
}

/// Fills in the checksum of a message that begins with `bytes`. The caller gives
/// the partial sums of the pseudo-header and of the message's other bytes (see
/// [`crate::checksum`]). The field's earlier value is ignored.
///
/// # Panics
///
/// If `bytes` is shorter than [`HEADER_LEN`].
pub fn set_checksum(bytes: &mut [u8], pseudo_header: u32, rest: u32) {
    icmp::set_checksum(bytes, pseudo_header, rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SRC: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const DST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

    #[test]
    fn checksum_covers_addresses() {
        //= RFC 4443 §2.3
        let mut bytes = [0; 8];
        Message::EchoRequest {
            id: 1,
            seq: 1,
            data: &[],
        }
        .emit(SRC, DST, &mut bytes);
        let view = View::new(&bytes).unwrap();
        assert!(view.verify(pseudo_header(SRC, DST, 8), 0));
        assert!(!view.verify(pseudo_header(SRC, SRC, 8), 0));
        assert!(!view.verify(0, 0));
        // 2 * 0xfe80 + 1 + 2 + 8 + 58 + 0x8000 + 1 + 1
        assert_eq!(
            bytes[2..4],
            (!(0x1_fd00u32 + 0x8000 + 71 - 0xffff - 0xffff) as u16).to_be_bytes()
        );
    }

    #[test]
    fn neighbour_discovery_has_its_own_variant() {
        for kind in 133..=137 {
            assert_eq!(
                Message::parse(&View::new(&[kind, 0, 0, 0, 0, 0, 0, 0]).unwrap()),
                Message::NeighborDiscovery
            );
        }
        assert_eq!(Message::NeighborDiscovery.emit(SRC, DST, &mut []), 0);
        assert!(Message::NeighborDiscovery.is_empty());
    }

    fn message(data: &[u8], pick: u8, code: u8, a: u16, word: u32) -> Message<'_> {
        match pick % 7 {
            0 => Message::EchoRequest {
                id: a,
                seq: word as u16,
                data,
            },
            1 => Message::EchoReply {
                id: a,
                seq: word as u16,
                data,
            },
            2 => Message::DestinationUnreachable { code, original: data },
            3 => Message::PacketTooBig {
                mtu: word,
                original: data,
            },
            4 => Message::TimeExceeded { code, original: data },
            5 => Message::ParameterProblem {
                pointer: word,
                code,
                original: data,
            },
            _ => Message::Other { kind: 200, code },
        }
    }

    proptest! {
        #[test]
        fn message_round_trips(
            data in proptest::collection::vec(any::<u8>(), 0..60), pick: u8, code: u8, a: u16, word: u32, cut in 8usize..70
        ) {
            let message = message(&data, pick, code, a, word);
            let mut bytes = vec![0; message.len()];
            prop_assert_eq!(message.emit(SRC, DST, &mut bytes), bytes.len());
            let pseudo = pseudo_header(SRC, DST, bytes.len());
            let view = View::new(&bytes).unwrap();
            prop_assert!(view.verify(pseudo, 0));
            prop_assert_eq!(Message::parse(&view), message);
            // The checksum also holds if a part of the message lies elsewhere.
            let (head, tail) = bytes.split_at_mut(cut.min(message.len()));
            prop_assert!(View::new(head).unwrap().verify(pseudo, checksum::sum(tail)));
            let before = [head[2], head[3]];
            set_checksum(head, pseudo, checksum::sum(tail));
            prop_assert_eq!(before, [head[2], head[3]]);
        }

        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(view) = View::new(&bytes) {
                let _ = view.verify(u32::MAX, u32::MAX);
                let message = Message::parse(&view);
                let mut again = [0; 40];
                message.emit(SRC, DST, &mut again);
            }
        }
    }
}
