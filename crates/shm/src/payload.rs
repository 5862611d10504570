//! Payload memory: blocks of one size that carry the bytes of sockets.
//!
//! This file owns which blocks are free and how blocks are chained. What the
//! bytes of a chain mean is its owner's affair (commonly a [`crate::ByteQueue`]).

use core::fmt;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::carve::{Carver, OutOfMemory, piece_bytes};
use crate::channel::SharedBytes;
use crate::{NONE, Region, Table};

/// Where the blocks begin: on a page, so that the memory can be mapped by itself.
const AREA_ALIGN: usize = 4096;

/// Mark of a free block in the table of links.
const FREE: u32 = 1 << 31;

/// All zero is payload memory with every block free, so that fresh memory needs
/// no initialisation.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    /// Blocks below this were in use at some time; those above were never touched.
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
}

/// Retired blocks rest until this many bytes of them have come together. By then
/// the lines the peer's core has read have left its own caches, and writing them
/// anew no longer takes them out of there one by one. Measured between two cores
/// with 1 MiB of second-level cache each: 65 Gb/s when 0.25 MiB go round, 90 with
/// 1 MiB, 300 with 2 to 12 MiB, 90 when they no longer fit the third level.
const REST: usize = 4 << 20;

/// Blocks of payload memory, with a link from each to the next in a chain.
///
/// Blocks freed last are allocated first: their memory is in the cache. Blocks
/// that were written from end to end are retired instead, and come back in turn.
pub struct Payload {
    head: Table<Head>,
    /// Of a block in use: the next one of its chain + 1, or 0. Of a free block:
    /// [`FREE`] and the next free one + 1, or 0.
    links: Table<u32>,
    area: Table<u8>,
    area_offset: usize,
    shift: u32,
}

impl Payload {
    /// Bytes that payload memory of `blocks` blocks of `block_len` bytes takes from a region.
    pub fn bytes_needed(blocks: u32, block_len: u32) -> usize {
        let area = (blocks as usize).saturating_mul(block_len as usize);
        Table::<Head>::bytes_needed(1)
            .saturating_add(Table::<u32>::bytes_needed(blocks as usize))
            .saturating_add(piece_bytes::<u8>(area, AREA_ALIGN))
    }

    pub(crate) fn carve(carver: &mut Carver, blocks: u32, block_len: u32) -> Result<Self, OutOfMemory> {
        assert!(
            block_len.is_power_of_two() && block_len >= 64,
            "{block_len} is no length for blocks"
        );
        assert!(blocks < FREE, "there are fewer than {FREE} blocks");
        let head = Table::carve(carver, 1)?;
        let links = Table::carve(carver, blocks as usize)?;
        let area_len = (blocks as usize).saturating_mul(block_len as usize);
        let (area, area_offset) = Table::carve_aligned(carver, area_len, AREA_ALIGN)?;
        if let mapping = carver.mapping()
            && mapping.fd().is_some()
        {
            mapping.prefer_huge_pages(area_offset, area_len);
        }
        Ok(Self {
            head,
            links,
            area,
            area_offset,
            shift: block_len.trailing_zeros(),
        })
    }

    /// Takes a block, linked to nothing; its bytes are anything. `None` if all are in use.
    #[inline]
    pub fn allocate(&mut self) -> Option<u32> {
        let head = self.head[0];
        let block = if head.free != 0 {
            let (block, link) = self.listed(head.free)?;
            self.head[0].free = link;
            block
        } else {
            let untouched = (head.touched as usize) < self.links.len();
            let rested = ((head.retired as usize) << self.shift) >= REST;
            if head.retired != 0 && (rested || !untouched) {
                let (block, link) = self.listed(head.retired_first)?;
                self.head[0].retired_first = link;
                self.head[0].retired = head.retired - 1;
                block
            } else if untouched {
                self.head[0].touched = head.touched + 1;
                head.touched
            } else {
                return None;
            }
        };
        self.head[0].used = head.used.wrapping_add(1);
        self.links[block as usize] = 0;
        Some(block)
    }

    /// A free block and the next one in its list, each + 1. What the list says is
    /// checked, not trusted: a block in use is never given out.
    #[inline]
    fn listed(&self, entry: u32) -> Option<(u32, u32)> {
        let block = entry.checked_sub(1)?;
        let link = *self.links.get(block as usize)?;
        (link & FREE != 0).then_some((block, link & !FREE))
    }

    /// Gives back a block that was written from end to end: it rests before it is
    /// allocated again. A block that is not in use stays as it is.
    #[inline]
    pub fn retire(&mut self, block: u32) {
        let in_use = self.is_used(block);
        debug_assert!(in_use, "block {block} is not in use");
        if !in_use {
            return;
        }
        self.links[block as usize] = FREE;
        let head = &mut self.head[0];
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
        head.used = head.used.wrapping_sub(1);
    }

    /// Gives a block back. A block that is not in use stays as it is.
    #[inline]
    pub fn free(&mut self, block: u32) {
        let in_use = self.is_used(block);
        debug_assert!(in_use, "block {block} is not in use");
        if in_use {
            let head = &mut self.head[0];
            self.links[block as usize] = FREE | head.free;
            head.free = block + 1;
            head.used = head.used.wrapping_sub(1);
        }
    }

    /// Gives back all blocks of the chain that begins with `head` (or is [`NONE`]).
    pub fn free_chain(&mut self, head: u32) {
        let mut block = head;
        // A freed block is marked, so that even a chain that bites its tail ends.
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

    /// Makes `next` (or [`NONE`]) the block after `block` in its chain. Does
    /// nothing if `block` is not in use or `next` no block.
    #[inline]
    pub fn set_next(&mut self, block: u32, next: u32) {
        let valid = self.is_used(block) && (next == NONE || next < self.capacity());
        debug_assert!(valid, "blocks {block} and {next} cannot be linked");
        if valid {
            self.links[block as usize] = next.wrapping_add(1);
        }
    }

    /// The bytes of a block.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    #[inline]
    pub fn bytes(&self, block: u32) -> &[u8] {
        self.part(block, 0, self.block_len())
    }

    /// The bytes of a block.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    #[inline]
    pub fn bytes_mut(&mut self, block: u32) -> &mut [u8] {
        self.part_mut(block, 0, self.block_len())
    }

    /// Some bytes of a block. What lies beside them may be another's at the time, by a
    /// [`Lane`](crate::Lane).
    ///
    /// # Panics
    ///
    /// If there is no such block, or it is shorter.
    #[inline]
    pub(crate) fn part(&self, block: u32, within: usize, len: usize) -> &[u8] {
        assert!(within + len <= self.block_len());
        self.area.part(((block as usize) << self.shift) + within, len)
    }

    /// The same, for changing them.
    ///
    /// # Panics
    ///
    /// If there is no such block, or it is shorter.
    #[inline]
    pub(crate) fn part_mut(&mut self, block: u32, within: usize, len: usize) -> &mut [u8] {
        assert!(within + len <= self.block_len());
        self.area.part_mut(((block as usize) << self.shift) + within, len)
    }

    /// The bytes of all blocks, for those who use some of them without the lease.
    pub(crate) fn share(&self) -> SharedBytes {
        SharedBytes::new(self.area.first(), self.area.len(), self.shift, self.area.region())
    }

    /// Copies `len` bytes from one place to another; the two may be in one block.
    ///
    /// # Panics
    ///
    /// If either does not lie in one block.
    pub(crate) fn copy_within(&mut self, from: (u32, usize), to: (u32, usize), len: usize) {
        let start = |(block, offset): (u32, usize)| {
            assert!(offset + len <= self.block_len());
            let start = ((block as usize) << self.shift) + offset;
            assert!(start + len <= self.area.len());
            start
        };
        let (from, to) = (start(from), start(to));
        let first = self.area.first().as_ptr();
        // SAFETY: both lie in the area, which is borrowed mutably; the first way is taken
        // for such as do not overlap.
        unsafe {
            if from.abs_diff(to) >= len {
                crate::copy::copy(first.add(from), first.add(to), len);
            } else {
                core::ptr::copy(first.add(from), first.add(to), len);
            }
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
        self.capacity().saturating_sub(self.head[0].used)
    }

    /// Number of blocks, free or not.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.links.len() as u32
    }

    /// After somebody died in the middle of a change: makes all blocks free that were, and a
    /// chain of those that are in nobody's queue. `owned` says of each block whether it is in
    /// one; see [`ByteQueue::claim_blocks`](crate::ByteQueue::claim_blocks). Takes time in
    /// proportion to the most blocks that were ever in use.
    pub fn mend(&mut self, owned: &[bool]) -> Chain {
        let touched = (self.head[0].touched as usize).min(self.links.len());
        let (mut free, mut used) = (0, 0);
        let mut stray = Chain::default();
        for block in (0..touched).rev() {
            let number = block as u32 + 1;
            if owned.get(block).is_some_and(|&owned| owned) {
                used += 1;
            } else if self.links[block] & FREE != 0 {
                self.links[block] = FREE | free;
                free = number;
            } else {
                used += 1;
                self.links[block] = stray.first;
                if stray.blocks == 0 {
                    stray.last = number;
                }
                stray.first = number;
                stray.blocks += 1;
            }
        }
        let head = &mut self.head[0];
        (head.free, head.used) = (free, used);
        (head.retired_first, head.retired_last, head.retired) = (0, 0, 0);
        stray
    }

    /// Blocks that were ever in use.
    pub(crate) fn touched(&self) -> usize {
        (self.head[0].touched as usize).min(self.links.len())
    }

    /// Leaves the lists of free blocks as no change that is finished does.
    #[cfg(test)]
    pub(crate) fn disturb(&mut self) {
        let head = &mut self.head[0];
        (head.free, head.used, head.retired_last, head.retired) = (head.touched, 7, 1, 5);
    }

    /// Where the blocks lie, for telling others.
    pub fn area(&self) -> PayloadArea {
        PayloadArea {
            first: self.area.as_ptr().addr(),
            len: self.area.len(),
            offset: self.area_offset,
            region: self.area.region(),
        }
    }

    #[inline]
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    #[inline]
    pub(crate) fn is_used(&self, block: u32) -> bool {
        // Blocks never touched have the link of a block in use, 0, but no index below `touched`.
        block < self.head[0].touched
            && self
                .links
                .get(block as usize)
                .is_some_and(|link| link & FREE == 0)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("block_len", &self.block_len())
            .field("used", &self.head[0].used)
            .field("capacity", &self.links.len())
            .finish()
    }
}

/// Blocks that are linked to each other, each + 1; 0 if there are none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chain {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) blocks: u32,
}

/// Where the blocks of a [`Payload`] lie in its region: what makes a reference
/// out of an address, for readers that map the region elsewhere.
#[derive(Debug, Clone)]
pub struct PayloadArea {
    region: Arc<Region>,
    /// Address of the first block in this process.
    first: usize,
    len: usize,
    offset: usize,
}

impl PayloadArea {
    /// How far from the start of the *region* the `len` bytes at `address` lie;
    /// `None` unless all of them lie in payload memory. The other side finds them
    /// with [`Region::gather`].
    #[inline]
    pub fn offset_of(&self, address: *const u8, len: usize) -> Option<u64> {
        let inside = address.addr().wrapping_sub(self.first);
        let fits = inside <= self.len && len <= self.len - inside;
        fits.then(|| (self.offset + inside) as u64)
    }

    /// The region the blocks lie in.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Bytes from the start of the region to the first block.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of all blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
