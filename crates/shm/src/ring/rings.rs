//! The two rings of a link, as one process of a node maps them.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use super::layout::{CONSUMED, HEADER_LEN, NUMBER, RECORD_ALIGN, RECORDS, SLEEPING, STARVING};
use super::protocol::{AtomicU64, Fences, Ring, Words};
use super::state::{ConsumerState, ProducerState};
use super::{Consumer, PeerSection, Producer, Section, barrier};
use crate::Region;

/// The memory of both rings between this side and the other. The rest of the changing state lies in
/// a [`ProducerState`] and a [`ConsumerState`]. The processes of a node share these; each has its
/// own mapping of the rings.
#[derive(Debug)]
pub struct Rings {
    sent: Ring<Direction>,
    received: Ring<Direction>,
}

/// Joins the sections of the two sides. The other side does the same with its own section and this
/// one's.
pub fn connect(own: Section, peer: PeerSection) -> Rings {
    let (outgoing, incoming) = (own.capacity(), peer.capacity());
    // The peer's claim affects only its own wake-ups.
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
    /// The sending end; `state` belongs to it from the beginning.
    #[inline]
    pub fn producer<'a>(&'a self, state: &'a mut ProducerState) -> Producer<'a> {
        Producer::new(self.sent.outgoing(state))
    }

    /// The receiving end; `state` belongs to it from the beginning.
    #[inline]
    pub fn consumer<'a>(&'a self, state: &'a mut ConsumerState) -> Consumer<'a> {
        Consumer::new(self.received.incoming(state))
    }

    /// The other side's present claim of its consumed position, unchecked. Use it only where a
    /// wrong answer would harm the other side alone.
    #[inline]
    pub fn consumed_now(&self) -> u64 {
        self.sent.words.consumed().load(Ordering::Acquire)
    }

    /// The number that the other side expects when this side rings it, see [`Section::set_number`].
    pub fn number(&self) -> u64 {
        // SAFETY: `connect` makes rings of sections only, so the consumer of what this side sends
        // has its own section. The address is an aligned word within its first RECORDS bytes,
        // accessed as an atomic only.
        let word = unsafe {
            let section = self.sent.words.consumer.base_mut();
            section.add(NUMBER).cast::<AtomicU64>().as_ref()
        };
        word.load(Ordering::Acquire)
    }

    /// Whether this side has promised to fence everywhere before it waits for room. It does so
    /// before a sleep as well, unless [`Consumer::announce_sleep`] returns that it need not. Each
    /// of its processes has to pass this to [`fence_before_sleep`](super::fence_before_sleep).
    pub fn fences_everywhere(&self) -> bool {
        self.sent.fences.own
    }

    /// Whether the other side fences for both. Then this side misses none of its waits, and need
    /// not call [`Consumer::room_wanted`] after each release.
    #[inline]
    pub fn is_fenced_for(&self) -> bool {
        self.received.fences.other
    }

    /// Whether there is a record for this side.
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

/// The place where the next record of a ring will appear, for checks without the ring. Other
/// threads may use the ring at the same time; the check then also reports records that they have
/// taken already.
#[derive(Debug, Default)]
pub struct Place {
    header: Option<(NonNull<AtomicU64>, Arc<Region>)>,
}

// SAFETY: the pointer leads into a mapping that lives as long as the value, to a word that is
// accessed as an atomic only.
unsafe impl Send for Place {}
// SAFETY: the pointer leads to a word that is accessed as an atomic only, in a mapping that lives
// as long as the value.
unsafe impl Sync for Place {}

impl Place {
    /// Whether a record has appeared.
    #[inline]
    pub fn is_filled(&self) -> bool {
        self.header.as_ref().is_some_and(|(header, _)| {
            // SAFETY: the pointer leads to an aligned word of a mapping that the place keeps.
            unsafe { header.as_ref() }.load(Ordering::Relaxed) != 0
        })
    }
}

/// The memory of one direction, in two sections: the producer's with the records, and the
/// consumer's with its position. One of the two is mapped for reading only. Or both are one
/// segment, into which only references to its words are made.
#[derive(Debug)]
pub(super) struct Direction {
    records: NonNull<u8>,
    /// Maps any number to the place of a header.
    mask: u64,
    consumed: NonNull<AtomicU64>,
    sleeping: NonNull<AtomicU64>,
    starving: NonNull<AtomicU64>,
    producer: Arc<Region>,
    consumer: Arc<Region>,
}

// SAFETY: the pointers lead into mappings that live as long as the value, on any thread.
// `&Direction` gives atomic access only.
unsafe impl Send for Direction {}
// SAFETY: `&Direction` gives atomic access only, to mappings that live as long as the value.
unsafe impl Sync for Direction {}

impl Direction {
    /// Both regions have at least the length of the layout.
    fn new(producer: Arc<Region>, consumer: Arc<Region>, capacity: u64) -> Self {
        assert!(producer.len() as u64 >= RECORDS as u64 + capacity && consumer.len() >= RECORDS);
        // SAFETY: all offsets lie within the first RECORDS bytes of a section, and the caller
        // guarantees that length.
        let word = |region: &Region, offset| unsafe { region.base_mut().add(offset).cast::<AtomicU64>() };
        Self {
            // SAFETY: the producer's section is longer than RECORDS, so the address lies in its
            // mapping.
            records: unsafe { producer.base_mut().add(RECORDS) },
            mask: (capacity - 1) & !(RECORD_ALIGN - 1),
            consumed: word(&consumer, CONSUMED),
            sleeping: word(&consumer, SLEEPING),
            starving: word(&producer, STARVING),
            producer,
            consumer,
        }
    }

    /// A direction in a segment, which both ends map for writing: the records at an offset, and the
    /// consumer's words in the same mapping.
    pub(super) fn within(
        region: &Arc<Region>,
        records: usize,
        capacity: u64,
        [consumed, sleeping, starving]: [NonNull<AtomicU64>; 3],
    ) -> Self {
        assert!(records.is_multiple_of(64) && records + capacity as usize <= region.len());
        Self {
            // SAFETY: `records` lies in the mapping, as asserted, and the direction keeps the
            // region.
            records: unsafe { region.base_mut().add(records) },
            mask: (capacity - 1) & !(RECORD_ALIGN - 1),
            consumed,
            sleeping,
            starving,
            producer: Arc::clone(region),
            consumer: Arc::clone(region),
        }
    }

    /// The address behind the header of the record at `position`.
    #[inline]
    pub(super) fn body(&self, position: u64) -> NonNull<u8> {
        // SAFETY: the masked position is the header's place in the ring. The layout leaves room for
        // a header at every such place.
        unsafe {
            self.records
                .add((position & self.mask) as usize + HEADER_LEN as usize)
        }
    }
}

impl Words for Direction {
    #[inline]
    fn header(&self, position: u64) -> &AtomicU64 {
        // SAFETY: the masked position lies in the ring and is aligned. Headers are accessed as
        // atomics only, never through the bytes of records.
        unsafe {
            self.records
                .add((position & self.mask) as usize)
                .cast::<AtomicU64>()
                .as_ref()
        }
    }

    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: an aligned word of a section that stays mapped as long as `self`, accessed as an
        // atomic only.
        unsafe { self.consumed.as_ref() }
    }

    #[inline]
    fn sleeping(&self) -> &AtomicU64 {
        // SAFETY: an aligned word of a section that stays mapped as long as `self`, accessed as an
        // atomic only.
        unsafe { self.sleeping.as_ref() }
    }

    #[inline]
    fn starving(&self) -> &AtomicU64 {
        // SAFETY: an aligned word of a section that stays mapped as long as `self`, accessed as an
        // atomic only.
        unsafe { self.starving.as_ref() }
    }
}
