//! The format of a datagram. All numbers are big-endian.
//!
//! ```text
//!  0  magic, version, kind      24  tag, if the kind says so (16 bytes)
//!  4  fabric                        records, or a hello
//!  8  token of the receiver
//! 16  sequence                  record: length, kind, checksum's state, bytes
//! 24  sender
//! ```

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Checksum;

const MAGIC: u16 = 0x7e05;
const VERSION: u8 = 1;
const FRAMES: u8 = 0;
const HELLO: u8 = 1;
const SEALED: u8 = 0x80;

/// The header of every datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    magic: U16,
    version: u8,
    kind: u8,
    fabric: U32,
    token: U64,
    sequence: U64,
    sender: U32,
}

pub(super) const HEADER_LEN: usize = size_of::<Header>();
pub(super) const TAG_LEN: usize = 16;
const _: () = assert!(HEADER_LEN == 28);

/// The content of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Frames,
    Hello,
}

/// A valid header with native numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) kind: Kind,
    /// Whether a tag follows.
    pub(super) sealed: bool,
    pub(super) fabric: u32,
    /// The token that the receiver handed to the sender; zero if the sender knows
    /// none.
    pub(super) token: u64,
    /// Counter of the datagrams to this receiver.
    pub(super) sequence: u64,
    /// A random number of the sender, by which it recognises its own datagrams.
    pub(super) sender: u32,
}

/// Reason for which a header is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHeader {
    Malformed,
    Version,
}

impl Envelope {
    pub(super) fn emit(&self, into: &mut [u8]) {
        let kind = match self.kind {
            Kind::Frames => FRAMES,
            Kind::Hello => HELLO,
        };
        let header = Header {
            magic: MAGIC.into(),
            version: VERSION,
            kind: kind | if self.sealed { SEALED } else { 0 },
            fabric: self.fabric.into(),
            token: self.token.into(),
            sequence: self.sequence.into(),
            sender: self.sender.into(),
        };
        into[..HEADER_LEN].copy_from_slice(header.as_bytes());
    }

    /// Returns the header of a datagram and the bytes behind it.
    pub(super) fn parse(datagram: &[u8]) -> Result<(Envelope, &[u8]), NoHeader> {
        let (header, rest) = Header::read_from_prefix(datagram).map_err(|_| NoHeader::Malformed)?;
        if header.magic.get() != MAGIC {
            return Err(NoHeader::Malformed);
        }
        if header.version != VERSION {
            return Err(NoHeader::Version);
        }
        let kind = match header.kind & !SEALED {
            FRAMES => Kind::Frames,
            HELLO => Kind::Hello,
            _ => return Err(NoHeader::Malformed),
        };
        let envelope = Envelope {
            kind,
            sealed: header.kind & SEALED != 0,
            fabric: header.fabric.get(),
            token: header.token.get(),
            sequence: header.sequence.get(),
            sender: header.sender.get(),
        };
        Ok((envelope, rest))
    }
}

/// The introduction of a node to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Hello {
    /// The token that datagrams to the sender must carry.
    token: U64,
    pub(super) address: [u8; 6],
    flags: u8,
    reserved: u8,
}

pub(super) const HELLO_LEN: usize = size_of::<Hello>();
const _: () = assert!(HELLO_LEN == 16);
const ANSWER_WANTED: u8 = 1;

impl Hello {
    pub(super) fn new(token: u64, address: [u8; 6], answer_wanted: bool) -> Hello {
        Hello {
            token: token.into(),
            address,
            flags: if answer_wanted { ANSWER_WANTED } else { 0 },
            reserved: 0,
        }
    }

    /// Parses a hello. A later version may be longer.
    pub(super) fn parse(bytes: &[u8]) -> Option<Hello> {
        let (hello, _) = Hello::read_from_prefix(bytes).ok()?;
        (hello.address[0] & 1 == 0 && hello.token.get() != 0).then_some(hello)
    }

    pub(super) fn token(&self) -> u64 {
        self.token.get()
    }

    pub(super) fn wants_answer(&self) -> bool {
        self.flags & ANSWER_WANTED != 0
    }
}

/// The header of each frame or fragment.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordHeader {
    len: U16,
    kind: u8,
    checksum: u8,
}

pub(super) const RECORD_LEN: usize = size_of::<RecordHeader>();
const FRAME: u8 = 0;
const FRAGMENT: u8 = 1;

/// The part of a frame that a fragment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Fragment {
    pub(super) id: U32,
    pub(super) offset: U16,
    pub(super) total: U16,
}

pub(super) const FRAGMENT_LEN: usize = size_of::<Fragment>();
const _: () = assert!(RECORD_LEN == 4 && FRAGMENT_LEN == 8);

/// A record of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) fragment: Option<Fragment>,
    pub(super) checksum: Checksum,
    /// Length in bytes of the frame, or of this part of it.
    pub(super) len: usize,
}

impl Record {
    /// Length in bytes of the record's headers.
    pub(super) fn header_len(&self) -> usize {
        RECORD_LEN + self.fragment.map_or(0, |_| FRAGMENT_LEN)
    }

    /// Appends the record's headers.
    pub(super) fn emit(&self, into: &mut Vec<u8>) {
        let header = RecordHeader {
            len: ((self.header_len() - RECORD_LEN + self.len) as u16).into(),
            kind: if self.fragment.is_some() { FRAGMENT } else { FRAME },
            checksum: match self.checksum {
                Checksum::Complete => 0,
                Checksum::Partial => 1,
                Checksum::Verified => 2,
            },
        };
        into.extend_from_slice(header.as_bytes());
        if let Some(fragment) = &self.fragment {
            into.extend_from_slice(fragment.as_bytes());
        }
    }

    /// Parses the record at the start of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Option<Record> {
        let (header, rest) = RecordHeader::read_from_prefix(bytes).ok()?;
        let content = rest.get(..usize::from(header.len.get()))?;
        let checksum = match header.checksum {
            0 => Checksum::Complete,
            1 => Checksum::Partial,
            2 => Checksum::Verified,
            _ => return None,
        };
        let (fragment, len) = match header.kind {
            FRAME => (None, content.len()),
            FRAGMENT => {
                let (fragment, part) = Fragment::read_from_prefix(content).ok()?;
                (Some(fragment), part.len())
            }
            _ => return None,
        };
        (len > 0).then_some(Record {
            fragment,
            checksum,
            len,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn envelope() -> Envelope {
        Envelope {
            kind: Kind::Frames,
            sealed: true,
            fabric: 7,
            token: 8,
            sequence: 9,
            sender: 10,
        }
    }

    #[test]
    fn header_round_trips() {
        let mut bytes = [0; HEADER_LEN + 3];
        for kind in [Kind::Frames, Kind::Hello] {
            for sealed in [false, true] {
                let envelope = Envelope {
                    kind,
                    sealed,
                    ..envelope()
                };
                envelope.emit(&mut bytes);
                assert_eq!(Envelope::parse(&bytes), Ok((envelope, &[0; 3][..])));
            }
        }
    }

    #[test]
    fn foreign_headers_return_error() {
        let mut bytes = [0; HEADER_LEN];
        envelope().emit(&mut bytes);
        assert_eq!(Envelope::parse(&bytes[1..]), Err(NoHeader::Malformed));
        let changed = |at: usize, value: u8| {
            let mut changed = bytes;
            changed[at] = value;
            Envelope::parse(&changed).map(drop)
        };
        assert_eq!(changed(0, 0), Err(NoHeader::Malformed));
        assert_eq!(changed(2, 2), Err(NoHeader::Version));
        assert_eq!(changed(3, 2), Err(NoHeader::Malformed));
    }

    #[test]
    fn hello_requires_token_and_unicast_address() {
        let hello = Hello::new(5, [2, 0, 0, 0, 0, 1], true);
        assert_eq!(Hello::parse(hello.as_bytes()), Some(hello));
        assert!(hello.wants_answer() && hello.token() == 5);
        assert_eq!(Hello::parse(&hello.as_bytes()[1..]), None);
        assert_eq!(
            Hello::parse(Hello::new(0, [2; 6], true).as_bytes()),
            None,
            "no token"
        );
        assert_eq!(
            Hello::parse(Hello::new(5, [1; 6], true).as_bytes()),
            None,
            "a group"
        );
    }

    proptest! {
        #[test]
        fn record_round_trips(len in 1usize..3000, fragment: Option<(u32, u16, u16)>, checksum in 0usize..3) {
            let fragment = fragment.map(|(id, offset, total)| Fragment { id: id.into(), offset: offset.into(), total: total.into() });
            let checksum = [Checksum::Complete, Checksum::Partial, Checksum::Verified][checksum];
            let record = Record { fragment, checksum, len };
            let mut bytes = Vec::new();
            record.emit(&mut bytes);
            prop_assert_eq!(bytes.len(), record.header_len());
            bytes.resize(bytes.len() + len, 0);
            prop_assert_eq!(Record::parse(&bytes), Some(record));
            prop_assert_eq!(Record::parse(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn parse_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Envelope::parse(&bytes);
            let _ = Hello::parse(&bytes);
            if let Some(record) = Record::parse(&bytes) {
                prop_assert!(record.header_len() + record.len <= bytes.len());
            }
        }
    }
}
