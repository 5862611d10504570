//! Arenas: payload memory that one other node may read, each in its own memory file.
//!
//! A node keeps the data for a peer in blocks that only this peer maps. Nothing else lies there.
//! This file owns the assignment of arenas to peers, and their addresses in this process.
//! [`Payload`](crate::Payload) owns the free blocks.
//!
//! An arena is *open* from the moment a peer joins until it leaves. A closed arena gives out no
//! more blocks. Once none of its blocks is in use, another peer can get it, with other memory. The
//! generation in an [`ArenaId`] distinguishes the lives of an arena. A process that maps the memory
//! of an earlier life does not touch the blocks of this one.

use core::fmt;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::carve::{Carver, OutOfMemory, PIECE_ALIGN, piece_bytes};
use crate::{Region, RegionError};

/// Bits of an id that say which arena it is.
const INDEX_BITS: u32 = 10;
const GENERATIONS: u32 = 1 << (OPEN.trailing_zeros() - INDEX_BITS);

/// Set in a ticket's `life` while blocks of the arena may be allocated.
const OPEN: u32 = 1 << 31;

/// One life of an arena. All zeroes: none, but the node's private payload memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct ArenaId(u32);

impl ArenaId {
    /// The node's private payload memory, which no peer maps.
    pub const PRIVATE: Self = Self(0);

    fn new(index: usize, generation: u32) -> Self {
        Self((generation % GENERATIONS) << INDEX_BITS | (index as u32 + 1))
    }

    /// The index of the arena; `None` for private memory. It may be any number below 1024.
    #[inline]
    pub(crate) fn index(self) -> Option<usize> {
        ((self.0 & ((1 << INDEX_BITS) - 1)) as usize).checked_sub(1)
    }

    fn generation(self) -> u32 {
        (self.0 & !OPEN) >> INDEX_BITS
    }
}

/// The state of an arena that all processes of the node share.
#[derive(Debug)]
#[repr(C)]
struct Ticket {
    /// The id, and [`OPEN`].
    life: AtomicU32,
    /// Blocks in use.
    used: AtomicU32,
}

/// A ticket as plain bytes.
type TicketBytes = [u32; 2];
const _: () = assert!(size_of::<Ticket>() == size_of::<TicketBytes>());

/// The mapping of an arena in this process.
#[derive(Debug)]
struct Place {
    /// The id of the mapped life; 0: none.
    id: AtomicU32,
    first: AtomicPtr<u8>,
    region: Mutex<Option<Arc<Region>>>,
}

/// A process's handle to its node's arenas. Every clone refers to the same arenas.
///
/// Only the holder of the node's lease may call the methods, unless they say otherwise.
#[derive(Clone)]
pub struct Arenas(Arc<Inner>);

struct Inner {
    tickets: NonNull<Ticket>,
    places: Box<[Place]>,
    /// Bytes of each arena, as a power of two.
    shift: u32,
    region: Arc<Region>,
}

// SAFETY: tickets are atomics in memory that stays mapped as long as `region`; places are
// atomics and a mutex.
unsafe impl Send for Inner {}
// SAFETY: tickets are atomics in memory that stays mapped as long as `region`; places are atomics
// and a mutex.
unsafe impl Sync for Inner {}

impl Arenas {
    /// Most arenas of a node.
    pub const MOST: u32 = (1 << INDEX_BITS) - 1;

    pub(crate) fn bytes_needed(count: u32) -> usize {
        piece_bytes::<TicketBytes>(count as usize, PIECE_ALIGN)
    }

    /// `count` arenas of 2 to the power of `shift` bytes.
    pub(crate) fn carve(carver: &mut Carver, count: u32, shift: u32) -> Result<Self, OutOfMemory> {
        assert!(count <= Self::MOST, "{count} arenas are too many");
        let (tickets, _) = carver.take::<TicketBytes>(count as usize, PIECE_ALIGN)?;
        let place = || Place {
            id: AtomicU32::new(0),
            first: AtomicPtr::new(null_mut()),
            region: Mutex::new(None),
        };
        Ok(Self(Arc::new(Inner {
            tickets: tickets.cast(),
            places: std::iter::repeat_with(place).take(count as usize).collect(),
            shift,
            region: carver.mapping(),
        })))
    }

    #[inline]
    fn ticket(&self, index: usize) -> Option<&Ticket> {
        // SAFETY: the piece has as many tickets as there are places, aligned, in the mapping that
        // `region` keeps. They consist of atomics, for which every bit pattern is valid.
        (index < self.count()).then(|| unsafe { self.0.tickets.add(index).as_ref() })
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.0.places.len()
    }

    /// Bytes of each.
    #[inline]
    pub fn arena_len(&self) -> usize {
        1 << self.0.shift
    }

    /// Creates the memory of an arena. `name` appears in `/proc/PID/maps`. Any thread may call this
    /// at any time.
    ///
    /// # Errors
    ///
    /// If the kernel refuses a memory file or addresses.
    pub fn create_memory(&self, name: &str) -> Result<Region, RegionError> {
        Region::create(name, self.arena_len())
    }

    /// Begins an arena's life with unused memory, and maps it in this process. `None` if blocks of
    /// all arenas are still in use, or if the memory has another length.
    pub fn open(&self, memory: Arc<Region>) -> Option<ArenaId> {
        let is_free =
            |ticket: &Ticket| ticket.life.load(Relaxed) & OPEN == 0 && ticket.used.load(Relaxed) == 0;
        let index = (0..self.count()).find(|&index| self.ticket(index).is_some_and(is_free))?;
        let ticket = self.ticket(index)?;
        let before = ArenaId(ticket.life.load(Relaxed)).generation();
        let id = ArenaId::new(index, before + 1);
        if memory.len() != self.arena_len() {
            return None;
        }
        self.adopt(id, memory);
        ticket.life.store(id.0 | OPEN, Relaxed);
        Some(id)
    }

    /// Maps an arena that another process has [opened](Arenas::open). The caller has checked with
    /// the engine that the memory is that arena's.
    pub fn adopt(&self, id: ArenaId, memory: Arc<Region>) {
        let place = id.index().and_then(|index| self.0.places.get(index));
        let Some(place) = place.filter(|_| memory.len() == self.arena_len()) else {
            return;
        };
        if place.id.load(Relaxed) == id.0 {
            return;
        }
        memory.prefer_huge_pages(0, memory.len());
        let first = memory.base_mut();
        // No thread uses the memory of the earlier life: none of its blocks is in use.
        place.id.store(0, Relaxed);
        place.first.store(first.as_ptr(), Relaxed);
        *place.region.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
        place.id.store(id.0, Release);
    }

    /// Stops the allocation of an arena's blocks, because its peer has left. Other lives of the
    /// arena stay as they are.
    pub fn close(&self, id: ArenaId) {
        if let Some(ticket) = id.index().and_then(|index| self.ticket(index))
            && ticket.life.load(Relaxed) == id.0 | OPEN
        {
            ticket.life.store(id.0, Relaxed);
        }
    }

    /// Closes all arenas except those for which `is_live` returns true.
    pub fn close_others(&self, is_live: impl Fn(ArenaId) -> bool) {
        for index in 0..self.count() {
            let life = self.ticket(index).map_or(0, |ticket| ticket.life.load(Relaxed));
            let id = ArenaId(life & !OPEN);
            if life & OPEN != 0 && !is_live(id) {
                self.close(id);
            }
        }
    }

    /// The offset of the `len` bytes at `address` from the start of an arena. `None` unless all of
    /// them lie there.
    #[inline]
    pub fn offset_of(&self, id: ArenaId, address: *const u8, len: usize) -> Option<u64> {
        let place = self.0.places.get(id.index()?)?;
        if place.id.load(Relaxed) != id.0 {
            return None;
        }
        let inside = address.addr().wrapping_sub(place.first.load(Relaxed).addr());
        let fits = inside <= self.arena_len() && len <= self.arena_len() - inside;
        fits.then_some(inside as u64)
    }

    /// The arena's index if this process may allocate its blocks.
    #[inline]
    pub(crate) fn usable(&self, id: ArenaId) -> Option<usize> {
        let index = id.index()?;
        let ticket = self.ticket(index)?;
        let is_mapped = self.0.places[index].id.load(Relaxed) == id.0;
        (is_mapped && ticket.life.load(Relaxed) == id.0 | OPEN).then_some(index)
    }

    /// The present life of an arena, and whether it is open.
    #[inline]
    pub(crate) fn life(&self, index: usize) -> (ArenaId, bool) {
        let life = self.ticket(index).map_or(0, |ticket| ticket.life.load(Relaxed));
        (ArenaId(life & !OPEN), life & OPEN != 0)
    }

    #[inline]
    pub(crate) fn note_used(&self, index: usize, used: u32) {
        if let Some(ticket) = self.ticket(index) {
            ticket.used.store(used, Relaxed);
        }
    }

    /// The address of the present life of an arena in this process, if it is mapped. Any thread may
    /// call this at any time.
    #[inline]
    pub(crate) fn first(&self, index: usize) -> Option<NonNull<u8>> {
        let place = self.0.places.get(index)?;
        let (id, _) = self.life(index);
        if id == ArenaId::PRIVATE || place.id.load(Acquire) != id.0 {
            return None;
        }
        NonNull::new(place.first.load(Relaxed))
    }

    /// Unmaps a closed arena in this process, if none of its blocks is in use.
    pub(crate) fn unmap(&self, index: usize) {
        if let Some(place) = self.0.places.get(index)
            && !self.life(index).1
        {
            place.id.store(0, Relaxed);
            *place.region.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Returns pages of an arena to the system; their bytes are zero at the next read. False if
    /// this process does not map the arena, or if the system refuses.
    pub(crate) fn discard(&self, index: usize, offset: usize, len: usize) -> bool {
        let Some(place) = self.0.places.get(index) else {
            return false;
        };
        if self.first(index).is_none() {
            return false;
        }
        let region = place.region.lock().unwrap_or_else(PoisonError::into_inner);
        region.as_ref().is_some_and(|region| region.discard(offset, len))
    }
}

impl fmt::Debug for Arenas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arenas")
            .field("count", &self.count())
            .field("arena_len", &self.arena_len())
            .field("region", &self.0.region)
            .finish_non_exhaustive()
    }
}
