//! The two rings of a link, as one process of a node maps them.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use super::layout::{CONSUMED, HEADER_LEN, NUMBER, RECORD_ALIGN, RECORDS, SLEEPING, STARVING};
use super::protocol::{AtomicU64, Fences, Ring, Words};
use super::state::{ConsumerState, ProducerState};
use super::{Consumer, PeerSection, Producer, Section, barrier};
use crate::Region;

/// The memory of both rings between this side and the other. What changes besides
/// lies in a [`ProducerState`] and a [`ConsumerState`], which processes of a node
/// share while each has a mapping of its own.
#[derive(Debug)]
pub struct Rings {
    sent: Ring<Direction>,
    received: Ring<Direction>,
}

/// Puts the sections of the two sides together. The other side does the same with
/// its own section and this one's.
pub fn connect(own: Section, peer: PeerSection) -> Rings {
    let (outgoing, incoming) = (own.capacity(), peer.capacity());
    // What the peer says decides over its own wake-ups only.
    let fences = Fences {
        own: own.header.fences_everywhere == 1,
        other: barrier::agree() && peer.header.fences_everywhere == 1,
    };
    let [own, peer] = [own.region, peer.region].map(|mut region| {
        region.close_fd();
        Arc::new(region)
    });
    let ring = |producer: &Arc<Region>, consumer: &Arc<Region>, capacity| Ring {
        words: Direction::new(Arc::clone(producer), Arc::clone(consumer), capacity),
        capacity,
        fences,
    };
    Rings {
        sent: ring(&own, &peer, outgoing),
        received: ring(&peer, &own, incoming),
    }
}

impl Rings {
    /// The sending end; `state` is its own from the beginning.
    #[inline]
    pub fn producer<'a>(&'a self, state: &'a mut ProducerState) -> Producer<'a> {
        Producer::new(self.sent.outgoing(state))
    }

    /// The receiving end; `state` is its own from the beginning.
    #[inline]
    pub fn consumer<'a>(&'a self, state: &'a mut ConsumerState) -> Consumer<'a> {
        Consumer::new(self.received.incoming(state))
    }

    /// What the other side says now of how far it has finished, unchecked. For
    /// questions whose wrong answer would harm the other side only.
    #[inline]
    pub fn consumed_now(&self) -> u64 {
        self.sent.words.consumed().load(Ordering::Acquire)
    }

    /// What the other side wants to be told when it is rung: whatever that is, see
    /// [`Section::set_number`].
    pub fn number(&self) -> u64 {
        // SAFETY: the consumer of what this side sends has a section of its own, as
        // `connect` makes rings of nothing else; this is an aligned word within its first
        // RECORDS bytes, accessed as an atomic only.
        let word = unsafe {
            let section = self.sent.words.consumer.base_mut();
            section.add(NUMBER).cast::<AtomicU64>().as_ref()
        };
        word.load(Ordering::Acquire)
    }

    /// Whether this side has promised to fence everywhere before it waits for room, and
    /// before it sleeps unless [`Consumer::announce_sleep`] says that it need not: whichever
    /// of its processes does so has to tell [`fence_before_sleep`](super::fence_before_sleep).
    pub fn fences_everywhere(&self) -> bool {
        self.sent.fences.own
    }

    /// Whether the other side fences for both: then nothing that it waits for goes
    /// unseen, and [`Consumer::room_wanted`] has not to be asked after each release.
    #[inline]
    pub fn is_fenced_for(&self) -> bool {
        self.received.fences.other
    }

    /// Whether a record for this side is there.
    #[inline]
    pub fn has_next(&self, state: &ConsumerState) -> bool {
        self.received.words.header(state.position).load(Ordering::Relaxed) != 0
    }

    /// Marks where the next record for this side will appear.
    #[inline]
    pub fn watch(&self, state: &ConsumerState, place: &mut Place) {
        let words = &self.received.words;
        let header = NonNull::from(words.header(state.position));
        match &mut place.header {
            Some((known, region)) if Arc::ptr_eq(region, &words.producer) => *known = header,
            other => *other = Some((header, Arc::clone(&words.producer))),
        }
    }
}

/// Where the next record of a ring will appear, to look at without the ring. It may
/// be looked at while others use the ring; then it also tells of records that they
/// have taken already.
#[derive(Debug, Default)]
pub struct Place {
    header: Option<(NonNull<AtomicU64>, Arc<Region>)>,
}

// SAFETY: the pointer leads into a mapping that lives as long as the value, and to a
// word that is accessed as an atomic only.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// Whether a record has appeared.
    #[inline]
    pub fn is_filled(&self) -> bool {
        self.header.as_ref().is_some_and(|(header, _)| {
            // SAFETY: an aligned word of a mapping that the place keeps.
            unsafe { header.as_ref() }.load(Ordering::Relaxed) != 0
        })
    }
}

/// The memory of one direction, in two sections: the producer's with the records,
/// the consumer's with its position. One of the two is mapped for reading only, or both
/// are one segment, which nobody makes a reference into but to its words.
#[derive(Debug)]
pub(super) struct Direction {
    records: NonNull<u8>,
    /// Makes any number the place of a header.
    mask: u64,
    consumed: NonNull<AtomicU64>,
    sleeping: NonNull<AtomicU64>,
    starving: NonNull<AtomicU64>,
    producer: Arc<Region>,
    consumer: Arc<Region>,
}

// SAFETY: the pointers lead into mappings that live as long as the value, whatever
// thread it is on; through `&Direction` there are only atomic accesses.
unsafe impl Send for Direction {}
// SAFETY: as above.
unsafe impl Sync for Direction {}

impl Direction {
    /// Both regions are known to be as long as the layout says.
    fn new(producer: Arc<Region>, consumer: Arc<Region>, capacity: u64) -> Self {
        assert!(producer.len() as u64 >= RECORDS as u64 + capacity && consumer.len() >= RECORDS);
        // SAFETY: all offsets lie within the first RECORDS bytes of a section.
        let word = |region: &Region, offset| unsafe { region.base_mut().add(offset).cast::<AtomicU64>() };
        Self {
            // SAFETY: the producer's section is longer than RECORDS.
            records: unsafe { producer.base_mut().add(RECORDS) },
            mask: (capacity - 1) & !(RECORD_ALIGN - 1),
            consumed: word(&consumer, CONSUMED),
            sleeping: word(&consumer, SLEEPING),
            starving: word(&producer, STARVING),
            producer,
            consumer,
        }
    }

    /// In a segment, which both ends map for writing: the records at an offset, and the
    /// consumer's words of the same mapping.
    pub(super) fn within(
        region: &Arc<Region>,
        records: usize,
        capacity: u64,
        [consumed, sleeping, starving]: [NonNull<AtomicU64>; 3],
    ) -> Self {
        assert!(records.is_multiple_of(64) && records + capacity as usize <= region.len());
        Self {
            // SAFETY: the records lie in the mapping.
            records: unsafe { region.base_mut().add(records) },
            mask: (capacity - 1) & !(RECORD_ALIGN - 1),
            consumed,
            sleeping,
            starving,
            producer: Arc::clone(region),
            consumer: Arc::clone(region),
        }
    }

    /// Address of what lies behind the header of the record at `position`.
    #[inline]
    pub(super) fn body(&self, position: u64) -> NonNull<u8> {
        // SAFETY: the masked position is the header's place in the ring; the layout
        // leaves room for a header at every place where one may begin.
        unsafe {
            self.records
                .add((position & self.mask) as usize + HEADER_LEN as usize)
        }
    }
}

impl Words for Direction {
    #[inline]
    fn header(&self, position: u64) -> &AtomicU64 {
        // SAFETY: the masked position lies in the ring and is aligned; headers are
        // accessed as atomics only, never through the bytes of records.
        unsafe {
            self.records
                .add((position & self.mask) as usize)
                .cast::<AtomicU64>()
                .as_ref()
        }
    }

    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: an aligned word of a mapped section, accessed as an atomic only.
        unsafe { self.consumed.as_ref() }
    }

    #[inline]
    fn sleeping(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.sleeping.as_ref() }
    }

    #[inline]
    fn starving(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.starving.as_ref() }
    }
}
