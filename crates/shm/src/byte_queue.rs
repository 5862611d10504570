//! A first-in-first-out queue of bytes in payload memory: the send or receive queue of a socket.
//!
//! Bytes lie in a chain of blocks. Bytes that arrived out of order may lie behind the queue's end.
//! [`ByteQueue::extend`] makes them part of the queue.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::copy::{copy_away, copy_racing, prepare_write};
use crate::{ArenaId, Chain, Gather, NONE, Payload};

/// State of a queue. The bytes lie in a [`Payload`]. The caller passes the same one to every
/// operation.
///
/// The queue holds blocks only where it has bytes. A copy of this value refers to the same blocks;
/// use only one of the copies afterwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ByteQueue {
    /// First block + 1; 0 if there is none. The offset of one makes all zeroes an empty queue.
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
    /// A block + 1 in the chain, where a search may begin; 0 if there is none.
    cursor: u32,
    /// Number of blocks before the cursor's.
    cursor_index: u32,
}

/// The processor prefetches the lines of longer writes by itself.
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

    /// Whether the queue has no bytes. Bytes may lie behind its end.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Blocks the queue holds.
    #[inline]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Appends `bytes` and returns the number appended: fewer if memory runs out.
    #[inline]
    pub fn append(&mut self, payload: &mut Payload, bytes: &[u8]) -> usize {
        self.append_in(payload, ArenaId::PRIVATE, bytes)
    }

    /// Appends `bytes`, in blocks of an arena while it has free ones. Returns the number appended:
    /// fewer if memory runs out.
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
                // SAFETY: `len` bytes of a block that only this queue uses. The queue is borrowed
                // mutably.
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

    /// Appends `len` bytes of `gather` from its byte `from` on. Returns the number appended: fewer
    /// if memory runs out or the gather ends.
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

    /// Places `len` bytes of `gather`, from its byte `from` on, at `offset` bytes from the queue's
    /// head. Returns the number placed: fewer if memory runs out or the gather ends. The queue's
    /// length stays the same.
    ///
    /// The queue takes blocks for the whole range up to the end of these bytes. The caller bounds
    /// `offset` by the receive window.
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
            // SAFETY: `len` bytes of a block that only this queue uses. The queue is borrowed
            // mutably, so no part of the gather lies there.
            unsafe { gather.copy_to_place(from + done, to.as_ptr(), len) };
            true
        })
    }

    /// Writes the bytes from `from` on of another queue in the same payload memory, as
    /// [`ByteQueue::write_at`] writes those of a gather list.
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

    /// Makes the next `n` bytes behind the end part of the queue, if [`ByteQueue::write_at`] has
    /// placed them.
    #[inline]
    pub fn extend(&mut self, n: usize) {
        let placed = self.reach.saturating_sub(self.len) as usize;
        debug_assert!(n <= placed, "only {placed} bytes lie behind the end");
        self.len += n.min(placed) as u32;
    }

    /// Moves bytes from the head into `into`, as many as fit, and returns their number.
    #[inline]
    pub fn read(&mut self, payload: &mut Payload, into: &mut [u8]) -> usize {
        let n = self.peek(payload, 0, into);
        self.take(payload, n);
        n
    }

    /// Copies bytes from `offset` on into `into`, as many as fit, and returns their number.
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
            // SAFETY: both are `run` bytes long. The program's buffer is never payload memory, so
            // the two do not overlap.
            unsafe { copy_racing(from.as_ptr(), to, run) };
            done += run;
        }
        done
    }

    /// Removes at most `n` bytes from the head. Their blocks rest before they are used again,
    /// because other processes have read them.
    #[inline]
    pub fn consume(&mut self, payload: &mut Payload, n: usize) {
        self.remove(payload, n, Payload::retire);
    }

    /// Removes at most `n` bytes that only this process has read. Their blocks are the next to be
    /// used.
    #[inline]
    pub fn take(&mut self, payload: &mut Payload, n: usize) {
        self.remove(payload, n, Payload::free);
    }

    #[inline]
    fn remove(&mut self, payload: &mut Payload, n: usize, give_back: fn(&mut Payload, u32)) {
        let n = n.min(self.len()) as u32;
        self.len -= n;
        // It is too small only if another process has written to the memory.
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
    /// [`crate::MAX_PARTS`] blocks. The next call continues there without a search.
    #[inline]
    pub fn gather<'a>(&mut self, payload: &'a Payload, offset: usize, len: usize) -> Gather<'a> {
        let mut gather = Gather::EMPTY;
        let len = len.min(self.len().saturating_sub(offset));
        if let Some((block, within, run)) = self.locate(payload, offset)
            && len <= run
            && let Some(first) = payload.part(block, within, len)
        {
            (self.cursor, self.cursor_index) = (block + 1, self.block_index(payload, offset));
            // SAFETY: the bytes are mapped as long as the payload memory is borrowed, and no
            // reference to them exists.
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

    /// Drops the bytes behind the end and frees their blocks.
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

    /// Holds memory for at least the next `room` bytes, as far as there is any.
    /// [`ByteQueue::extend`] may then cover all of it: other threads fill it through a
    /// [`Lane`](crate::Lane). Returns the number of bytes.
    pub fn claim(&mut self, payload: &mut Payload, room: usize) -> usize {
        self.claim_in(payload, ArenaId::PRIVATE, room)
    }

    /// Claims memory as [`ByteQueue::claim`] does, in blocks of an arena while it has free ones.
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

    /// The number of placed or claimed bytes behind the end.
    #[inline]
    pub fn claimed(&self) -> usize {
        self.reach.saturating_sub(self.len) as usize
    }

    /// The block of the byte at `offset`, which need not exist yet.
    #[inline]
    pub fn block_at(&self, payload: &Payload, offset: usize) -> Option<u32> {
        self.find(payload, self.block_index(payload, offset))
    }

    /// The block of an existing byte at `offset`. Later operations continue there without a search.
    #[inline]
    pub fn seek(&mut self, payload: &Payload, offset: usize) -> Option<u32> {
        let index = self.block_index(payload, offset);
        let block = self.find(payload, index)?;
        (self.cursor, self.cursor_index) = (block + 1, index);
        Some(block)
    }

    /// A copy of the queue for reading, which continues at `block`, the block of the byte at
    /// `offset` as [`ByteQueue::seek`] returned it. `None` if no such block is in use.
    #[inline]
    pub fn at_block(mut self, payload: &Payload, offset: usize, block: u32) -> Option<Self> {
        (self.cursor, self.cursor_index) = (block.wrapping_add(1), self.block_index(payload, offset));
        payload.is_used(block).then_some(self)
    }

    /// The offset of the byte at `offset` within its block. The byte need not exist yet.
    #[inline]
    pub fn within(&self, payload: &Payload, offset: usize) -> usize {
        (self.start as usize + offset) & (payload.block_len() - 1)
    }

    /// Lets an empty queue begin `within` bytes after the start of a block. A queue that holds
    /// memory stays as it is.
    #[inline]
    pub fn begin_at(&mut self, payload: &Payload, within: usize) {
        if self.blocks == 0 {
            debug_assert!(self.reach == 0);
            self.start = (within & (payload.block_len() - 1)) as u32;
        }
    }

    /// A queue of all bytes in the blocks of a chain.
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

    /// Marks the queue's blocks in `owned`, which grows as needed. False if the queue is damaged,
    /// or if another queue holds some of the blocks.
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

    /// Drops all bytes and frees all blocks.
    #[inline]
    pub fn clear(&mut self, payload: &mut Payload) {
        payload.free_chain(self.head.wrapping_sub(1));
        *self = Self::EMPTY;
    }

    /// Puts `len` bytes at `offset` from the head, block by block. Calls `copy(payload, block,
    /// offset in the block, bytes done before, bytes)` until it returns false. Returns the number
    /// of bytes put.
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

    /// The block with `index` blocks before it, allocated if it does not exist. `None`, without any
    /// change, if memory is short.
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

    /// The position of the byte at `offset`: its block, its offset in it, and the bytes from there
    /// to the block's end. `None` if the queue has no block for it.
    #[inline]
    fn locate(&self, payload: &Payload, offset: usize) -> Option<(u32, usize, usize)> {
        let block = self.find(payload, self.block_index(payload, offset))?;
        let within = (self.start as usize + offset) & (payload.block_len() - 1);
        Some((block, within, payload.block_len() - within))
    }

    /// The number of blocks before the block of the byte at `offset`. It is below 2³².
    #[inline]
    fn block_index(&self, payload: &Payload, offset: usize) -> u32 {
        ((self.start as usize + offset) >> payload.shift()) as u32
    }

    /// The block with `index` blocks before it.
    #[inline]
    fn find(&self, payload: &Payload, index: u32) -> Option<u32> {
        // The second bound protects against memory that another process has written to: a cyclic
        // chain ends for every reader.
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

    /// Frees the first `passed` blocks, whose bytes are all consumed.
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
