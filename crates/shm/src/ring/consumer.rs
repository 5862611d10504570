//! The receiving end of a ring.

use core::fmt;
use core::marker::PhantomData;

use super::Corrupt;
use super::incoming::Incoming;
use super::layout::RecordHeader;
use super::rings::Direction;
use crate::Gather;

/// Reads records, one at a time, in the order they were committed.
pub struct Consumer<'a> {
    incoming: Incoming<'a, Direction>,
    /// The record that was peeked at and not passed yet.
    peeked: Option<RecordHeader>,
}

impl<'a> Consumer<'a> {
    #[inline]
    pub(super) fn new(incoming: Incoming<'a, Direction>) -> Self {
        Self {
            incoming,
            peeked: None,
        }
    }

    /// The next record, if there is one. An error is final: the other side broke the rules, and its
    /// later data is meaningless.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Record<'_>>, Corrupt> {
        if self.peeked.is_none() {
            self.peeked = self.incoming.next()?;
        }
        let record = self.peeked.map(|header| Record {
            first: self.incoming.ring.words.body(self.incoming.position()).as_ptr(),
            header,
            _ring: PhantomData,
        });
        Ok(record)
    }

    /// Passes the record that was peeked at, if any.
    #[inline]
    pub fn advance(&mut self) {
        if let Some(header) = self.peeked.take() {
            self.incoming.advance(header);
        }
    }

    /// Lets the other side reuse the space of all passed records; call it once a burst. Returns
    /// `true` if the other side waits for space, and its doorbell must be rung.
    #[inline]
    #[must_use = "if this is true, the producer must be rung"]
    pub fn release(&mut self) -> bool {
        self.incoming.release()
    }

    /// Whether the other side waits for space that it may not know to be free yet. If so, its
    /// doorbell must be rung. Call this after [`Consumer::prepare_sleep`], and now and then when
    /// there are no records: [`Consumer::release`] may not have seen a wait that was announced
    /// meanwhile.
    #[inline]
    #[must_use = "if this is true, the producer must be rung"]
    pub fn room_wanted(&mut self) -> bool {
        self.incoming.room_wanted()
    }

    /// End of the last record passed, in bytes since the beginning.
    #[inline]
    pub fn position(&self) -> u64 {
        self.incoming.position()
    }

    /// Announces that this side will sleep until rung. Returns `false` if there is a record, and
    /// nothing was announced. Release all passed records first.
    #[inline]
    pub fn prepare_sleep(&mut self) -> bool {
        self.incoming.prepare_sleep()
    }

    /// The first half of [`Consumer::prepare_sleep`], for a thread that sleeps on many rings. Call
    /// [`fence_before_sleep`](super::fence_before_sleep) once for all of them afterwards,
    /// everywhere if this is true for any. Then call [`Consumer::confirm_sleep`] on each.
    #[inline]
    #[must_use = "it says which fence has to follow"]
    pub fn announce_sleep(&mut self) -> bool {
        self.incoming.announce_sleep()
    }

    /// The second half of [`Consumer::prepare_sleep`]. Returns `false` if there is a record, and
    /// the announcement was withdrawn.
    #[inline]
    pub fn confirm_sleep(&mut self) -> bool {
        self.incoming.confirm_sleep()
    }

    /// Withdraws the announcement, if there is one.
    #[inline]
    pub fn finish_sleep(&mut self) {
        self.incoming.finish_sleep();
    }

    /// Continues for a killed process that used this end. The killed process may have seen the next
    /// record. All space before it is released, and no sleep is announced. Ring the other side
    /// afterwards, since the killed process may have been about to.
    pub fn mend(&mut self) {
        self.incoming.mend();
    }
}

impl fmt::Debug for Consumer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

/// A record of the other side. Kind and length are fixed. The bytes may change as long as they lie
/// in the ring, so callers can only copy them out.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    first: *const u8,
    header: RecordHeader,
    _ring: PhantomData<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// The sender's kind of the record: from 1 to 65534.
    #[inline]
    pub fn kind(&self) -> u16 {
        self.header.kind
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.header.len as usize
    }

    /// Whether the record has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.header.len == 0
    }

    /// The bytes from `offset` on, at most `len`, in place.
    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Gather<'a> {
        let offset = offset.min(self.len());
        let mut gather = Gather::EMPTY;
        // SAFETY: the checked header describes bytes in the ring. The ring is mapped as long as the
        // consumer, which the record borrows. It is mapped for reading only, or lies in a segment,
        // whose bytes are written through raw pointers only.
        unsafe { gather.push_raw(self.first.add(offset), len.min(self.len() - offset)) };
        gather
    }

    /// Copies from the byte at `offset` on into `into`, as much as fits, and returns the number of
    /// bytes.
    #[inline]
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) -> usize {
        let offset = offset.min(self.len());
        let len = into.len().min(self.len() - offset);
        // SAFETY: the checked header describes bytes in the ring, mapped as long as the consumer.
        // `into` is memory of this process, so it is no part of the ring.
        unsafe { crate::copy::copy_racing(self.first.add(offset), into.as_mut_ptr(), len) };
        len
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("kind", &self.kind())
            .field("len", &self.len())
            .finish()
    }
}
