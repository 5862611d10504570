//! The format that ICMP messages of both IP versions share: type, code,
//! checksum, four bytes of the type's own, and a body.

use crate::{checksum, put};

/// Bytes before the body.
pub(crate) const HEADER_LEN: usize = 8;

const CHECKSUM_AT: usize = 2;

/// Returns whether a message's checksum is right. `start` is the partial sum of
/// the bytes before `bytes`, `rest` of the bytes behind them.
pub(crate) fn is_valid(bytes: &[u8], start: u32, rest: u32) -> bool {
    let sum = checksum::combine(start, checksum::sum(bytes), false);
    checksum::is_valid(checksum::combine(sum, rest, !bytes.len().is_multiple_of(2)))
}

/// Fills in the checksum. `start` and `rest` are as in [`is_valid`].
pub(crate) fn set_checksum(bytes: &mut [u8], start: u32, rest: u32) {
    bytes[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
    let sum = checksum::combine(start, checksum::sum(bytes), false);
    let sum = checksum::finish(checksum::combine(sum, rest, !bytes.len().is_multiple_of(2)));
    bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Writes a message without its checksum and returns its length.
pub(crate) fn emit(buffer: &mut [u8], kind: u8, code: u8, word: [u8; 4], body: &[u8]) -> usize {
    let [a, b, c, d] = word;
    put(buffer, [kind, code, 0, 0, a, b, c, d]);
    buffer[HEADER_LEN..HEADER_LEN + body.len()].copy_from_slice(body);
    HEADER_LEN + body.len()
}

/// Encodes identifier and sequence number of an echo message.
pub(crate) fn echo_word(id: u16, seq: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (id.to_be_bytes(), seq.to_be_bytes());
    [a, b, c, d]
}
