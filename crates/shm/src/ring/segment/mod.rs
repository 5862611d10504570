//! A segment: one piece of memory that several members map, for instance virtual machines. Members
//! can neither send descriptors nor wake each other.
//!
//! Any mappable memory may hold a segment: a file, an object in `/dev/shm`, a DAX device, the
//! memory of an ivshmem device. A [`Segment`] has a [`Slot`] for each member, which the member
//! claims. It has a way for each ordered pair of members, with the ends [`Outbound`] and
//! [`Inbound`]. Its rings are those of [sections](super), except that both ends lie in the same
//! memory, and that senders copy records in.
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
//! The memory may be divided into several segments of the same length, for members with several
//! threads: each [`Part`] is a segment of its own.
//!
//! Every member can write all of the memory, so members trust one another with their traffic, and
//! with nothing else. Whatever the memory holds, an end never accesses memory outside its ring,
//! never waits, and never panics. There is one exception: if another process truncates the file of
//! a segment, a thread that touches the missing part is killed. Writers of the file itself are
//! therefore trusted. The memory of a device cannot shrink.

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

/// The reason why a segment could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The path does not exist, and no length was given to create it.
    #[error("there is no {0}; give a length in bytes to create it")]
    Missing(PathBuf),
    /// The file cannot be opened.
    #[error("cannot open {path}: {errno}")]
    Open {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        errno: Errno,
    },
    /// The file cannot be created.
    #[error("cannot make {path} of {len} bytes: {errno}")]
    Make {
        /// The path.
        path: PathBuf,
        /// The wanted length in bytes.
        len: u64,
        /// The kernel's error.
        errno: Errno,
    },
    /// The file is not memory, or its length is unknown.
    #[error(
        "{0} has no length: it takes a file, a DAX device, or the memory of a PCI device (its resource2)"
    )]
    NoLength(PathBuf),
    /// The memory could not be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The memory is too short for so many members.
    #[error("{len} bytes are too few for a segment of {members} members")]
    TooShort {
        /// Bytes of the segment.
        len: usize,
        /// The wanted number of members.
        members: usize,
    },
    /// No segment has so many members.
    #[error("a segment has from 2 to {MAX_MEMBERS} members, not {0}")]
    Members(usize),
    /// The memory holds other data.
    #[error("the memory holds data that is not a segment; fill it with zeros if no program needs that data")]
    NotASegment,
    /// The members have divided the memory differently.
    #[error(
        "the memory is divided into {there} segments, one for each queue of an interface, and not into {wanted}"
    )]
    Parts {
        /// Number of parts found.
        there: u8,
        /// Number of parts wanted.
        wanted: u8,
    },
    /// The members have another version.
    #[error("the segment has version {0}, this build knows {VERSION} only")]
    Version(u8),
}

/// Mapped memory that is known to be a segment.
pub struct Segment {
    region: Arc<Region>,
    geometry: Geometry,
}

impl Segment {
    /// Maps a part of the memory at `path`. Fresh memory becomes a segment of `members` members
    /// with the longest rings that fit. If the file does not exist, it is created with `make`
    /// bytes, for all parts.
    pub fn open(path: &Path, make: Option<u64>, members: usize, part: Part) -> Result<Segment, SegmentError> {
        let mut region = file::map(path, make, part)?;
        region.close_fd();
        let geometry = agree(&region, members, part)?;
        Ok(Segment {
            region: Arc::new(region),
            geometry,
        })
    }

    /// Most members of the segment.
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

    /// The sending end of the way between two members. Only the first one may use it.
    ///
    /// # Panics
    ///
    /// If there are no two such members.
    pub fn outbound(&self, from: usize, to: usize) -> Outbound {
        let (ring, words) = self.way(from, to);
        Outbound::new(ring, words)
    }

    /// The receiving end of the way between two members. Only the second one may use it.
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

/// Reads the geometry of the segment. The first member determines it.
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
