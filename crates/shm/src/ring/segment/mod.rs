//! A segment: one piece of memory that several members map, as between virtual machines,
//! where no descriptors can be handed over and nobody can be woken.
//!
//! It lies in whatever can be mapped: a file, an object in `/dev/shm`, a DAX device, the
//! memory of an ivshmem PCI device. A [`Segment`] has a [`Slot`] for each member, which the
//! member claims, and a way for each ordered pair of them: [`Outbound`] and [`Inbound`] are
//! its ends. The rings are those of [sections](super), but that both ends lie in the same
//! memory, and that records are copied in.
//!
//! ```
//! use toehold_shm::Gather;
//! use toehold_shm::ring::segment::{Part, Segment};
//!
//! # let directory = std::env::temp_dir().join(format!("toehold-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let path = directory.join("segment");
//! // Two members; in real life two processes or machines.
//! let here = Segment::open(&path, Some(1 << 20), 2, Part::ALL)?;
//! let there = Segment::open(&path, None, 2, Part::ALL)?;
//! assert!(here.slot(0).claim(0, 17, 0) && there.slot(1).claim(0, 18, 0));
//! let (mut sender, mut receiver) = (here.outbound(0, 1), there.inbound(0, 1));
//!
//! // They live the lives 17 and 18; the receiver offers the session 9.
//! receiver.offer(9, 18, 17);
//! assert!(sender.attend(17, 18));
//! sender.send(1, [b"head", b"rest"], &Gather::EMPTY)?;
//! sender.publish();
//! receiver.attend();
//! let mut consumer = receiver.consumer().expect("a session");
//! let mut copy = [0; 8];
//! consumer.peek()?.expect("a record").copy_to(0, &mut copy);
//! assert_eq!(&copy, b"headrest");
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The memory may be divided into several segments of the same length, for who has several
//! threads: each [`Part`] is one of its own.
//!
//! Every member can write all of it, so members have to trust one another with their
//! traffic; but with nothing else. Whatever is in there, an end never leads outside of its
//! ring, never waits, and never panics. Only this is not in its power: if the file under a
//! segment is truncated, whoever touches what is missing is killed, so whoever may write
//! the file itself is trusted not to. The memory of a device cannot shrink.

mod file;
mod layout;
mod session;
mod slot;
mod way;
mod words;

use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use self::layout::{Geometry, VERSION};
pub use self::layout::{MAX_MEMBERS, MAX_PARTS, Part};
pub use self::slot::{Sight, Slot};
pub use self::way::{Inbound, Outbound, SendError};
use crate::{Region, RegionError};

/// Why a segment could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Nothing is there, and it was not to be made.
    #[error("there is no {0}; say how many bytes it is to have, and it is made")]
    Missing(PathBuf),
    /// It cannot be opened.
    #[error("cannot open {path}: {errno}")]
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// It cannot be made.
    #[error("cannot make {path} of {len} bytes: {errno}")]
    Make {
        /// What was to be made.
        path: PathBuf,
        /// Bytes it was to have.
        len: u64,
        /// What the kernel said.
        errno: Errno,
    },
    /// It is no memory, or not known how much.
    #[error(
        "{0} has no length: it takes a file, a DAX device, or the memory of a PCI device (its resource2)"
    )]
    NoLength(PathBuf),
    /// The memory could not be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// It is too short for so many members.
    #[error("{len} bytes are too few for a segment of {members} members")]
    TooShort {
        /// Bytes of the segment.
        len: usize,
        /// Members it was to have.
        members: usize,
    },
    /// No segment has so many members.
    #[error("a segment has from 2 to {MAX_MEMBERS} members, not {0}")]
    Members(usize),
    /// It holds something else.
    #[error("the memory holds something that is no segment; if nobody needs that, fill it with zeros")]
    NotASegment,
    /// Its members have divided the memory otherwise.
    #[error(
        "the memory is divided into {there} segments, one for each queue of an interface, and not into {wanted}"
    )]
    Parts {
        /// Into how many.
        there: u8,
        /// Into how many it was to be.
        wanted: u8,
    },
    /// Its members are of another version.
    #[error("the segment has version {0}, this build knows {VERSION} only")]
    Version(u8),
}

/// Memory that is mapped, and known to be a segment.
pub struct Segment {
    region: Arc<Region>,
    geometry: Geometry,
}

impl Segment {
    /// Maps a part of what is at `path`. If it is fresh, it becomes a segment of so many members
    /// with the longest rings that fit. If nothing is there, a file of `make` bytes is made, for
    /// all parts.
    pub fn open(path: &Path, make: Option<u64>, members: usize, part: Part) -> Result<Segment, SegmentError> {
        let mut region = file::map(path, make, part)?;
        region.close_fd();
        let geometry = agree(&region, members, part)?;
        Ok(Segment {
            region: Arc::new(region),
            geometry,
        })
    }

    /// How many members it can have.
    pub fn members(&self) -> usize {
        self.geometry.members
    }

    /// Bytes of the longest record.
    pub fn max_record(&self) -> usize {
        super::layout::max_record(self.geometry.capacity) as usize
    }

    /// The slot of a member.
    ///
    /// # Panics
    ///
    /// If there is no such member.
    pub fn slot(&self, member: usize) -> Slot<'_> {
        assert!(member < self.members(), "members are counted from 0");
        words::slot(&self.region, self.geometry.slot(member))
    }

    /// The sending end of the way between two members: the first one's alone.
    ///
    /// # Panics
    ///
    /// If there are no two such members.
    pub fn outbound(&self, from: usize, to: usize) -> Outbound {
        let (ring, words) = self.way(from, to);
        Outbound::new(ring, words)
    }

    /// The receiving end of the way between two members: the second one's alone.
    ///
    /// # Panics
    ///
    /// If there are no two such members.
    pub fn inbound(&self, from: usize, to: usize) -> Inbound {
        let (ring, words) = self.way(from, to);
        Inbound::new(ring, words)
    }

    fn way(
        &self,
        from: usize,
        to: usize,
    ) -> (super::protocol::Ring<super::rings::Direction>, words::WayWords) {
        assert!(from < self.members() && to < self.members() && from != to);
        words::way(&self.region, self.geometry, from, to)
    }
}

/// What the segment is. Whoever comes first says it.
fn agree(region: &Region, members: usize, part: Part) -> Result<Geometry, SegmentError> {
    if region.len() < size_of::<u64>() {
        return Err(SegmentError::TooShort {
            len: region.len(),
            members,
        });
    }
    let word = words::geometry(region);
    let present = match word.load(Acquire) {
        0 => {
            let wanted = Geometry::within(region.len(), members)?.to_word(part);
            let said = word.compare_exchange(0, wanted, AcqRel, Acquire);
            said.map_or_else(|other| other, |_| wanted)
        }
        present => present,
    };
    Geometry::from_word(present, region.len(), part)
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
