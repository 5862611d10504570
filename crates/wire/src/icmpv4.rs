//! Control messages of IPv4 (RFC 792).

use crate::{Result, WireError, icmp};

/// Bytes before a message's data or the packet that it quotes.
pub const HEADER_LEN: usize = icmp::HEADER_LEN;

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Codes of a Destination Unreachable message (RFC 792, RFC 1122 §3.2.2.1).
pub mod unreachable {
    /// No route to the network.
    pub const NET: u8 = 0;
    /// No route to the host, or it does not answer.
    pub const HOST: u8 = 1;
    /// The host does not know the protocol.
    pub const PROTOCOL: u8 = 2;
    /// No socket listens on the port.
    pub const PORT: u8 = 3;
    /// The packet is too long for a link and must not be fragmented (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Communication with the network is prohibited.
    pub const NET_PROHIBITED: u8 = 9;
    /// Communication with the host is prohibited.
    pub const HOST_PROHIBITED: u8 = 10;
    /// Communication is prohibited (RFC 1812 §5.2.7.1).
    pub const PROHIBITED: u8 = 13;
}

/// A received message.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    bytes: &'a [u8],
}

/// An ICMPv4 message. In errors, `original` is the beginning of the packet that
/// caused the error, see [`crate::quote::Quote::v4`].
///
/// ```
/// use toehold_wire::icmpv4::{Message, View};
/// let message = Message::EchoRequest { id: 1, seq: 2, data: b"ping" };
/// let mut bytes = [0; 12];
/// assert_eq!(message.emit(&mut bytes), 12);
/// let view = View::new(&bytes)?;
/// assert!(view.verify(0));
/// assert_eq!(view.message(), message);
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
        /// With [`unreachable::FRAGMENTATION_NEEDED`], the largest packet in
        /// bytes that fits (RFC 1191 §4). Old routers send 0.
        mtu: u16,
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
    /// A packet's header is invalid.
    ParameterProblem {
        /// With code 0, the fault's offset in bytes from the header's start.
        pointer: u8,
        /// The reason (RFC 792, RFC 1122 §3.2.2.5).
        code: u8,
        /// The packet's beginning.
        original: &'a [u8],
    },
    /// Any other message. A host may ignore it (RFC 1122 §3.2.2).
    Other {
        /// The message's type.
        kind: u8,
        /// The message's code.
        code: u8,
    },
}

impl<'a> View<'a> {
    /// Views the message at the start of `bytes`, which hold at least its
    /// header.
    ///
    /// # Errors
    ///
    /// `Truncated` if the header is not complete.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        if bytes.len() < HEADER_LEN {
            Err(WireError::Truncated)
        } else {
            Ok(Self { bytes })
        }
    }

    /// Returns whether the checksum is right. `rest` is the partial sum of the
    /// message's bytes behind the given ones (see [`crate::checksum`]).
    #[must_use]
    pub fn verify(&self, rest: u32) -> bool {
        icmp::is_valid(self.bytes, 0, rest)
    }

    /// Decodes the message. Data and quoted packets end with the given bytes.
    #[must_use]
    pub fn message(&self) -> Message<'a> {
        let Some((&[kind, code, _, _, a, b, c, d], body)) = self.bytes.split_first_chunk::<HEADER_LEN>()
        else {
            return Message::Other {
                kind: u8::MAX,
                code: 0,
            };
        };
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match kind {
            ECHO_REQUEST => Message::EchoRequest {
                id: first,
                seq: second,
                data: body,
            },
            ECHO_REPLY => Message::EchoReply {
                id: first,
                seq: second,
                data: body,
            },
            //= RFC 1191 §4
            DESTINATION_UNREACHABLE => Message::DestinationUnreachable {
                code,
                mtu: second,
                original: body,
            },
            TIME_EXCEEDED => Message::TimeExceeded { code, original: body },
            PARAMETER_PROBLEM => Message::ParameterProblem {
                pointer: a,
                code,
                original: body,
            },
            _ => Message::Other { kind, code },
        }
    }
}

impl Message<'_> {
    /// Length of the message in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        HEADER_LEN + self.parts().3.len()
    }

    /// Returns `false`: a message is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns type, code, the type's own word, and body.
    fn parts(&self) -> (u8, u8, [u8; 4], &[u8]) {
        match *self {
            Self::EchoRequest { id, seq, data } => (ECHO_REQUEST, 0, icmp::echo_word(id, seq), data),
            Self::EchoReply { id, seq, data } => (ECHO_REPLY, 0, icmp::echo_word(id, seq), data),
            Self::DestinationUnreachable { code, mtu, original } => {
                (DESTINATION_UNREACHABLE, code, icmp::echo_word(0, mtu), original)
            }
            Self::TimeExceeded { code, original } => (TIME_EXCEEDED, code, [0; 4], original),
            Self::ParameterProblem {
                pointer,
                code,
                original,
            } => (PARAMETER_PROBLEM, code, [pointer, 0, 0, 0], original),
            Self::Other { kind, code } => (kind, code, [0; 4], &[]),
        }
    }

    /// Writes the message with its checksum and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Message::len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let (kind, code, word, body) = self.parts();
        let len = icmp::emit(buffer, kind, code, word, body);
        set_checksum(&mut buffer[..len], 0);
        len
    }
}

/// Fills in the checksum of a message that begins with `bytes`. `rest` is the
/// partial sum of the message's other bytes (see [`crate::checksum`]). The
/// field's earlier value is ignored.
///
/// # Panics
///
/// If `bytes` is shorter than [`HEADER_LEN`].
pub fn set_checksum(bytes: &mut [u8], rest: u32) {
    icmp::set_checksum(bytes, 0, rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;
    use proptest::prelude::*;

    #[test]
    fn known_echo_request_is_read_and_written() {
        // From Linux's ping, with its checksum.
        let bytes = [0x08, 0x00, 0xf7, 0xfd, 0x00, 0x01, 0x00, 0x01];
        let view = View::new(&bytes).unwrap();
        assert!(view.verify(0));
        assert_eq!(
            view.message(),
            Message::EchoRequest {
                id: 1,
                seq: 1,
                data: &[]
            }
        );
        assert_eq!(View::new(&bytes[..7]).unwrap_err(), WireError::Truncated);
    }

    #[test]
    fn fragmentation_needed_has_mtu_of_router() {
        //= RFC 1191 §4
        let bytes = [3, 4, 0, 0, 0, 0, 0x05, 0x78, 0x45];
        let expected = Message::DestinationUnreachable {
            code: unreachable::FRAGMENTATION_NEEDED,
            mtu: 1400,
            original: &[0x45],
        };
        assert_eq!(View::new(&bytes).unwrap().message(), expected);
    }

    fn message(data: &[u8], pick: u8, code: u8, a: u16, b: u16) -> Message<'_> {
        match pick % 6 {
            0 => Message::EchoRequest { id: a, seq: b, data },
            1 => Message::EchoReply { id: a, seq: b, data },
            2 => Message::DestinationUnreachable {
                code,
                mtu: a,
                original: data,
            },
            3 => Message::TimeExceeded { code, original: data },
            4 => Message::ParameterProblem {
                pointer: b as u8,
                code,
                original: data,
            },
            _ => Message::Other { kind: 200, code },
        }
    }

    proptest! {
        #[test]
        fn message_round_trips(
            data in proptest::collection::vec(any::<u8>(), 0..60), pick: u8, code: u8, a: u16, b: u16, cut in 8usize..70
        ) {
            let message = message(&data, pick, code, a, b);
            let mut bytes = vec![0; message.len()];
            prop_assert_eq!(message.emit(&mut bytes), bytes.len());
            let view = View::new(&bytes).unwrap();
            prop_assert!(view.verify(0));
            prop_assert_eq!(view.message(), message);
            // The checksum also holds if a part of the message lies elsewhere.
            let (head, tail) = bytes.split_at_mut(cut.min(message.len()));
            prop_assert!(View::new(head).unwrap().verify(checksum::sum(tail)));
            let before = [head[2], head[3]];
            set_checksum(head, checksum::sum(tail));
            prop_assert_eq!(before, [head[2], head[3]]);
        }

        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(view) = View::new(&bytes) {
                let _ = view.verify(u32::MAX);
                let message = view.message();
                let mut again = [0; 40];
                message.emit(&mut again);
            }
        }
    }
}
