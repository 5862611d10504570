//! A first-in-first-out queue of bytes in payload memory: what a socket sends or
//! receives.
//!
//! Bytes lie in a chain of blocks. Behind the queue's end there may be bytes that
//! arrived out of order; they become part of the queue by [`ByteQueue::extend`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::copy::{copy_away, copy_racing, prepare_write};
use crate::{ArenaId, Chain, Gather, NONE, Payload};

/// State of a queue; the bytes are in a [`Payload`], which every operation has to
/// be given: always the same one.
///
/// Blocks are held only where there are bytes. A copy of this value denotes the
/// same blocks: only one of the copies may go on being used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ByteQueue {
    /// First block + 1; 0 if there is none. Blocks are stored so because all
    /// zeroes have to be an empty queue.
    head: u32,
    /// Last block + 1.
    tail: u32,
    /// Offset of the first byte in the first block.
    start: u32,
    /// Bytes in the queue.
    len: u32,
    /// Bytes from the queue's head to the last one ever placed, at least `len`.
    reach: u32,
    /// Number of blocks.
    blocks: u32,
    /// A block + 1 somewhere in the chain from where searching may start; 0 if there is none.
    cursor: u32,
    /// Number of blocks before the cursor's.
    cursor_index: u32,
}

/// The processor fetches the lines of longer writes by itself.
const LONG_WRITE: usize = 4096;

impl ByteQueue {
    /// A queue of no bytes; all zeroes.
    pub const EMPTY: Self = Self {
        head: 0,
        tail: 0,
        start: 0,
        len: 0,
        reach: 0,
        blocks: 0,
        cursor: 0,
        cursor_index: 0,
    };

    /// Bytes in the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the queue has no bytes. There may be some behind its end.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Blocks the queue holds.
    #[inline]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Adds `bytes` at the end and returns how many were: fewer if memory is out.
    #[inline]
    pub fn append(&mut self, payload: &mut Payload, bytes: &[u8]) -> usize {
        self.append_in(payload, ArenaId::PRIVATE, bytes)
    }

    /// Adds `bytes` at the end, in blocks of an arena as far as it has some, and returns how many
    /// were: fewer if memory is out.
    #[inline]
    pub fn append_in(&mut self, payload: &mut Payload, arena: ArenaId, bytes: &[u8]) -> usize {
        let placed = self.place(
            (payload, arena),
            self.len(),
            bytes.len(),
            |payload, block, within, done, len| {
                let left = payload.block_len() - within - len;
                let Some(to) = payload.part(block, within, len) else {
                    return false;
                };
                // SAFETY: `len` bytes of a block that this queue alone has, borrowed mutably.
                unsafe { copy_away(&bytes[done..done + len], to.as_ptr()) };
                if len < LONG_WRITE {
                    prepare_write(to.as_ptr().wrapping_add(len), left.min(len));
                }
                true
            },
        );
        self.len += placed as u32;
        placed
    }

    /// Adds `len` bytes of `gather` from its byte `from` on at the end and returns
    /// how many were: fewer if memory is out or the gather has no more.
    #[inline]
    pub fn append_gather(
        &mut self,
        payload: &mut Payload,
        gather: &Gather<'_>,
        from: usize,
        len: usize,
    ) -> usize {
        let placed = self.write_at(payload, self.len(), gather, from, len);
        self.len += placed as u32;
        placed
    }

    /// Places `len` bytes of `gather` from its byte `from` on at `offset` bytes
    /// from the queue's head, and returns how many were: fewer if memory is out or
    /// the gather has no more. The queue's length stays the same.
    ///
    /// Blocks are taken for the whole way up to the bytes' end: the caller bounds
    /// `offset`, by the receive window.
    #[inline]
    pub fn write_at(
        &mut self,
        payload: &mut Payload,
        offset: usize,
        gather: &Gather<'_>,
        from: usize,
        len: usize,
    ) -> usize {
        let len = len.min(gather.len().saturating_sub(from));
        let to = (payload, ArenaId::PRIVATE);
        self.place(to, offset, len, |payload, block, within, done, len| {
            let Some(to) = payload.part(block, within, len) else {
                return false;
            };
            // SAFETY: `len` bytes of a block that this queue alone has, borrowed mutably, so that
            // no part of the gather lies there.
            unsafe { gather.copy_to_place(from + done, to.as_ptr(), len) };
            true
        })
    }

    /// Like [`ByteQueue::write_at`], from another queue in the same payload memory,
    /// whose bytes are taken from `from` on.
    pub fn write_at_from(
        &mut self,
        payload: &mut Payload,
        offset: usize,
        source: &Self,
        from: usize,
        len: usize,
    ) -> usize {
        let len = len.min(source.len().saturating_sub(from));
        let mut total = 0;
        while total < len {
            let Some((block, within, run)) = source.locate(payload, from + total) else {
                break;
            };
            let run = run.min(len - total);
            let placed = self.place(
                (&mut *payload, ArenaId::PRIVATE),
                offset + total,
                run,
                |payload, to, to_within, done, len| {
                    payload.copy_within((block, within + done), (to, to_within), len)
                },
            );
            total += placed;
            if placed < run {
                break;
            }
        }
        total
    }

    /// Makes the next `n` bytes behind the end part of the queue: they were placed
    /// by [`ByteQueue::write_at`]. Bytes never placed are not taken in.
    #[inline]
    pub fn extend(&mut self, n: usize) {
        let placed = self.reach.saturating_sub(self.len) as usize;
        debug_assert!(n <= placed, "only {placed} bytes lie behind the end");
        self.len += n.min(placed) as u32;
    }

    /// Moves bytes from the head into `into`, as many as there are and as fit, and
    /// returns how many.
    #[inline]
    pub fn read(&mut self, payload: &mut Payload, into: &mut [u8]) -> usize {
        let n = self.peek(payload, 0, into);
        self.take(payload, n);
        n
    }

    /// Copies bytes from `offset` on into `into`, as many as there are and as fit,
    /// and returns how many.
    #[inline]
    pub fn peek(&self, payload: &Payload, offset: usize, into: &mut [u8]) -> usize {
        let len = into.len().min(self.len().saturating_sub(offset));
        let mut done = 0;
        while done < len {
            let Some((block, within, run)) = self.locate(payload, offset + done) else {
                break;
            };
            let run = run.min(len - done);
            let Some(from) = payload.part(block, within, run) else {
                break;
            };
            let to = into[done..done + run].as_mut_ptr();
            // SAFETY: both are `run` bytes, and the program's buffer is no payload memory.
            unsafe { copy_racing(from.as_ptr(), to, run) };
            done += run;
        }
        done
    }

    /// Removes `n` bytes from the head, at most as many as there are. Their blocks rest before
    /// they are used again: others have read them.
    #[inline]
    pub fn consume(&mut self, payload: &mut Payload, n: usize) {
        self.remove(payload, n, Payload::retire);
    }

    /// The same of bytes that only this process has read: their blocks are the next to be used.
    #[inline]
    pub fn take(&mut self, payload: &mut Payload, n: usize) {
        self.remove(payload, n, Payload::free);
    }

    #[inline]
    fn remove(&mut self, payload: &mut Payload, n: usize, give_back: fn(&mut Payload, u32)) {
        let n = n.min(self.len()) as u32;
        self.len -= n;
        // Less than there is only in memory that somebody else has written to.
        self.reach = self.reach.saturating_sub(n);
        self.start = self.start.wrapping_add(n);
        let passed = self.start >> payload.shift();
        if passed > 0 {
            self.drop_blocks(payload, passed, give_back);
        }
        if self.reach == 0 {
            self.clear(payload);
        }
    }

    /// The bytes from `offset` on, at most `len`: fewer if they lie in more than
    /// [`crate::MAX_PARTS`] blocks. The next bytes are found without a search.
    #[inline]
    pub fn gather<'a>(&mut self, payload: &'a Payload, offset: usize, len: usize) -> Gather<'a> {
        let mut gather = Gather::EMPTY;
        let len = len.min(self.len().saturating_sub(offset));
        if let Some((block, within, run)) = self.locate(payload, offset)
            && len <= run
            && let Some(first) = payload.part(block, within, len)
        {
            (self.cursor, self.cursor_index) = (block + 1, self.block_index(payload, offset));
            // SAFETY: as below.
            unsafe { gather.push_raw(first.as_ptr(), len) };
            return gather;
        }
        let mut done = 0;
        while done < len {
            let Some((block, within, run)) = self.locate(payload, offset + done) else {
                break;
            };
            let run = run.min(len - done);
            let Some(first) = payload.part(block, within, run) else {
                break;
            };
            // SAFETY: the bytes are mapped as long as the payload memory is borrowed, and no
            // reference to them exists.
            if !unsafe { gather.push_raw(first.as_ptr(), run) } {
                break;
            }
            self.cursor = block + 1;
            self.cursor_index = self.block_index(payload, offset + done);
            done += run;
        }
        gather
    }

    /// Forgets the bytes behind the end and gives their blocks back.
    pub fn trim(&mut self, payload: &mut Payload) {
        self.reach = self.len;
        if self.len == 0 {
            return self.clear(payload);
        }
        let last_index = self.block_index(payload, self.len() - 1);
        let Some(last) = self.find(payload, last_index) else {
            return;
        };
        payload.free_chain(payload.next(last));
        payload.set_next(last, NONE);
        self.tail = last + 1;
        self.blocks = last_index + 1;
        (self.cursor, self.cursor_index) = (0, 0);
    }

    /// Holds memory for at least the next `room` bytes, as far as there is any, and makes
    /// all of what it holds part of what may be [extended](ByteQueue::extend) over: it is
    /// others who fill it, by a [`Lane`](crate::Lane). How many bytes that are.
    pub fn claim(&mut self, payload: &mut Payload, room: usize) -> usize {
        self.claim_in(payload, ArenaId::PRIVATE, room)
    }

    /// Like [`ByteQueue::claim`], in blocks of an arena as far as it has some.
    pub fn claim_in(&mut self, payload: &mut Payload, arena: ArenaId, room: usize) -> usize {
        let end = (self.start as usize + self.len()).saturating_add(room);
        while room > 0 && ((self.blocks as usize) << payload.shift()) < end {
            if self.block_to_fill(payload, arena, self.blocks).is_none() {
                break;
            }
        }
        let held = (self.blocks as usize) << payload.shift();
        self.reach = self.reach.max(held.saturating_sub(self.start as usize) as u32);
        self.claimed()
    }

    /// Bytes behind the end that were placed or claimed.
    #[inline]
    pub fn claimed(&self) -> usize {
        self.reach.saturating_sub(self.len) as usize
    }

    /// The block that the byte at `offset` lies in, or will.
    #[inline]
    pub fn block_at(&self, payload: &Payload, offset: usize) -> Option<u32> {
        self.find(payload, self.block_index(payload, offset))
    }

    /// The same, of a byte that there is. What follows it is found without a search.
    #[inline]
    pub fn seek(&mut self, payload: &Payload, offset: usize) -> Option<u32> {
        let index = self.block_index(payload, offset);
        let block = self.find(payload, index)?;
        (self.cursor, self.cursor_index) = (block + 1, index);
        Some(block)
    }

    /// A copy for reading, which finds the byte at `offset` in the block where it was
    /// [found](ByteQueue::seek), and what follows it, without a search. `None`: that is no block in use.
    #[inline]
    pub fn at_block(mut self, payload: &Payload, offset: usize, block: u32) -> Option<Self> {
        (self.cursor, self.cursor_index) = (block.wrapping_add(1), self.block_index(payload, offset));
        payload.is_used(block).then_some(self)
    }

    /// How far from the start of a block the byte at `offset` lies, or will.
    #[inline]
    pub fn within(&self, payload: &Payload, offset: usize) -> usize {
        (self.start as usize + offset) & (payload.block_len() - 1)
    }

    /// Lets a queue that holds no memory begin at so many bytes from the start of a block.
    /// One that holds some goes on where it is.
    #[inline]
    pub fn begin_at(&mut self, payload: &Payload, within: usize) {
        if self.blocks == 0 {
            debug_assert!(self.reach == 0);
            self.start = (within & (payload.block_len() - 1)) as u32;
        }
    }

    /// A queue of all that is in such blocks.
    pub fn of_chain(payload: &Payload, chain: Chain) -> Self {
        let len = (chain.blocks as usize) << payload.shift();
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Self {
            head: chain.first,
            tail: chain.last,
            len,
            reach: len,
            blocks: chain.blocks,
            ..Self::EMPTY
        }
    }

    /// Notes in `owned`, which grows as need be, the blocks that the queue holds. False: the
    /// queue is damaged, or another one holds some of them.
    #[must_use]
    pub fn claim_blocks(&self, payload: &Payload, owned: &mut Vec<bool>) -> bool {
        if owned.len() < payload.touched() {
            owned.resize(payload.touched(), false);
        }
        let (mut last, mut block) = (NONE, self.head.wrapping_sub(1));
        for _ in 0..self.blocks {
            let place = owned.get_mut(block as usize);
            let Some(place) = place.filter(|owned| payload.is_used(block) && !**owned) else {
                return false;
            };
            *place = true;
            (last, block) = (block, payload.next(block));
        }
        let end = match self.blocks {
            0 => 0,
            _ => u64::from(self.start) + u64::from(self.reach),
        };
        let held = u64::from(self.blocks) << payload.shift();
        let is_whole = block == NONE && last == self.tail.wrapping_sub(1);
        is_whole && self.len <= self.reach && end <= held
    }

    /// Forgets all bytes and gives all blocks back.
    #[inline]
    pub fn clear(&mut self, payload: &mut Payload) {
        payload.free_chain(self.head.wrapping_sub(1));
        *self = Self::EMPTY;
    }

    /// Puts `len` bytes at `offset` from the head, block by block, by calling
    /// `copy(payload, block, offset in the block, bytes done before, bytes)`, until that says no.
    /// Returns how many were put.
    #[inline]
    fn place(
        &mut self,
        (payload, arena): (&mut Payload, ArenaId),
        offset: usize,
        len: usize,
        mut copy: impl FnMut(&mut Payload, u32, usize, usize, usize) -> bool,
    ) -> usize {
        let mask = payload.block_len() - 1;
        let position = (self.start as usize).saturating_add(offset);
        // Positions in the chain, and with them every field, stay below 2³².
        let len = len.min((u32::MAX as usize).saturating_sub(position));
        let mut done = 0;
        while done < len {
            let at = position + done;
            let index = (at >> payload.shift()) as u32;
            let Some(block) = self.block_to_fill(payload, arena, index) else {
                break;
            };
            let within = at & mask;
            let run = (mask + 1 - within).min(len - done);
            if !copy(payload, block, within, done, run) {
                break;
            }
            done += run;
        }
        if done > 0 {
            self.reach = self.reach.max((offset + done) as u32);
        }
        done
    }

    /// The block that has `index` blocks before it, which is made if need be.
    /// `None`, and nothing changed, if there is not enough memory for that.
    #[inline]
    fn block_to_fill(&mut self, payload: &mut Payload, arena: ArenaId, index: u32) -> Option<u32> {
        if index.checked_add(1) == Some(self.blocks) {
            return self.tail.checked_sub(1);
        }
        if index < self.blocks {
            let block = self.find(payload, index)?;
            (self.cursor, self.cursor_index) = (block + 1, index);
            return Some(block);
        }
        if payload.free_blocks() <= index - self.blocks {
            return None;
        }
        while self.blocks <= index {
            let block = payload.allocate_in(arena)?;
            if self.blocks == 0 {
                self.head = block + 1;
            } else {
                payload.set_next(self.tail.wrapping_sub(1), block);
            }
            self.tail = block + 1;
            self.blocks += 1;
        }
        self.tail.checked_sub(1)
    }

    /// Where the byte at `offset` lies: its block, its offset in it, and the bytes
    /// from there to the block's end. `None` if no block was ever taken for it.
    #[inline]
    fn locate(&self, payload: &Payload, offset: usize) -> Option<(u32, usize, usize)> {
        let block = self.find(payload, self.block_index(payload, offset))?;
        let within = (self.start as usize + offset) & (payload.block_len() - 1);
        Some((block, within, payload.block_len() - within))
    }

    /// Number of blocks before that of the byte at `offset`, which is below 2³².
    #[inline]
    fn block_index(&self, payload: &Payload, offset: usize) -> u32 {
        ((self.start as usize + offset) >> payload.shift()) as u32
    }

    /// The block that has `index` blocks before it.
    #[inline]
    fn find(&self, payload: &Payload, index: u32) -> Option<u32> {
        // The second bound is for memory that somebody else has written to: a chain that
        // bites its tail has an end for everybody who follows it.
        if index >= self.blocks || index >= payload.blocks() {
            return None;
        }
        if index + 1 == self.blocks {
            return self.tail.checked_sub(1);
        }
        let from_cursor = self.cursor != 0 && self.cursor_index <= index;
        let (mut block, mut at) = if from_cursor {
            (self.cursor - 1, self.cursor_index)
        } else {
            (self.head.wrapping_sub(1), 0)
        };
        while at < index && block != NONE {
            block = payload.next(block);
            at += 1;
        }
        (block != NONE).then_some(block)
    }

    /// Gives back the first `passed` blocks, all of whose bytes were consumed.
    fn drop_blocks(&mut self, payload: &mut Payload, passed: u32, give_back: fn(&mut Payload, u32)) {
        for _ in 0..passed.min(self.blocks).min(payload.blocks()) {
            let first = self.head.wrapping_sub(1);
            let next = payload.next(first);
            give_back(payload, first);
            self.head = next.wrapping_add(1);
            self.blocks -= 1;
        }
        self.start &= payload.block_len() as u32 - 1;
        if self.cursor_index < passed {
            (self.cursor, self.cursor_index) = (0, 0);
        } else {
            self.cursor_index -= passed;
        }
    }
}
