//! Payload memory: blocks for the bytes of messages that have no other place.
//!
//! Two kinds of users share it. A flow fills blocks with unexpected messages, one behind
//! the other, for which its grants promised room. Injected messages and early packets take
//! whole blocks from what no grant promises, and are refused when that is used up.

use crate::links::NO_PLACE;

/// Length of a block in bytes.
pub(crate) const BLOCK_LEN: usize = 8192;
/// Length of a unit in bytes: grants count units.
pub(crate) const UNIT_LEN: usize = 64;

#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    /// The block with the bytes that follow; or the next free block.
    next: u32,
    /// Messages with bytes in this block.
    users: u32,
    /// Units that these, and messages that were here before, took of their flow's grant.
    units: u32,
    is_promised: bool,
}

/// A place for bytes, in one block or several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredBytes {
    first: u32,
    start: u32,
    len: u32,
}

impl StoredBytes {
    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    fn blocks(&self) -> usize {
        (self.start as usize + self.len()).div_ceil(BLOCK_LEN)
    }
}

/// The block that a flow fills, and how far it is filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FillPoint {
    block: u32,
    filled: u32,
}

impl FillPoint {
    /// A flow without a block.
    pub(crate) const NONE: Self = Self {
        block: NO_PLACE,
        filled: 0,
    };
}

/// The blocks of an endpoint. Memory is taken when a block is first used.
#[derive(Debug)]
pub(crate) struct PayloadPool {
    blocks: Vec<Block>,
    free: u32,
    /// Blocks that nothing promised, and those of them in use.
    spare: u32,
    spare_used: u32,
}

impl PayloadPool {
    /// Creates a pool with `spare` blocks beyond those that grants promise. Grants bound the
    /// others.
    pub(crate) fn new(spare: u32) -> Self {
        Self {
            blocks: Vec::new(),
            free: NO_PLACE,
            spare,
            spare_used: 0,
        }
    }

    /// Number of blocks in use that no grant promised.
    pub(crate) fn spare_used(&self) -> u32 {
        self.spare_used
    }

    fn take(&mut self, is_promised: bool) -> u32 {
        let at = self.free;
        if let Some(block) = self.blocks.get_mut(at as usize) {
            self.free = block.next;
            block.next = NO_PLACE;
            block.is_promised = is_promised;
            return at;
        }
        self.blocks.push(Block {
            bytes: vec![0; BLOCK_LEN].into_boxed_slice(),
            next: NO_PLACE,
            users: 0,
            units: 0,
            is_promised,
        });
        self.blocks.len() as u32 - 1
    }

    fn give_back(&mut self, at: u32) {
        let block = &mut self.blocks[at as usize];
        self.spare_used -= u32::from(!block.is_promised);
        (block.users, block.units) = (0, 0);
        block.next = self.free;
        self.free = at;
    }

    /// Makes room for bytes that no grant promised. Returns `None` if there is none.
    pub(crate) fn reserve_spare(&mut self, len: usize) -> Option<StoredBytes> {
        let count = u32::try_from(len.div_ceil(BLOCK_LEN)).ok()?.max(1);
        if self.spare - self.spare_used < count {
            return None;
        }
        self.spare_used += count;
        let mut first = NO_PLACE;
        for _ in 0..count {
            let at = self.take(false);
            self.blocks[at as usize].next = first;
            self.blocks[at as usize].users = 1;
            first = at;
        }
        let (start, len) = (0, len as u32);
        Some(StoredBytes { first, start, len })
    }

    /// Makes room behind a flow's last message, as its grant promised. `len` is not 0.
    pub(crate) fn reserve_promised(&mut self, point: &mut FillPoint, len: usize) -> StoredBytes {
        let is_full = point.block == NO_PLACE || point.filled as usize == BLOCK_LEN;
        if is_full {
            self.advance(point);
        }
        let (first, start) = (point.block, point.filled);
        let mut left = len;
        loop {
            let taken = left.min(BLOCK_LEN - point.filled as usize);
            let units = taken.div_ceil(UNIT_LEN);
            point.filled += (units * UNIT_LEN) as u32;
            let block = &mut self.blocks[point.block as usize];
            block.users += 1;
            block.units += units as u32;
            left -= taken;
            if left == 0 {
                let len = len as u32;
                return StoredBytes { first, start, len };
            }
            self.advance(point);
        }
    }

    fn advance(&mut self, point: &mut FillPoint) {
        let block = self.take(true);
        if let Some(before) = self.blocks.get_mut(point.block as usize) {
            before.next = block;
        }
        *point = FillPoint { block, filled: 0 };
    }

    /// Gives room back. Returns the units of blocks that hold nothing any more. `point` is
    /// that of the flow that made room; any point for other bytes.
    pub(crate) fn release(&mut self, stored: StoredBytes, point: &mut FillPoint) -> u32 {
        let (mut at, mut units) = (stored.first, 0);
        for _ in 0..stored.blocks().max(1) {
            let block = &mut self.blocks[at as usize];
            let next = block.next;
            block.users -= 1;
            if block.users == 0 {
                units += core::mem::take(&mut block.units);
                if at == point.block {
                    point.filled = 0;
                } else {
                    self.give_back(at);
                }
            }
            at = next;
        }
        units
    }

    /// Ends a flow's filling. Blocks that hold messages go when these go.
    pub(crate) fn end_fill(&mut self, point: &mut FillPoint) {
        let point = core::mem::replace(point, FillPoint::NONE);
        if self
            .blocks
            .get(point.block as usize)
            .is_some_and(|block| block.users == 0)
        {
            self.give_back(point.block);
        }
    }

    /// Writes bytes at an offset of their place.
    pub(crate) fn write(&mut self, stored: StoredBytes, offset: usize, mut bytes: &[u8]) {
        debug_assert!(offset + bytes.len() <= stored.len());
        let mut at = stored.first;
        let mut skip = stored.start as usize + offset;
        while !bytes.is_empty() {
            let block = &mut self.blocks[at as usize];
            if skip < BLOCK_LEN {
                let (now, later) = bytes.split_at(bytes.len().min(BLOCK_LEN - skip));
                block.bytes[skip..skip + now.len()].copy_from_slice(now);
                bytes = later;
            }
            skip = skip.saturating_sub(BLOCK_LEN);
            at = block.next;
        }
    }

    /// Shows `len` bytes from an offset on, block by block.
    pub(crate) fn pieces(
        &self,
        stored: StoredBytes,
        offset: usize,
        len: usize,
    ) -> impl Iterator<Item = &[u8]> {
        let mut at = stored.first;
        let mut skip = stored.start as usize + offset;
        let mut left = len.min(stored.len().saturating_sub(offset));
        core::iter::from_fn(move || {
            while left > 0 {
                let block = self.blocks.get(at as usize)?;
                at = block.next;
                if skip < BLOCK_LEN {
                    let piece = &block.bytes[skip..BLOCK_LEN.min(skip + left)];
                    (skip, left) = (0, left - piece.len());
                    return Some(piece);
                }
                skip -= BLOCK_LEN;
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(pool: &PayloadPool, stored: StoredBytes, offset: usize, len: usize) -> Vec<u8> {
        pool.pieces(stored, offset, len).flatten().copied().collect()
    }

    #[test]
    fn spare_blocks_end_and_come_back() {
        let mut pool = PayloadPool::new(3);
        let held = pool.reserve_spare(BLOCK_LEN + 1).unwrap();
        assert!(pool.reserve_spare(BLOCK_LEN + 1).is_none());
        let small = pool.reserve_spare(0).unwrap();
        assert!(pool.reserve_spare(1).is_none());
        pool.release(held, &mut FillPoint::NONE.clone());
        pool.release(small, &mut FillPoint::NONE.clone());
        assert_eq!(pool.spare_used(), 0);
        assert!(pool.reserve_spare(3 * BLOCK_LEN).is_some());
    }

    proptest! {
        #[test]
        fn messages_of_a_flow_keep_their_bytes_and_all_units_come_home(
            lens in proptest::collection::vec(65usize..20_000, 1..40), order in any::<u64>()
        ) {
            let (mut pool, mut point) = (PayloadPool::new(1), FillPoint::NONE);
            let (mut held, mut taken, mut back) = (Vec::new(), 0, 0);
            for (number, len) in lens.iter().enumerate() {
                let stored = pool.reserve_promised(&mut point, *len);
                let bytes: Vec<u8> = (0..*len).map(|at| (at * 7 + number) as u8).collect();
                pool.write(stored, 0, &bytes[..len / 2]);
                pool.write(stored, len / 2, &bytes[len / 2..]);
                taken += len.div_ceil(UNIT_LEN) as u32;
                held.push((stored, bytes));
                if (order >> (number % 64)) & 1 == 0 {
                    let (stored, bytes) = held.swap_remove(order as usize % held.len());
                    prop_assert_eq!(&content(&pool, stored, 0, usize::MAX), &bytes);
                    prop_assert_eq!(&content(&pool, stored, 33, 9000), &bytes[33..bytes.len().min(9033)]);
                    back += pool.release(stored, &mut point);
                }
                // Blocks in use are bounded by the units that did not come back.
                let used = pool.blocks.iter().filter(|block| block.users > 0).count() as u32;
                prop_assert!(used <= (taken - back) / (BLOCK_LEN / UNIT_LEN) as u32 + 2);
            }
            pool.end_fill(&mut point);
            for (stored, bytes) in held {
                prop_assert_eq!(&content(&pool, stored, 0, usize::MAX), &bytes);
                back += pool.release(stored, &mut point);
            }
            prop_assert_eq!(back, taken);
            let mut free = 0;
            let mut at = pool.free;
            while at != NO_PLACE {
                free += 1;
                at = pool.blocks[at as usize].next;
            }
            prop_assert_eq!(free, pool.blocks.len());
        }
    }
}
