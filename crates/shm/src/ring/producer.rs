//! The sending end of a ring.

use core::fmt;
use core::ops::{Deref, DerefMut};

use super::Corrupt;
use super::layout::{PADDING, RecordHeader};
use super::outgoing::Outgoing;
use super::protocol::ReserveError;
use super::rings::Direction;
use crate::copy::prepare_write;

/// Writes records. The other side sees them once they are published, a burst at a time.
pub struct Producer<'a> {
    outgoing: Outgoing<'a, Direction>,
}

impl<'a> Producer<'a> {
    #[inline]
    pub(super) fn new(outgoing: Outgoing<'a, Direction>) -> Self {
        Self { outgoing }
    }

    /// Bytes of the longest record.
    pub fn max_record(&self) -> usize {
        self.outgoing.max_record() as usize
    }

    /// Reserves room for a record of `len` bytes. The two sides agree upon `kind`, from 1 to 65534.
    /// The record exists once [committed](Reservation::commit); dropping the reservation leaves
    /// nothing behind.
    ///
    /// # Panics
    ///
    /// If `kind` is 0 or 65535.
    #[inline]
    pub fn reserve(&mut self, kind: u16, len: usize) -> Result<Reservation<'_>, ReserveError> {
        assert!(kind != 0 && kind != PADDING, "record kinds are from 1 to 65534");
        let position = self.outgoing.reserve(len as u64)?;
        let header = RecordHeader::new(position, kind, len as u32);
        let Outgoing { ring, state } = &mut self.outgoing;
        let body = ring.words.body(position);
        // SAFETY: whatever the state, `reserve` found `len` bytes behind the header at `position`
        // in the ring. Only processes of this node can write them. Of these, only the holder of the
        // producer's state does, through this reservation, which borrows the state. The bytes are
        // initialised: zero, or of an earlier record.
        let bytes = unsafe { core::slice::from_raw_parts_mut(body.as_ptr(), len) };
        Ok(Reservation {
            outgoing: Outgoing { ring, state },
            header,
            bytes,
        })
    }

    /// Lets the other side see all committed records. Returns `true` if it sleeps, and its doorbell
    /// must be rung.
    #[inline]
    #[must_use = "if this is true, the consumer must be rung"]
    pub fn publish(&mut self) -> bool {
        self.outgoing.publish()
    }

    /// End of the last committed record, in bytes since the beginning.
    #[inline]
    pub fn position(&self) -> u64 {
        self.outgoing.position()
    }

    /// The position up to which the other side has consumed the records, at most
    /// [`Producer::position`]. An error is final.
    #[inline]
    pub fn consumed(&mut self) -> Result<u64, Corrupt> {
        self.outgoing.consumed()
    }

    /// Announces that this side waits for room for a record of `len` bytes; the other side then
    /// rings when there may be some. Returns `false` if there is room now (or an error that a
    /// reservation reports), and nothing was announced.
    pub fn prepare_wait(&mut self, len: usize) -> bool {
        self.outgoing
            .prepare_wait((len as u64).min(self.outgoing.max_record()))
    }

    /// The first half of [`Producer::prepare_wait`], as
    /// [`Consumer::announce_sleep`](super::Consumer::announce_sleep) is of the consumer's sleep.
    pub fn announce_wait(&mut self) {
        self.outgoing.announce_wait();
    }

    /// The second half of [`Producer::prepare_wait`].
    pub fn confirm_wait(&mut self, len: usize) -> bool {
        self.outgoing
            .confirm_wait((len as u64).min(self.outgoing.max_record()))
    }

    /// Withdraws the announcement, if there is one.
    pub fn finish_wait(&mut self) {
        self.outgoing.finish_wait();
    }

    /// Continues for a killed process that used this end. Afterwards all committed records are
    /// published and no wait is announced. Ring the other side then, since the killed process may
    /// have been about to.
    pub fn mend(&mut self) {
        self.outgoing.mend();
    }
}

impl fmt::Debug for Producer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

/// Room for a record, for the caller to fill. Before that it holds bytes of earlier records.
#[derive(Debug)]
pub struct Reservation<'a> {
    outgoing: Outgoing<'a, Direction>,
    header: RecordHeader,
    bytes: &'a mut [u8],
}

impl Reservation<'_> {
    /// Makes it a record, which the other side sees with the next publication.
    #[inline]
    pub fn commit(mut self) {
        self.outgoing.commit(self.header);
        let next = self.outgoing.ring.words.body(self.outgoing.position());
        prepare_write(next.as_ptr(), self.bytes.len());
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for Reservation<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}
