//! Datagrams to one peer that are being filled or wait for the socket.

use std::ops::Range;

use super::header::{Envelope, HEADER_LEN, Record, TAG_LEN};
use super::seal::Seal;
use super::socket::{MAX_SENT, Outgoing};

/// Number of staged bytes from which no more frames are taken.
const MAX_STAGED: usize = 1 << 20;
/// Number of staged bytes from which datagrams are sent before the flush.
const ENOUGH: usize = 1 << 16;
/// Most datagrams that the kernel cuts from one message (UDP_MAX_SEGMENTS is at
/// least 64).
const MAX_SEGMENTS: usize = 64;
/// Most bytes of a message, without IPv4 and UDP headers.
const MAX_MESSAGE: usize = 65_507;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// End of each datagram.
    ends: Vec<usize>,
    /// Number of datagrams with complete headers, to which no more frames are
    /// added.
    closed: usize,
    /// Number of datagrams that the kernel took.
    sent: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= MAX_STAGED
    }

    pub(super) fn has_enough(&self) -> bool {
        self.bytes.len() >= ENOUGH
    }

    /// Adds a record, in a new datagram if needed or if `apart` is true. `fill`
    /// writes the frame's bytes.
    pub(super) fn add(
        &mut self,
        lead: usize,
        limit: usize,
        apart: bool,
        record: &Record,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let len = record.header_len() + record.len;
        let start = self
            .ends
            .len()
            .checked_sub(2)
            .map_or(0, |before| self.ends[before]);
        let fits = self.closed < self.ends.len() && self.bytes.len() - start + len <= limit;
        if apart || !fits {
            self.bytes.resize(self.bytes.len() + lead, 0);
            self.ends.push(self.bytes.len());
        }
        record.emit(&mut self.bytes);
        let at = self.bytes.len();
        self.bytes.resize(at + record.len, 0);
        fill(&mut self.bytes[at..]);
        if let Some(end) = self.ends.last_mut() {
            *end = self.bytes.len();
        }
    }

    /// Writes the missing headers of datagrams, each with its own sequence number.
    pub(super) fn close(&mut self, seal: Option<&Seal>, mut envelope: impl FnMut() -> Envelope) {
        while self.closed < self.ends.len() {
            let range = self.range(self.closed);
            envelope().emit(&mut self.bytes[range.clone()]);
            if let Some(seal) = seal {
                seal.close(&mut self.bytes[range]);
            }
            self.closed += 1;
        }
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[index]
    }

    /// Returns the next closed but unsent messages, and how many datagrams each
    /// has. `whole` is true if the kernel cuts no messages.
    pub(super) fn messages(&self, whole: bool) -> ([Outgoing<'_>; MAX_SENT], [usize; MAX_SENT], usize) {
        let nothing = Outgoing {
            bytes: &[],
            segment: 0,
        };
        let (mut messages, mut datagrams, mut count) = ([nothing; MAX_SENT], [0; MAX_SENT], 0);
        let mut at = self.sent;
        while at < self.closed && count < MAX_SENT {
            let first = self.range(at);
            let len = first.len();
            let (mut end, mut taken) = (first.end, 1);
            while !whole && at + taken < self.closed && taken < MAX_SEGMENTS {
                let next = self.range(at + taken);
                if next.len() > len || next.end - first.start > MAX_MESSAGE {
                    break;
                }
                end = next.end;
                taken += 1;
                if next.len() < len {
                    break;
                }
            }
            messages[count] = Outgoing {
                bytes: &self.bytes[first.start..end],
                segment: if taken == 1 { 0 } else { len as u16 },
            };
            datagrams[count] = taken;
            count += 1;
            at += taken;
        }
        (messages, datagrams, count)
    }

    /// Removes the next datagrams, sent or not.
    pub(super) fn advance(&mut self, datagrams: usize) {
        self.sent = (self.sent + datagrams).min(self.closed);
        if self.sent == self.ends.len() {
            self.clear();
        } else if self.sent > 0 && self.bytes.len() > ENOUGH {
            let gone = self.ends[self.sent - 1];
            self.bytes.drain(..gone);
            self.ends.drain(..self.sent);
            self.ends.iter_mut().for_each(|end| *end -= gone);
            (self.closed, self.sent) = (self.closed - self.sent, 0);
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        (self.closed, self.sent) = (0, 0);
    }
}

/// Returns the number of bytes before a datagram's records.
pub(super) fn lead(sealed: bool) -> usize {
    HEADER_LEN + if sealed { TAG_LEN } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Checksum;
    use crate::udp::header::Kind;

    fn outbox(lens: &[usize], limit: usize) -> Outbox {
        let mut outbox = Outbox::default();
        for &len in lens {
            let record = Record {
                fragment: None,
                checksum: Checksum::Complete,
                len,
            };
            outbox.add(HEADER_LEN, limit, false, &record, |bytes| bytes.fill(len as u8));
        }
        outbox
    }

    fn envelope() -> Envelope {
        Envelope {
            kind: Kind::Frames,
            sealed: false,
            fabric: 0,
            token: 1,
            sequence: 0,
            sender: 2,
        }
    }

    #[test]
    fn datagrams_are_filled_within_limit() {
        let mut outbox = outbox(&[100, 100, 100, 500, 100], 300);
        outbox.close(None, envelope);
        let (messages, datagrams, count) = outbox.messages(true);
        let lens: Vec<_> = messages[..count]
            .iter()
            .map(|message| message.bytes.len())
            .collect();
        assert_eq!(
            lens,
            [
                HEADER_LEN + 208,
                HEADER_LEN + 104,
                HEADER_LEN + 504,
                HEADER_LEN + 104
            ]
        );
        assert_eq!(datagrams[..count], [1; 4]);
    }

    #[test]
    fn equal_datagrams_and_shorter_last_one_form_message() {
        let mut outbox = outbox(&[200, 200, 200, 150, 200, 210], 240);
        outbox.close(None, envelope);
        let (messages, datagrams, count) = outbox.messages(false);
        let segments: Vec<_> = messages[..count].iter().map(|message| message.segment).collect();
        assert_eq!(
            (&datagrams[..count], &segments[..]),
            (&[4, 1, 1][..], &[232, 0, 0][..])
        );
    }

    #[test]
    fn unsent_datagrams_stay() {
        let mut outbox = outbox(&[200; 10], 240);
        outbox.close(None, envelope);
        outbox.advance(3);
        let record = Record {
            fragment: None,
            checksum: Checksum::Complete,
            len: 5,
        };
        outbox.add(HEADER_LEN, 240, false, &record, |bytes| bytes.fill(1));
        let (.., count) = outbox.messages(true);
        assert_eq!(count, 7, "the last datagram is open");
        outbox.close(None, envelope);
        let (messages, _, count) = outbox.messages(true);
        assert_eq!((count, messages[7].bytes.len()), (8, HEADER_LEN + 9));
        outbox.advance(8);
        assert!(outbox.is_empty() && !outbox.is_full());
    }

    #[test]
    fn long_run_gives_several_messages() {
        let mut outbox = outbox(&[1400; 100], 1432);
        outbox.close(None, envelope);
        let (messages, datagrams, count) = outbox.messages(false);
        assert!(
            messages[..count]
                .iter()
                .all(|message| message.bytes.len() <= MAX_MESSAGE)
        );
        assert_eq!(datagrams[..count].iter().sum::<usize>(), 100);
    }
}
