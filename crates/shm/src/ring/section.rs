//! Sections: the shared memory of the two sides of a link.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{BorrowedFd, OwnedFd};

use zerocopy::{FromBytes, IntoBytes};

use super::barrier;
use super::layout::{MAGIC, MAX_CAPACITY, MIN_CAPACITY, NUMBER, RECORDS, SectionHeader, VERSION};
use crate::copy::copy_racing;
use crate::{Access, Region, RegionError};

/// The reason why a section could not be made or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// The memory could not be made, opened or mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The capacity is not a power of two, or out of bounds.
    #[error("a ring cannot have {0} bytes: use a power of two from {MIN_CAPACITY} to {MAX_CAPACITY}")]
    Capacity(u64),
    /// The memory is too short for its stated contents.
    #[error("the section has {len} bytes, too few for a ring of {capacity}")]
    Truncated {
        /// Bytes of the section.
        len: usize,
        /// Bytes of the ring it should hold.
        capacity: u64,
    },
    /// The memory is longer than its stated contents. Mapping it would use address space that no
    /// ring needs.
    #[error("the section has {len} bytes, too many for a ring of {capacity}")]
    TooLong {
        /// Bytes of the section.
        len: usize,
        /// Bytes of the ring it should hold.
        capacity: u64,
    },
    /// The memory is not a section.
    #[error("the memory does not hold a ring")]
    NotASection,
    /// The peer has another version.
    #[error("the ring has version {0}, this build knows {VERSION} only")]
    Version(u16),
}

/// This side's section: it holds the sent records, and the consumed position. Only this node writes
/// it. Other users cannot; processes of this user can only if they reopen it secretly.
#[derive(Debug)]
pub struct Section {
    pub(super) region: Region,
    pub(super) header: SectionHeader,
}

impl Section {
    /// Creates a section with `capacity` bytes for records, a power of two from 4 KiB to 1 GiB. The
    /// longest record has half of that less 8. `incarnation` is a random number that distinguishes
    /// the section from any other.
    pub fn create(name: &str, capacity: u64, incarnation: u64) -> Result<Self, SectionError> {
        check_capacity(capacity, MAX_CAPACITY)?;
        let region = Region::create(name, RECORDS + capacity as usize)?;
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

    /// Maps a section that another process of this node has made, with its records so far. A
    /// process that sleeps on its ring has to keep the promise of the section's maker, see
    /// [`Rings::fences_everywhere`](super::Rings).
    pub fn attach(fd: OwnedFd) -> Result<Self, SectionError> {
        let region = Region::open_within(fd, Access::ReadWrite, RECORDS as u64 + MAX_CAPACITY)?;
        let header = read_header(&region, MAX_CAPACITY)?;
        Ok(Self { region, header })
    }

    /// The memory, for other processes of this node.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.region.fd().expect("a section is never private")
    }

    /// The memory, for the other side. Another user can map it for reading only.
    pub fn read_only_fd(&self) -> Result<OwnedFd, SectionError> {
        Ok(self.region.read_only_fd()?)
    }

    /// Unmaps the section and keeps its memory.
    pub fn into_fd(self) -> OwnedFd {
        self.region.into_fd().expect("a section is never private")
    }

    /// Sets this side's number for the other side. The other side sends it whenever it rings, see
    /// [`Rings::number`](super::Rings::number). Call this before this side first sleeps.
    pub fn set_number(&self, number: u64) {
        // SAFETY: an aligned word within the first RECORDS bytes of the section, which stays mapped
        // as long as `self`; it is accessed as an atomic only.
        let word = unsafe { self.region.base_mut().add(NUMBER).cast::<AtomicU64>().as_ref() };
        word.store(number, Ordering::Release);
    }

    /// The number of [`Section::set_number`].
    pub fn number(&self) -> u64 {
        // SAFETY: an aligned word within the first RECORDS bytes of the section, which stays mapped
        // as long as `self`; it is accessed as an atomic only.
        let word = unsafe { self.region.base_mut().add(NUMBER).cast::<AtomicU64>().as_ref() };
        word.load(Ordering::Acquire)
    }

    /// The number given at creation.
    pub fn incarnation(&self) -> u64 {
        self.header.incarnation
    }

    /// Bytes for records.
    pub fn capacity(&self) -> u64 {
        self.header.capacity
    }

    /// Makes all pages present, so that the first lap around the ring costs no page faults.
    pub fn populate(&self) {
        self.region.populate(0, self.region.len());
    }
}

/// The peer's section, for reading only. Its header was copied and checked.
#[derive(Debug)]
pub struct PeerSection {
    pub(super) region: Region,
    pub(super) header: SectionHeader,
}

impl PeerSection {
    /// Opens the other side's descriptor, if it holds a ring of at most `max_capacity` bytes.
    pub fn open(fd: OwnedFd, max_capacity: u64) -> Result<Self, SectionError> {
        let most = RECORDS as u64 + max_capacity.min(MAX_CAPACITY);
        let region = Region::open_within(fd, Access::ReadOnly, most)?;
        let header = read_header(&region, max_capacity)?;
        Ok(Self { region, header })
    }

    /// Unmaps the section and keeps its memory.
    pub fn into_fd(self) -> OwnedFd {
        self.region.into_fd().expect("a section is never private")
    }

    /// The random number of the other side's section.
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

fn check_capacity(capacity: u64, most: u64) -> Result<(), SectionError> {
    let fits = capacity.is_power_of_two() && (MIN_CAPACITY..=most.min(MAX_CAPACITY)).contains(&capacity);
    if fits {
        Ok(())
    } else {
        Err(SectionError::Capacity(capacity))
    }
}

/// The header of a section, if it is valid and its ring has at most `max_capacity` bytes.
fn read_header(region: &Region, max_capacity: u64) -> Result<SectionHeader, SectionError> {
    let mut bytes = [0; size_of::<SectionHeader>()];
    if region.len() < RECORDS {
        return Err(SectionError::Truncated {
            len: region.len(),
            capacity: MIN_CAPACITY,
        });
    }
    // SAFETY: the region is longer than the header, to which no reference is ever made; `bytes` has
    // that length.
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
    let page = rustix::param::page_size();
    if region.len() > (RECORDS + header.capacity as usize).next_multiple_of(page) {
        return Err(SectionError::TooLong {
            len: region.len(),
            capacity: header.capacity,
        });
    }
    Ok(header)
}
