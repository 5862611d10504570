//! Payload memory: blocks of one size that carry the bytes of sockets.
//!
//! This file owns the free blocks and the chains of blocks. The owner of a chain gives its bytes a
//! meaning (usually a [`crate::ByteQueue`]).
//!
//! Block numbers begin with the node's private memory, which lies in its region. Then follow the
//! blocks of each [arena](crate::Arenas), which one peer may read. A chain may have blocks of
//! several. All blocks in use together are never more than the private ones. Private memory is
//! therefore sufficient if an arena is full, closed, or not mapped by this process.

mod area;
mod bytes;
mod discard;
mod mend;

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::arena::{ArenaId, Arenas};
use crate::carve::{Carver, OutOfMemory, piece_bytes};
use crate::{NONE, Table};

pub use self::area::PayloadArea;
pub use self::mend::Chain;

/// The blocks begin on a page, so that the memory can be mapped separately.
const AREA_ALIGN: usize = 4096;

/// Mark of a free block in the table of links.
const FREE: u32 = 1 << 31;

/// The blocks of private memory or of an arena. All zero: every block is free, so that fresh memory
/// needs no initialisation.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    /// Blocks before this, counted from the first one here, were in use at some time; later blocks
    /// were never touched.
    touched: u32,
    /// Block + 1 that was freed last; 0 if there is none.
    free: u32,
    /// Blocks in use.
    used: u32,
    /// Retired block + 1 that was retired first; 0 if there is none.
    retired_first: u32,
    /// Retired block + 1 that was retired last; 0 if there is none.
    retired_last: u32,
    /// Number of retired blocks.
    retired: u32,
    /// The arena's life that this head describes.
    life: ArenaId,
    /// In the first head: blocks in use in all heads.
    total: u32,
    /// In the first head: blocks in all heads that may have pages, the sum of `touched`.
    touched_total: u32,
}

/// Retired blocks rest until this many bytes have accumulated. By then the lines that the peer's
/// core has read have left its own caches. New writes no longer take them out of there one by one.
/// Two cores with 1 MiB of second-level cache each reach 65 Gb/s if 0.25 MiB circulate. They reach
/// 90 with 1 MiB, and 300 with 2 to 12 MiB. It is 90 again when the blocks exceed the third level.
const REST: usize = 4 << 20;

/// Blocks of payload memory, with a link from each to the next in a chain.
///
/// The allocator takes the block freed last: its memory is in the cache. Blocks that were written
/// from end to end are retired instead, and return in turn.
pub struct Payload {
    /// The heads of private memory and of each arena.
    heads: Table<Head>,
    /// For a block in use: the next one of its chain + 1, or 0. For a free block: [`FREE`] and the
    /// next free one + 1, or 0.
    links: Table<u32>,
    area: Table<u8>,
    area_offset: usize,
    shift: u32,
    /// Number of private blocks.
    private: u32,
    arenas: Arenas,
    /// Blocks of each arena, as a power of two.
    arena_shift: u32,
}

impl Payload {
    /// Bytes that payload memory of `blocks` blocks of `block_len` bytes takes from a region.
    pub fn bytes_needed(blocks: u32, block_len: u32) -> usize {
        Self::bytes_needed_with(blocks, block_len, 0)
    }

    /// Bytes that payload memory with `arenas` arenas takes from a region.
    pub fn bytes_needed_with(blocks: u32, block_len: u32, arenas: u32) -> usize {
        let area = (blocks as usize).saturating_mul(block_len as usize);
        let all = (arenas as usize)
            .saturating_mul(1 << arena_shift(blocks, block_len))
            .saturating_add(blocks as usize);
        Table::<Head>::bytes_needed(1 + arenas as usize)
            .saturating_add(Table::<u32>::bytes_needed(all))
            .saturating_add(Arenas::bytes_needed(arenas))
            .saturating_add(piece_bytes::<u8>(area, AREA_ALIGN))
    }

    pub(crate) fn carve(
        carver: &mut Carver,
        blocks: u32,
        block_len: u32,
        arenas: u32,
    ) -> Result<Self, OutOfMemory> {
        assert!(
            block_len.is_power_of_two() && block_len >= 64,
            "{block_len} is no length for blocks"
        );
        let (shift, arena_shift) = (block_len.trailing_zeros(), arena_shift(blocks, block_len));
        let all = (u64::from(arenas) << arena_shift) + u64::from(blocks);
        assert!(all < FREE.into(), "there are fewer than {FREE} blocks");
        let heads = Table::carve(carver, 1 + arenas as usize)?;
        let links = Table::carve(carver, all as usize)?;
        let arenas = Arenas::carve(carver, arenas, shift + arena_shift)?;
        let area_len = (blocks as usize).saturating_mul(block_len as usize);
        let (area, area_offset) = Table::carve_aligned(carver, area_len, AREA_ALIGN)?;
        if let mapping = carver.mapping()
            && mapping.fd().is_some()
        {
            mapping.prefer_huge_pages(area_offset, area_len);
        }
        Ok(Self {
            heads,
            links,
            area,
            area_offset,
            shift,
            private: blocks,
            arenas,
            arena_shift,
        })
    }

    /// The arenas, which lie outside the region.
    pub fn arenas(&self) -> &Arenas {
        &self.arenas
    }

    /// Takes a private block, linked to no other; its bytes are arbitrary. `None` if as many blocks
    /// are in use as there are private ones.
    #[inline]
    pub fn allocate(&mut self) -> Option<u32> {
        self.allocate_in(ArenaId::PRIVATE)
    }

    /// Takes a block of an arena if there is a free one, or else a private one, like
    /// [`Payload::allocate`].
    #[inline]
    pub fn allocate_in(&mut self, arena: ArenaId) -> Option<u32> {
        if self.heads[0].total >= self.private {
            return None;
        }
        let block = match arena {
            ArenaId::PRIVATE => self.take_from(0)?,
            _ => self.allocate_of_arena(arena)?,
        };
        self.heads[0].total += 1;
        self.links[block as usize] = 0;
        Some(block)
    }

    #[inline]
    fn allocate_of_arena(&mut self, arena: ArenaId) -> Option<u32> {
        let Some(index) = self.arenas.usable(arena) else {
            return self.take_from(0);
        };
        if self.heads[index + 1].life != arena {
            // No block of the arena's earlier life is in use.
            self.reset(index + 1, arena);
        }
        match self.take_from(index + 1) {
            Some(block) => {
                self.arenas.note_used(index, self.heads[index + 1].used);
                Some(block)
            }
            None => self.take_from(0),
        }
    }

    /// Takes a block of a head.
    #[inline]
    fn take_from(&mut self, place: usize) -> Option<u32> {
        let (first, count) = self.span(place);
        let head = self.heads[place];
        let rested = ((head.retired as usize) << self.shift) >= REST;
        let block = if head.free != 0 {
            let (block, link) = self.listed(head.free)?;
            self.heads[place].free = link;
            block
        } else if !(head.retired != 0 && rested) && head.touched < count && self.may_touch(place) {
            self.heads[place].touched = head.touched + 1;
            self.heads[0].touched_total = self.heads[0].touched_total.wrapping_add(1);
            first + head.touched
        } else if head.retired != 0 {
            let (block, link) = self.listed(head.retired_first)?;
            self.heads[place].retired_first = link;
            self.heads[place].retired = head.retired - 1;
            block
        } else {
            return None;
        };
        self.heads[place].used = self.heads[place].used.wrapping_add(1);
        // If a process has overwritten a list, its blocks may belong to another head.
        (self.place_of(block) == place).then_some(block)
    }

    /// Whether a block without pages may be taken. All arenas together have no more of those than
    /// private memory.
    #[inline]
    fn may_touch(&self, place: usize) -> bool {
        let head = &self.heads[0];
        place == 0 || head.touched_total.saturating_sub(head.touched) < self.private
    }

    /// The first block of a head, and the number of its blocks.
    #[inline]
    fn span(&self, place: usize) -> (u32, u32) {
        match place.checked_sub(1) {
            None => (0, self.private),
            Some(arena) => (
                self.private + ((arena as u32) << self.arena_shift),
                1 << self.arena_shift,
            ),
        }
    }

    /// The head of a block.
    #[inline]
    fn place_of(&self, block: u32) -> usize {
        match block.checked_sub(self.private) {
            None => 0,
            Some(beyond) => 1 + (beyond >> self.arena_shift) as usize,
        }
    }

    /// A free block and the next one in its list, each + 1. The list is checked, not trusted: a
    /// block in use is never given out.
    #[inline]
    fn listed(&self, entry: u32) -> Option<(u32, u32)> {
        let block = entry.checked_sub(1)?;
        let link = *self.links.get(block as usize)?;
        (link & FREE != 0).then_some((block, link & !FREE))
    }

    /// Frees a block that was written from end to end: it rests before it is allocated again. A
    /// block that is not in use stays as it is.
    #[inline]
    pub fn retire(&mut self, block: u32) {
        let in_use = self.is_used(block);
        debug_assert!(in_use, "block {block} is not in use");
        if !in_use {
            return;
        }
        self.links[block as usize] = FREE;
        let place = self.place_of(block);
        let head = &mut self.heads[place];
        let last = core::mem::replace(&mut head.retired_last, block + 1);
        if head.retired == 0 {
            head.retired_first = block + 1;
        } else if let Some(link) = last
            .checked_sub(1)
            .and_then(|last| self.links.get_mut(last as usize))
        {
            *link = FREE | (block + 1);
        }
        head.retired = head.retired.wrapping_add(1);
        self.note_freed(place);
    }

    /// Frees a block. A block that is not in use stays as it is.
    #[inline]
    pub fn free(&mut self, block: u32) {
        let in_use = self.is_used(block);
        debug_assert!(in_use, "block {block} is not in use");
        if in_use {
            let place = self.place_of(block);
            let head = &mut self.heads[place];
            self.links[block as usize] = FREE | head.free;
            head.free = block + 1;
            self.note_freed(place);
        }
    }

    /// Counts one block less in use in a head.
    #[inline]
    fn note_freed(&mut self, place: usize) {
        let head = &mut self.heads[place];
        head.used = head.used.wrapping_sub(1);
        let used = head.used;
        self.heads[0].total = self.heads[0].total.wrapping_sub(1);
        if place > 0 {
            self.arenas.note_used(place - 1, used);
            if used == 0 && !self.arenas.life(place - 1).1 {
                self.discard_all(place);
            }
        }
    }

    /// Frees all blocks of the chain that begins with `head` (or is [`NONE`]).
    pub fn free_chain(&mut self, head: u32) {
        let mut block = head;
        // A freed block is marked, so even a cyclic chain ends.
        while self.is_used(block) {
            let next = self.next(block);
            self.free(block);
            block = next;
        }
    }

    /// The block after `block` in its chain, or [`NONE`].
    #[inline]
    pub fn next(&self, block: u32) -> u32 {
        match self.links.get(block as usize) {
            Some(&link) if link & FREE == 0 => link.wrapping_sub(1),
            _ => NONE,
        }
    }

    /// Makes `next` (or [`NONE`]) the block after `block` in its chain. Does nothing if `block` is
    /// not in use or `next` does not exist.
    #[inline]
    pub fn set_next(&mut self, block: u32, next: u32) {
        let valid = self.is_used(block) && (next == NONE || (next as usize) < self.links.len());
        debug_assert!(valid, "blocks {block} and {next} cannot be linked");
        if valid {
            self.links[block as usize] = next.wrapping_add(1);
        }
    }

    /// Bytes of each block: a power of two.
    #[inline]
    pub fn block_len(&self) -> usize {
        1 << self.shift
    }

    /// Blocks that can still be allocated.
    #[inline]
    pub fn free_blocks(&self) -> u32 {
        self.private.saturating_sub(self.heads[0].total)
    }

    /// Most blocks in use at once.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.private
    }

    /// Blocks of a head that were ever in use.
    fn touched_of(&self, place: usize) -> u32 {
        let head = &self.heads[place];
        let is_present = place == 0 || self.arenas.life(place - 1).0 == head.life;
        if is_present {
            head.touched.min(self.span(place).1)
        } else {
            0
        }
    }

    /// An upper bound of the numbers of all blocks that were ever in use.
    pub(crate) fn touched(&self) -> usize {
        let ends = (0..self.heads.len()).filter(|&place| self.touched_of(place) > 0);
        ends.map(|place| (self.span(place).0 + self.touched_of(place)) as usize)
            .max()
            .unwrap_or(0)
    }

    /// Number of all blocks, arenas included, for bounding walks along chains.
    #[inline]
    pub(crate) fn blocks(&self) -> u32 {
        self.links.len() as u32
    }

    #[inline]
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    #[inline]
    pub(crate) fn is_used(&self, block: u32) -> bool {
        // Untouched blocks have the link of a block in use, 0, but their index is not below
        // `touched`.
        let place = self.place_of(block);
        let touched = self.heads.get(place).map_or(0, |head| head.touched);
        block.wrapping_sub(self.span(place).0) < touched
            && self
                .links
                .get(block as usize)
                .is_some_and(|link| link & FREE == 0)
    }
}

/// Most bytes of an arena. A longer one would map more than a peer's connections use. Data without
/// room there is copied.
pub const MAX_ARENA: u32 = 32 << 20;

/// Blocks of an arena, as a power of two: a quarter of the private ones, within bounds.
fn arena_shift(blocks: u32, block_len: u32) -> u32 {
    let most = (MAX_ARENA / block_len.max(1)).max(1);
    // An arena consists of whole pages.
    let least = (AREA_ALIGN as u32 / block_len.max(1)).max(1);
    (blocks / 4).clamp(least, most.max(least)).ilog2()
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("block_len", &self.block_len())
            .field("used", &self.heads[0].total)
            .field("capacity", &self.private)
            .field("arenas", &self.arenas.count())
            .finish()
    }
}
