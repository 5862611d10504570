//! Regions, slabs, rings and doorbells in shared memory.
//!
//! All raw memory of Toehold lies here. Above this crate, state consists of typed handles
//! ([`Table`], [`Slab`], [`Payload`]), and bytes of other processes are [`Gather`]s. Several
//! processes use the same state in turn, by a [`Lease`], and rest in [`Parking`].
//!
//! Everything in a region is plain old data addressed by indices, never by pointers, so that
//! several processes can map it at different addresses. A [`Carver`] makes the handles, in an order
//! that every process repeats:
//!
//! ```
//! use toehold_shm::{ByteQueue, Carver, Payload, Region, Slab};
//!
//! let len = Slab::<u64>::bytes_needed(100) + Payload::bytes_needed(8, 4096);
//! let mut carver = Carver::new(Region::private(len)?)?;
//! let mut slab = carver.slab::<u64>(100)?;
//! let mut payload = carver.payload(8, 4096)?;
//!
//! let index = slab.insert(7).unwrap();
//! assert_eq!(slab[index], 7);
//!
//! let mut queue = ByteQueue::EMPTY;
//! assert_eq!(queue.append(&mut payload, b"bytes on their way"), 18);
//! let mut first = [0; 5];
//! assert_eq!(queue.read(&mut payload, &mut first), 5);
//! assert_eq!(&first, b"bytes");
//! # queue.clear(&mut payload);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Bytes that another node writes are hostile. This crate maps them for reading only
//! ([`Region::open`]), copies them out once, and checks them in private memory.

// A loom model has no memory that processes share, so code for that is unused there.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

mod aes;
mod arena;
mod byte_queue;
mod capture_ring;
mod carve;
mod cell;
mod chain_guard;
mod channel;
#[cfg(not(loom))]
mod clock;
mod copy;
#[cfg(not(any(loom, miri)))]
mod copy_policy;
pub mod direct;
mod doorbell;
mod futex;
mod gather;
#[cfg(not(loom))]
mod inheritance;
#[cfg(not(any(loom, miri)))]
mod kernel_memory;
mod lease;
mod parking;
mod payload;
mod prefetch;
#[cfg(not(loom))]
mod process;
mod region;
pub mod ring;
#[cfg(not(any(loom, miri)))]
mod sched_slice;
mod simd_match;
mod slab;
mod slot;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod vectors;
#[cfg(not(loom))]
mod words;

pub use aes::{AES_KEYS, AES_MESSAGE, AesHash};
pub use arena::{ArenaId, Arenas};
pub use byte_queue::ByteQueue;
#[cfg(not(loom))]
pub use capture_ring::{Label, Tape, TapeReader, TapeStatus};
pub use carve::{Carver, OutOfMemory};
pub use cell::{CELL_WORDS, Cell, Cells};
pub use chain_guard::Steps;
pub use channel::{Bounds, Direction, LANE_BLOCKS, LaneState, Left, Moved};
#[cfg(not(loom))]
pub use channel::{Channels, Lane, LaneLock};
#[cfg(not(loom))]
pub use clock::monotonic_ns;
#[cfg(not(any(loom, miri)))]
pub use copy_policy::{Choice, Way, copy_past_caches};
pub use doorbell::Doorbell;
pub use gather::{Gather, MAX_PARTS};
#[cfg(not(loom))]
pub use inheritance::Change;
#[cfg(not(any(loom, miri)))]
pub use kernel_memory::KernelMemory;
pub use lease::Revoked;
#[cfg(not(loom))]
pub use lease::{Farewell, Lease, LeaseGuard, Leased, Vigil, begin_to_leave, stay};
#[cfg(not(loom))]
pub use parking::Parking;
pub use parking::Rest;
pub use payload::{Chain, MAX_ARENA, Payload, PayloadArea};
pub use prefetch::{prefetch, prefetch_all};
#[cfg(not(loom))]
pub use process::{PerProcess, Process, begin_apart, inherit_nothing, inherit_signal_mask, note_fork};
pub use region::{Access, Region, RegionError};
#[cfg(not(any(loom, miri)))]
pub use sched_slice::ask_for_short_slices;
pub use simd_match::equal;
pub use slab::Slab;
pub use slot::{Slot, Used};
pub use table::Table;
pub use vectors::{Vectors, with_vectors};
#[cfg(not(loom))]
pub use words::{Word, Words};

/// Offsets into regions are `u64` between processes and `usize` within.
const _: () = assert!(size_of::<usize>() == 8, "toehold needs a 64-bit machine");

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The index that stands for "none" wherever indices are stored.
pub const NONE: u32 = u32::MAX;

/// Plain old data: every bit pattern is a value, no padding, no pointers.
///
/// Implemented for every type that derives zerocopy's traits and is `Copy`.
pub trait Plain: FromBytes + IntoBytes + KnownLayout + Immutable + Copy {}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Copy> Plain for T {}
