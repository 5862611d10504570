//! Control messages of IPv4 (RFC 792).

pub use crate::icmp::View;
use crate::icmp::{self, Fields};

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

/// An ICMPv4 message. In errors, `original` is the beginning of the packet that
/// caused the error, see [`crate::quote::Quote::v4`].
///
/// ```
/// use toehold_wire::icmpv4::{Message, View};
/// let message = Message::EchoRequest { id: 1, seq: 2, data: b"ping" };
/// let mut bytes = [0; 12];
/// assert_eq!(message.emit(&mut bytes), 12);
/// let view = View::new(&bytes)?;
/// assert!(view.verify(0, 0));
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
        let (first, second) = fields.halves();
        match kind {
            ECHO_REQUEST => Self::EchoRequest {
                id: first,
                seq: second,
                data: body,
            },
            ECHO_REPLY => Self::EchoReply {
                id: first,
                seq: second,
                data: body,
            },
            //= RFC 1191 §4
            DESTINATION_UNREACHABLE => Self::DestinationUnreachable {
                code,
                mtu: second,
                original: body,
            },
            TIME_EXCEEDED => Self::TimeExceeded { code, original: body },
            PARAMETER_PROBLEM => Self::ParameterProblem {
                pointer: word[0],
                code,
                original: body,
            },
            _ => Self::Other { kind, code },
        }
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields().len()
    }

    /// Returns `false`: a message is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    fn fields(&self) -> Fields<'a> {
        match *self {
            Self::EchoRequest { id, seq, data } => Fields::echo(ECHO_REQUEST, id, seq, data),
            Self::EchoReply { id, seq, data } => Fields::echo(ECHO_REPLY, id, seq, data),
            Self::DestinationUnreachable { code, mtu, original } => {
                Fields::about(DESTINATION_UNREACHABLE, code, icmp::halves(0, mtu), original)
            }
            Self::TimeExceeded { code, original } => Fields::about(TIME_EXCEEDED, code, [0; 4], original),
            Self::ParameterProblem {
                pointer,
                code,
                original,
            } => Fields::about(PARAMETER_PROBLEM, code, [pointer, 0, 0, 0], original),
            Self::Other { kind, code } => Fields::empty(kind, code),
        }
    }

    /// Writes the message with its checksum and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Message::len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        self.fields().emit(0, buffer)
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
    use crate::{WireError, checksum};
    use proptest::prelude::*;

    #[test]
    fn known_echo_request_is_read_and_written() {
        // From Linux's ping, with its checksum.
        let bytes = [0x08, 0x00, 0xf7, 0xfd, 0x00, 0x01, 0x00, 0x01];
        let view = View::new(&bytes).unwrap();
        assert!(view.verify(0, 0));
        assert_eq!(
            Message::parse(&view),
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
        assert_eq!(Message::parse(&View::new(&bytes).unwrap()), expected);
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
            prop_assert!(view.verify(0, 0));
            prop_assert_eq!(Message::parse(&view), message);
            // The checksum also holds if a part of the message lies elsewhere.
            let (head, tail) = bytes.split_at_mut(cut.min(message.len()));
            prop_assert!(View::new(head).unwrap().verify(0, checksum::sum(tail)));
            let before = [head[2], head[3]];
            set_checksum(head, checksum::sum(tail));
            prop_assert_eq!(before, [head[2], head[3]]);
        }

        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(view) = View::new(&bytes) {
                let _ = view.verify(0, u32::MAX);
                let message = Message::parse(&view);
                let mut again = [0; 40];
                message.emit(&mut again);
            }
        }
    }
}
