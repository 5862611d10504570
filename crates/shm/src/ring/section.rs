//! Sections: the shared memory of the two sides of a link.

use core::ptr::NonNull;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::layout::{
    CONSUMED, MAGIC, MAX_CAPACITY, MIN_CAPACITY, RECORDS, SLEEPING, STARVING, SectionHeader, VERSION,
};
use super::protocol::{AtomicU64, Fences, Incoming, Outgoing, Words};
use super::{Consumer, Producer, barrier};
use crate::copy::copy_racing;
use crate::{Access, Region, RegionError};

/// Why a section could not be made or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// The memory could not be made, opened or mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Not a power of two, or out of bounds.
    #[error("a ring cannot have {0} bytes: it takes a power of two from {MIN_CAPACITY} to {MAX_CAPACITY}")]
    Capacity(u64),
    /// The memory is too short for what it says it holds.
    #[error("the section has {len} bytes, too few for a ring of {capacity}")]
    Truncated {
        /// Bytes of the section.
        len: usize,
        /// Bytes of the ring it should hold.
        capacity: u64,
    },
    /// The memory is no section.
    #[error("the memory does not hold a ring")]
    NotASection,
    /// The other side is of another version.
    #[error("the ring has version {0}, this build knows {VERSION} only")]
    Version(u16),
}

/// This side's section: what it sends lies here, and how far it has received.
/// Only this process can ever write it.
#[derive(Debug)]
pub struct Section {
    region: Region,
    header: SectionHeader,
}

impl Section {
    /// Makes a section with `capacity` bytes for records, a power of two from 4 KiB
    /// to 1 GiB. The longest record has half of that less 8. `incarnation` is a
    /// random number by which the other side tells it from any other.
    pub fn create(name: &str, capacity: u64, incarnation: u64) -> Result<Self, SectionError> {
        check_capacity(capacity, MAX_CAPACITY)?;
        let region = Region::create_exclusive(name, RECORDS + capacity as usize)?;
        let records = RECORDS as u32;
        let header = SectionHeader {
            magic: MAGIC,
            version: VERSION,
            fences_everywhere: barrier::agree().into(),
            records,
            incarnation,
            capacity,
        };
        let bytes = header.as_bytes();
        // SAFETY: the region is longer than the header, mapped for writing, and no
        // reference to its memory exists.
        unsafe {
            region
                .base_mut()
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len())
        };
        Ok(Self { region, header })
    }

    /// The memory, for the other side, which can map it for reading only.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.region.fd().expect("a section is never private")
    }

    /// The number given at creation.
    pub fn incarnation(&self) -> u64 {
        self.header.incarnation
    }

    /// Bytes for records.
    pub fn capacity(&self) -> u64 {
        self.header.capacity
    }

    /// Makes all pages present, so that the first lap around the ring costs no page
    /// faults.
    pub fn populate(&self) {
        self.region.populate(0, self.region.len());
    }
}

/// The other side's section, for reading only. Its header was copied and checked.
#[derive(Debug)]
pub struct PeerSection {
    region: Region,
    header: SectionHeader,
}

impl PeerSection {
    /// Opens what the other side handed over, if it holds a ring of at most
    /// `max_capacity` bytes.
    pub fn open(fd: OwnedFd, max_capacity: u64) -> Result<Self, SectionError> {
        let region = Region::open(fd, Access::ReadOnly)?;
        let mut bytes = [0; size_of::<SectionHeader>()];
        if region.len() < RECORDS {
            return Err(SectionError::Truncated {
                len: region.len(),
                capacity: MIN_CAPACITY,
            });
        }
        // SAFETY: the region is longer than the header, and mapped for reading only.
        unsafe { copy_racing(region.base(), bytes.as_mut_ptr(), bytes.len()) };
        let header = SectionHeader::read_from_bytes(&bytes).map_err(|_| SectionError::NotASection)?;
        if header.magic != MAGIC {
            return Err(SectionError::NotASection);
        }
        if header.version != VERSION || header.records != RECORDS as u32 {
            return Err(SectionError::Version(header.version));
        }
        check_capacity(header.capacity, max_capacity)?;
        if ((region.len() - RECORDS) as u64) < header.capacity {
            return Err(SectionError::Truncated {
                len: region.len(),
                capacity: header.capacity,
            });
        }
        Ok(Self { region, header })
    }

    /// The number the other side gave its section.
    pub fn incarnation(&self) -> u64 {
        self.header.incarnation
    }

    /// Bytes for the other side's records.
    pub fn capacity(&self) -> u64 {
        self.header.capacity
    }

    /// Maps all pages, so that the first lap around the ring costs no page faults.
    pub fn populate(&self) {
        self.region.populate(0, self.region.len());
    }
}

/// Makes the ends of the two rings between this side and the other. The other side
/// does the same with its own section and this one's.
pub fn connect(own: Section, peer: PeerSection) -> (Producer, Consumer) {
    let (outgoing, incoming) = (own.capacity(), peer.capacity());
    // What the peer says decides over its own wake-ups only.
    let fences = Fences {
        own: own.header.fences_everywhere == 1,
        other: barrier::agree() && peer.header.fences_everywhere == 1,
    };
    let (own, peer) = (Arc::new(own.region), Arc::new(peer.region));
    let sent = Direction::new(Arc::clone(&own), Arc::clone(&peer), outgoing);
    let received = Direction::new(peer, own, incoming);
    (
        Producer::new(Outgoing::new(sent, outgoing, fences)),
        Consumer::new(Incoming::new(received, incoming, fences)),
    )
}

fn check_capacity(capacity: u64, most: u64) -> Result<(), SectionError> {
    let fits = capacity.is_power_of_two() && (MIN_CAPACITY..=most.min(MAX_CAPACITY)).contains(&capacity);
    if fits {
        Ok(())
    } else {
        Err(SectionError::Capacity(capacity))
    }
}

/// The memory of one direction, in two sections: the producer's with the records,
/// the consumer's with its position. One of the two is mapped for reading only.
#[derive(Debug)]
pub(super) struct Direction {
    records: NonNull<u8>,
    mask: u64,
    consumed: NonNull<AtomicU64>,
    sleeping: NonNull<AtomicU64>,
    starving: NonNull<AtomicU64>,
    _producer: Arc<Region>,
    _consumer: Arc<Region>,
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
            mask: capacity - 1,
            consumed: word(&consumer, CONSUMED),
            sleeping: word(&consumer, SLEEPING),
            starving: word(&producer, STARVING),
            _producer: producer,
            _consumer: consumer,
        }
    }

    /// Address of what lies behind the header of the record at `position`.
    #[inline]
    pub(super) fn body(&self, position: u64) -> NonNull<u8> {
        // SAFETY: the masked position is the header's place in the ring; the layout
        // leaves room for a header at every place where one may begin.
        unsafe {
            self.records
                .add((position & self.mask) as usize + super::layout::HEADER_LEN as usize)
        }
    }
}

impl Words for Direction {
    #[inline]
    fn header(&self, position: u64) -> &AtomicU64 {
        debug_assert!(position.is_multiple_of(super::layout::RECORD_ALIGN));
        // SAFETY: the masked position lies in the ring and is aligned as all positions
        // are; headers are accessed as atomics only, never through the bytes of records.
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
