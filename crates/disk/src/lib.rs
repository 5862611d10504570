//! An emulated disk: bytes in memory that come back as late as a disk's law says.
//!
//! A FUSE file system of two files serves the disk. The file `disk` has its bytes, and a loop
//! device with direct I/O makes a block device of it. The file `control` tells the disk's counters
//! and takes new speeds while the disk runs.
//!
//! The law is plain arithmetic: [`DiskHead`] for one head, [`DiskArray`] for several heads behind
//! a bus. Neither knows a clock. The law covers seek, rotation, transfer and the cost of a request.
//! It knows no cache of the drive and no reordering: requests are served in order of arrival.

#![forbid(unsafe_code)]

mod array;
mod attach;
mod clear;
mod control;
mod counters;
mod error;
mod head;
mod image;
mod serve;
mod speeds;

pub use array::{DiskArray, DiskSpan};
pub use attach::{LoopDevice, check};
pub use clear::{Cleared, DiskKeeper, clear};
pub use control::{DiskChange, DiskChangeError, DiskState, NewSpeeds};
pub use counters::{BlockLayer, DiskCounters};
pub use error::DiskError;
pub use head::{DiskHead, HeadTimes, Transfer};
pub use image::{DiskImage, MOST_BYTES};
pub use serve::{DiskServer, ServedDisk};
pub use speeds::{ArrayShape, BusSpeeds, DiskKind, HeadSpeeds, KindError, MOST_SCALE};
