//! A peer: the pair of rings and the control connection shared with it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use toehold_shm::ring::{Consumer, Producer, ReserveError, Section, connect};
use toehold_shm::{MAX_PARTS, PayloadArea};
use zerocopy::IntoBytes;

use super::control;
use super::handshake::Offer;
use super::name::NodeName;
use super::record::{
    self, HEADER_LEN, Header, INLINE, MAX_REFERENCED_HEADERS, PayloadView, Private, REFERENCE_FROM,
    REFERENCE_LEN, REFERENCED, Reference,
};
use super::statistics::{Loss, PeerStatistics};
use crate::{Received, Transmit};

/// Bytes of a section in front of the ring.
const SECTION_OVERHEAD: usize = 4096;

/// Frames are shown to the other side, and their space is given back, once a
/// burst; but not later than after this many bytes, so that the two sides work
/// at the same time.
const BURST_BYTES: usize = 32 << 10;

/// A node that exchanges frames with this one.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: NodeName,
    pub(super) mac: [u8; 6],
    pub(super) incarnation: u64,
    pub(super) same_user: bool,
    /// Whether the peer can read this node's payload memory.
    pub(super) shares_payload: bool,
    pub(super) statistics: PeerStatistics,
    pub(super) producer: Producer,
    consumer: Consumer,
    /// The peer's payload memory.
    payload: Option<PayloadView>,
    control: OwnedFd,
    /// Bytes of the record that last found no room.
    wanted: Option<usize>,
    /// Bytes of frames that the peer was not shown yet.
    unpublished: usize,
    /// It hung up: what it had sent before is still to be taken.
    gone: bool,
}

/// What came of polling a peer.
pub(super) struct Polled {
    pub(super) frames: usize,
    /// Why the peer has to be cut off.
    pub(super) loss: Option<Loss>,
}

impl Peer {
    pub(super) fn new(
        control: OwnedFd,
        section: Section,
        offer: Offer,
        same_user: bool,
        shares: bool,
    ) -> Peer {
        let (producer, consumer) = connect(section, offer.section);
        Peer {
            name: offer.introduction.name,
            mac: offer.introduction.mac,
            incarnation: offer.introduction.incarnation,
            same_user,
            shares_payload: shares,
            statistics: PeerStatistics::default(),
            producer,
            consumer,
            payload: offer.payload,
            control,
            wanted: None,
            unpublished: 0,
            gone: false,
        }
    }

    pub(super) fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Puts a frame into the ring. `own` is this node's payload memory.
    #[inline]
    pub(super) fn send(
        &mut self,
        frame: &Transmit<'_>,
        own: Option<&PayloadArea>,
    ) -> Result<(), ReserveError> {
        let by_reference = self.shares_payload
            && frame.payload.len() >= REFERENCE_FROM
            && frame.headers.len() <= MAX_REFERENCED_HEADERS;
        let references = if by_reference {
            own.and_then(|area| refer(frame, area))
        } else {
            None
        };
        let sent = match references {
            Some((references, count)) => self.put_references(frame, &references[..count]),
            None => self.put_inline(frame),
        };
        if sent.is_ok() {
            self.wanted = None;
            self.statistics.frames_sent += 1;
            self.statistics.bytes_sent += frame.len() as u64;
            self.unpublished += frame.len();
            if self.unpublished >= BURST_BYTES {
                self.publish();
            }
        }
        sent
    }

    #[inline]
    fn put_inline(&mut self, frame: &Transmit<'_>) -> Result<(), ReserveError> {
        let len = HEADER_LEN + frame.len();
        let mut record = match self.producer.reserve(INLINE, len) {
            Ok(record) => record,
            Err(error) => return Err(self.no_room(error, len)),
        };
        let (header, rest) = record.split_at_mut(HEADER_LEN);
        header.copy_from_slice(Header::new(frame.offload, 0).as_bytes());
        let (headers, payload) = rest.split_at_mut(frame.headers.len());
        headers.copy_from_slice(frame.headers);
        frame.payload.copy_to(0, payload);
        record.commit();
        Ok(())
    }

    #[inline]
    fn put_references(&mut self, frame: &Transmit<'_>, references: &[Reference]) -> Result<(), ReserveError> {
        let len = HEADER_LEN + references.len() * REFERENCE_LEN + frame.headers.len();
        let mut record = match self.producer.reserve(REFERENCED, len) {
            Ok(record) => record,
            Err(error) => return Err(self.no_room(error, len)),
        };
        let (header, rest) = record.split_at_mut(HEADER_LEN);
        header.copy_from_slice(Header::new(frame.offload, references.len()).as_bytes());
        let (places, headers) = rest.split_at_mut(references.len() * REFERENCE_LEN);
        places.copy_from_slice(references.as_bytes());
        headers.copy_from_slice(frame.headers);
        record.commit();
        self.statistics.frames_sent_by_reference += 1;
        Ok(())
    }

    #[cold]
    fn no_room(&mut self, error: ReserveError, len: usize) -> ReserveError {
        if error == ReserveError::Full {
            self.wanted = Some(len);
        }
        error
    }

    /// Hands over up to `budget` frames, oldest first, and frees their space.
    #[inline]
    pub(super) fn poll(
        &mut self,
        budget: usize,
        private: &mut Private,
        handler: &mut dyn FnMut(&Received<'_>),
    ) -> Polled {
        let mut polled = Polled {
            frames: 0,
            loss: None,
        };
        let mut unreleased = 0;
        while polled.frames < budget {
            let record = match self.consumer.peek() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    if self.gone {
                        polled.loss = Some(Loss::HungUp(self.name));
                    }
                    break;
                }
                Err(corrupt) => {
                    polled.loss = Some(Loss::Ring(self.name, corrupt));
                    break;
                }
            };
            match record::open(&record, self.payload.as_ref(), private) {
                Ok(frame) => {
                    unreleased += frame.len();
                    handler(&frame);
                }
                Err(bad) => {
                    polled.loss = Some(Loss::Record(self.name, bad));
                    break;
                }
            }
            self.consumer.advance();
            polled.frames += 1;
            if unreleased >= BURST_BYTES {
                self.release(std::mem::take(&mut unreleased));
            }
        }
        if polled.frames != 0 {
            self.statistics.frames_received += polled.frames as u64;
            self.release(unreleased);
        }
        polled
    }

    /// Gives the space of the frames taken, `bytes` long, back to the peer.
    #[inline]
    fn release(&mut self, bytes: usize) {
        self.statistics.bytes_received += bytes as u64;
        if self.consumer.release() {
            self.ring();
        }
    }

    /// Lets the peer see what was sent, and wakes it if it sleeps.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.unpublished = 0;
        if self.producer.publish() {
            self.ring();
        }
    }

    /// Wakes the peer if it waits for room that it was given.
    #[inline]
    pub(super) fn wake_if_starving(&mut self) {
        if self.consumer.room_wanted() {
            self.ring();
        }
    }

    #[cold]
    fn ring(&mut self) {
        self.statistics.rings += 1;
        control::ring(self.control.as_fd());
    }

    /// Takes a ring that came in. False: the peer hung up.
    pub(super) fn clear_doorbell(&self) -> bool {
        control::clear(self.control.as_fd())
    }

    pub(super) fn is_connected(&self) -> bool {
        !self.gone && control::is_connected(self.control.as_fd())
    }

    /// Whether frames wait that were not taken yet. Once the peer has hung up
    /// there will be no others.
    pub(super) fn has_unread(&mut self) -> bool {
        matches!(self.consumer.peek(), Ok(Some(_)))
    }

    /// Notes that the peer hung up; it is lost when all its frames are taken.
    pub(super) fn hang_up(&mut self) {
        self.gone = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Announces that this node sleeps, and waits for room if a frame found none.
    /// A fence has to follow, see `shm`'s rings.
    pub(super) fn announce_sleep(&mut self) {
        self.consumer.announce_sleep();
        if self.wanted.is_some() {
            self.producer.announce_wait();
        }
    }

    /// Whether there is nothing to do, after the fence.
    pub(super) fn confirm_sleep(&mut self) -> bool {
        self.wake_if_starving();
        let waits = self.wanted.is_none_or(|len| self.producer.confirm_wait(len));
        if !waits {
            // There is room now: worth one more round, not one after the other.
            self.wanted = None;
        }
        self.consumer.confirm_sleep() && waits && !self.gone
    }

    /// Takes the announcements back.
    pub(super) fn finish_sleep(&mut self) {
        self.consumer.finish_sleep();
        self.producer.finish_wait();
    }
}

/// Where the frame's payload lies in this node's payload memory; `None` unless
/// all of it does.
#[inline]
fn refer(frame: &Transmit<'_>, area: &PayloadArea) -> Option<([Reference; MAX_PARTS], usize)> {
    let mut references = [Reference::default(); MAX_PARTS];
    let mut count = 0;
    for (address, len) in frame.payload.parts() {
        let offset = area.offset_of(address, len)?;
        *references.get_mut(count)? = Reference {
            offset,
            len: u32::try_from(len).ok()?,
            reserved: 0,
        };
        count += 1;
    }
    Some((references, count))
}

/// Bytes this node provides for a peer with a ring of `ring_capacity` bytes.
pub(super) fn memory(ring_capacity: usize) -> usize {
    SECTION_OVERHEAD + ring_capacity + size_of::<Peer>()
}
