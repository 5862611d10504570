//! The format that ICMP messages of both IP versions share: type, code,
//! checksum, four bytes of the type's own, and a body.

use crate::{Result, WireError, checksum, put};

/// Bytes before the body.
pub(crate) const HEADER_LEN: usize = 8;

const CHECKSUM_AT: usize = 2;

/// A received message of either IP version.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    bytes: &'a [u8],
}

/// The fields of a message but for its checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    /// The four bytes whose meaning the type decides.
    pub(crate) word: [u8; 4],
    pub(crate) body: &'a [u8],
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

    /// Returns whether the checksum is right, given two partial sums (see
    /// [`crate::checksum`]): of the pseudo-header, and of the message's bytes
    /// behind the given ones. ICMPv4 has no pseudo-header: its sum is 0.
    #[must_use]
    pub fn verify(&self, pseudo_header: u32, rest: u32) -> bool {
        checksum::is_valid(sum(self.bytes, pseudo_header, rest))
    }

    /// All given bytes of the message.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The message's fields. The body ends with the given bytes.
    pub(crate) fn fields(&self) -> Fields<'a> {
        let Some((&[kind, code, _, _, a, b, c, d], body)) = self.bytes.split_first_chunk::<HEADER_LEN>()
        else {
            // `new` has refused such a message: the type is one without a meaning.
            return Fields::empty(u8::MAX, 0);
        };
        Fields {
            kind,
            code,
            word: [a, b, c, d],
            body,
        }
    }
}

impl<'a> Fields<'a> {
    /// The fields of a message without a word and a body.
    pub(crate) fn empty(kind: u8, code: u8) -> Self {
        Self::about(kind, code, [0; 4], &[])
    }

    /// The fields of an error about the packet that begins with `original`.
    pub(crate) fn about(kind: u8, code: u8, word: [u8; 4], original: &'a [u8]) -> Self {
        Self {
            kind,
            code,
            word,
            body: original,
        }
    }

    /// The fields of an echo message.
    pub(crate) fn echo(kind: u8, id: u16, seq: u16, data: &'a [u8]) -> Self {
        Self {
            kind,
            code: 0,
            word: halves(id, seq),
            body: data,
        }
    }

    /// The two numbers in the word: identifier and sequence number of an echo message.
    pub(crate) fn halves(&self) -> (u16, u16) {
        let [a, b, c, d] = self.word;
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }

    /// Length of the message in bytes.
    pub(crate) fn len(&self) -> usize {
        HEADER_LEN + self.body.len()
    }

    /// Writes the message with its checksum and returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Fields::len`].
    pub(crate) fn emit(&self, pseudo_header: u32, buffer: &mut [u8]) -> usize {
        let len = emit(buffer, self.kind, self.code, self.word, self.body);
        set_checksum(&mut buffer[..len], pseudo_header, 0);
        len
    }
}

/// Encodes two numbers as a message's word.
pub(crate) fn halves(first: u16, second: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
    [a, b, c, d]
}

/// Sums a message. `start` is the partial sum of the bytes before `bytes`,
/// `rest` of the bytes behind them.
fn sum(bytes: &[u8], start: u32, rest: u32) -> u32 {
    let sum = checksum::combine(start, checksum::sum(bytes), false);
    checksum::combine(sum, rest, !bytes.len().is_multiple_of(2))
}

/// Fills in the checksum. `start` is the partial sum of the bytes before
/// `bytes`, `rest` of the bytes behind them.
pub(crate) fn set_checksum(bytes: &mut [u8], start: u32, rest: u32) {
    bytes[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
    let sum = checksum::finish(sum(bytes, start, rest));
    bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Writes a message without its checksum and returns its length.
pub(crate) fn emit(buffer: &mut [u8], kind: u8, code: u8, word: [u8; 4], body: &[u8]) -> usize {
    let [a, b, c, d] = word;
    put(buffer, [kind, code, 0, 0, a, b, c, d]);
    buffer[HEADER_LEN..HEADER_LEN + body.len()].copy_from_slice(body);
    HEADER_LEN + body.len()
}
