//! A peer: the pair of rings shared with it.

use toehold_shm::ring::{Consumer, Producer, ReserveError};
use toehold_shm::{ArenaId, Arenas, MAX_PARTS};
use zerocopy::IntoBytes;

use super::identity::{Bound, Claim, Origin, source_v4};
use super::mapping::Mapping;
use super::record::{
    self, Ends, HEADER_LEN, Header, INLINE, MAX_REFERENCED_HEADERS, MIN_FRAME, Private, REFERENCE_FROM,
    REFERENCE_LEN, REFERENCED, Reference,
};
use super::state::{Known, Offence, PeerRecord};
use super::statistics::PeerStatistics;
use crate::{Received, Transmit};

/// Bytes of a section in front of the ring.
const SECTION_OVERHEAD: usize = 4096;

/// Frames are shown to the other side, and their space is given back, once a burst, but at the
/// latest after this many bytes. The two sides then work at the same time.
const BURST_BYTES: usize = 32 << 10;

/// A node that exchanges frames with this one, as the current driver sees it.
#[derive(Debug)]
pub(super) struct Peer<'a> {
    pub(super) record: &'a mut PeerRecord,
    pub(super) mapping: &'a Mapping,
}

/// The result of polling a peer.
#[derive(Default)]
pub(super) struct Polled {
    pub(super) frames: usize,
    /// Why the peer has to be cut off.
    pub(super) offence: Option<Offence>,
    /// The peer hung up, and all its frames are taken.
    pub(super) is_over: bool,
    /// Frames of these that were not taken, and what the last of them claimed.
    pub(super) refused: Option<(usize, Claim)>,
}

impl Polled {
    #[cold]
    fn refuse(&mut self, claim: Claim) {
        let before = self.refused.map_or(0, |(frames, _)| frames);
        self.refused = Some((before + 1, claim));
    }
}

/// Which frames of a peer are taken, and by what.
pub(super) struct Taker<'a, 'b> {
    pub(super) known: Known<'a>,
    /// The network that the peer leads to, if it is a gateway.
    pub(super) beyond: Option<Beyond>,
    /// See [`Origin::vouched`].
    pub(super) vouched: [u8; 4],
    pub(super) handler: &'a mut (dyn FnMut(&Received<'_>) + 'b),
}

/// The network beyond a gateway.
#[derive(Clone, Copy)]
pub(super) struct Beyond {
    /// This node's hardware address.
    pub(super) own: [u8; 6],
    /// Nothing of it is taken: this node leads to others itself.
    pub(super) is_barred: bool,
}

impl Taker<'_, '_> {
    /// Hands a frame over that claims nothing that is another member's.
    #[inline]
    fn take(&mut self, frame: &Received<'_>, (mac, bound): ([u8; 6], Bound)) -> Result<(), Claim> {
        let origin = Origin {
            mac,
            bound,
            vouched: self.vouched,
            bindings: self.known.bindings,
        };
        if !origin.is_plain(frame) {
            self.judge(frame, &origin)?;
            self.vouched = source_v4(frame).unwrap_or(self.vouched);
        }
        (self.handler)(frame);
        Ok(())
    }

    #[inline(never)]
    fn judge(&self, frame: &Received<'_>, origin: &Origin<'_>) -> Result<(), Claim> {
        let Some(beyond) = self.beyond else {
            return origin.judge(frame);
        };
        let source = frame.private.get(6..).and_then(<[u8]>::first_chunk::<6>);
        match source {
            Some(source) if *source == origin.mac => origin.judge(frame),
            Some(source)
                if source[0] & 1 == 0
                    && *source != beyond.own
                    && !beyond.is_barred
                    && !self.known.addresses.has(*source) =>
            {
                origin.judge_beyond(frame)
            }
            _ => Err(Claim::Mac),
        }
    }
}

impl Peer<'_> {
    /// Puts a frame into the ring, by reference only to payload that lies in the peer's arena.
    #[inline]
    pub(super) fn send(
        &mut self,
        frame: &Transmit<'_>,
        own: [u8; 6],
        arenas: Option<&Arenas>,
    ) -> Result<(), ReserveError> {
        let ends = Ends {
            sender: own,
            receiver: self.record.mac(),
        };
        let sent = match ends.plain_kind(frame) {
            Some(kind) => self.put_plain(kind, frame),
            None => self.put(frame, arenas),
        };
        if sent.is_ok() {
            let record = &mut *self.record;
            record.wanted = 0;
            count(&mut record.statistics.frames_sent, 1);
            count(&mut record.statistics.bytes_sent, frame.len());
            count(&mut record.unpublished, frame.len());
            if record.unpublished >= BURST_BYTES as u64 {
                self.publish();
            }
        }
        sent
    }

    #[inline]
    fn put_plain(&mut self, kind: u16, frame: &Transmit<'_>) -> Result<(), ReserveError> {
        let len = frame.len() - MIN_FRAME;
        let mut producer = self.mapping.rings.producer(&mut self.record.outgoing);
        let mut record = match producer.reserve(kind, len) {
            Ok(record) => record,
            Err(error) => return Err(self.no_room(error, len)),
        };
        let (headers, payload) = record.split_at_mut(frame.headers.len() - MIN_FRAME);
        headers.copy_from_slice(&frame.headers[MIN_FRAME..]);
        frame.payload.copy_to(0, payload);
        record.commit();
        Ok(())
    }

    /// Any frame, by reference if that pays.
    #[inline]
    fn put(&mut self, frame: &Transmit<'_>, arenas: Option<&Arenas>) -> Result<(), ReserveError> {
        let arena = self.record.arena;
        let by_reference = arena != ArenaId::PRIVATE
            && frame.payload.len() >= REFERENCE_FROM
            && frame.headers.len() <= MAX_REFERENCED_HEADERS;
        let arenas = arenas.filter(|_| by_reference);
        let references = arenas.and_then(|arenas| refer(frame, arenas, arena));
        match references {
            Some((references, count)) => self.put_references(frame, &references[..count]),
            None => self.put_inline(frame),
        }
    }

    /// Sends a frame, and shows the first frame of a burst at once. The peer begins with it, and
    /// often it is the only one. The sender does the rest of its work in the meantime.
    #[inline]
    pub(super) fn send_in_burst(
        &mut self,
        frame: &Transmit<'_>,
        own: [u8; 6],
        arenas: Option<&Arenas>,
        begun: bool,
    ) -> Result<(), ReserveError> {
        self.send(frame, own, arenas)?;
        if !begun {
            self.publish();
        }
        Ok(())
    }

    #[inline]
    fn put_inline(&mut self, frame: &Transmit<'_>) -> Result<(), ReserveError> {
        let len = HEADER_LEN + frame.len();
        let mut producer = self.mapping.rings.producer(&mut self.record.outgoing);
        let mut record = match producer.reserve(INLINE, len) {
            Ok(record) => record,
            Err(error) => return Err(self.no_room(error, len)),
        };
        let (header, rest) = record.split_at_mut(HEADER_LEN);
        header.copy_from_slice(Header::new(frame.offload, 0).as_bytes());
        let (headers, payload) = rest.split_at_mut(frame.headers.len());
        headers.copy_from_slice(frame.headers);
        frame.payload.copy_away(payload);
        record.commit();
        Ok(())
    }

    #[inline]
    fn put_references(&mut self, frame: &Transmit<'_>, references: &[Reference]) -> Result<(), ReserveError> {
        let len = HEADER_LEN + references.len() * REFERENCE_LEN + frame.headers.len();
        let mut producer = self.mapping.rings.producer(&mut self.record.outgoing);
        let mut record = match producer.reserve(REFERENCED, len) {
            Ok(record) => record,
            Err(error) => return Err(self.no_room(error, len)),
        };
        let (header, rest) = record.split_at_mut(HEADER_LEN);
        header.copy_from_slice(Header::new(frame.offload, references.len()).as_bytes());
        let (places, headers) = rest.split_at_mut(references.len() * REFERENCE_LEN);
        places.copy_from_slice(references.as_bytes());
        headers.copy_from_slice(frame.headers);
        record.commit();
        count(&mut self.record.statistics.frames_sent_by_reference, 1);
        Ok(())
    }

    #[cold]
    fn no_room(&mut self, error: ReserveError, len: usize) -> ReserveError {
        if error == ReserveError::Full {
            self.record.wanted = len as u64;
        }
        error
    }

    /// Hands over up to `budget` frames, oldest first, and frees their space.
    #[inline]
    pub(super) fn poll(
        &mut self,
        budget: usize,
        own: [u8; 6],
        private: &mut Private,
        taker: &mut Taker<'_, '_>,
    ) -> Polled {
        let Peer { record, mapping } = self;
        let ends = Ends {
            sender: record.mac(),
            receiver: own,
        };
        let from = (record.mac(), record.bound());
        let PeerRecord {
            incoming, statistics, ..
        } = &mut **record;
        let mut consumer = mapping.rings.consumer(incoming);
        let mut polled = Polled::default();
        // Gives the space of the frames taken, `bytes` long, back to the peer.
        let mut release = |consumer: &mut Consumer<'_>, bytes: usize| {
            count(&mut statistics.bytes_received, bytes);
            if consumer.release() {
                ring(mapping, statistics);
            }
        };
        let mut unreleased = 0;
        while polled.frames < budget {
            let record = match consumer.peek() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(corrupt) => {
                    polled.offence = Some(Offence::Ring(corrupt));
                    break;
                }
            };
            match record::open(&record, &ends, mapping.payload.as_ref(), private) {
                Ok(frame) => {
                    unreleased += frame.len();
                    if let Err(claim) = taker.take(&frame, from) {
                        polled.refuse(claim);
                    }
                }
                Err(bad) => {
                    polled.offence = Some(Offence::Record(bad));
                    break;
                }
            }
            consumer.advance();
            polled.frames += 1;
            if unreleased >= BURST_BYTES {
                release(&mut consumer, std::mem::take(&mut unreleased));
            }
        }
        if polled.frames != 0 {
            release(&mut consumer, unreleased);
            count(&mut statistics.frames_received, polled.frames);
        }
        if record.is_gone() {
            polled.is_over = record.is_at_last() || !self.has_unread();
        }
        polled
    }

    /// Whether frames wait that were not taken yet. Once the peer has hung up there
    /// will be no others.
    pub(super) fn has_unread(&mut self) -> bool {
        !matches!(self.consumer().peek(), Ok(None))
    }

    /// Lets the peer see what was sent, and wakes it if it sleeps.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.record.unpublished = 0;
        if self.mapping.rings.producer(&mut self.record.outgoing).publish() {
            ring(self.mapping, &mut self.record.statistics);
        }
    }

    /// Wakes the peer if it waits for room that it was given.
    #[inline]
    pub(super) fn wake_if_starving(&mut self) {
        if self.consumer().room_wanted() {
            ring(self.mapping, &mut self.record.statistics);
        }
    }

    /// Announces that this node sleeps, and waits for room if a frame found none.
    /// A fence has to follow, everywhere if this is true, see `shm`'s rings.
    pub(super) fn announce_sleep(&mut self) -> bool {
        let everywhere = self.consumer().announce_sleep();
        if self.record.wanted == 0 {
            return everywhere;
        }
        self.producer().announce_wait();
        self.mapping.rings.fences_everywhere()
    }

    /// Whether there is nothing to do, after the fence.
    pub(super) fn confirm_sleep(&mut self) -> bool {
        self.wake_if_starving();
        let wanted = self.record.wanted;
        let waits = wanted == 0 || self.producer().confirm_wait(wanted as usize);
        if !waits {
            // There is room now: worth one more round, not one after the other.
            self.record.wanted = 0;
        }
        self.consumer().confirm_sleep() && waits && !self.record.is_gone()
    }

    /// Takes the announcements back.
    pub(super) fn finish_sleep(&mut self) {
        self.consumer().finish_sleep();
        self.producer().finish_wait();
    }

    #[inline]
    pub(super) fn producer(&mut self) -> Producer<'_> {
        self.mapping.rings.producer(&mut self.record.outgoing)
    }

    #[inline]
    pub(super) fn consumer(&mut self) -> Consumer<'_> {
        self.mapping.rings.consumer(&mut self.record.incoming)
    }
}

#[cold]
fn ring(mapping: &Mapping, statistics: &mut PeerStatistics) {
    count(&mut statistics.rings, 1);
    mapping.ring();
}

/// Adds to a counter that may hold anything.
#[inline]
pub(super) fn count(counter: &mut u64, more: usize) {
    *counter = counter.wrapping_add(more as u64);
}

/// Where the frame's payload lies in an arena; `None` unless all of it does.
#[inline]
fn refer(frame: &Transmit<'_>, arenas: &Arenas, arena: ArenaId) -> Option<([Reference; MAX_PARTS], usize)> {
    let mut references = [Reference::default(); MAX_PARTS];
    let mut count = 0;
    for (address, len) in frame.payload.parts() {
        let offset = arenas.offset_of(arena, address, len)?;
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
    SECTION_OVERHEAD + ring_capacity + size_of::<PeerRecord>() + size_of::<Mapping>()
}
