//! Shares scarce payload memory: each connection's guarantee, its share of the rest, and the list
//! of connections that wait for more.
//!
//! A queue may always hold [`GUARANTEED`] bytes, whatever other queues hold. The *reserve* is the
//! memory kept free for that. It covers two guarantees for each connection, one a direction, and is
//! at least half of the memory. Queued bytes cannot be taken back when more connections arrive. If
//! the guarantees of all connections do not fit, each gets an equal share.
//!
//! Queues beyond their guarantee share the memory above the reserve. No queue grows beyond half of
//! it. The more queues grow, the less each holds, and some memory always stays free for the next
//! one. If `n` queues want all of it, each gets one part of `n + 1`, and one part stays free.
//! (Dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.)
//!
//! | free memory | a program may queue | windows |
//! | --- | --- | --- |
//! | above the reserve | half of what is above it | the same half, and one frame |
//! | below the reserve | its guarantee | one frame |
//! | an eighth of all memory below the reserve | its guarantee | its guarantee; what peers send beyond is dropped |
//! | the last eighth | nothing | its guarantee |

use toehold_shm::NONE;

use super::Tcp;
use super::pcb::{Pcb, flag};
use super::thresholds::{GUARANTEED, LARGEST_FRAME, Thresholds};
use crate::socket::Change;

/// The end of the list of waiting connections. Indices count from [`FIRST_INDEX`], so that zero
/// means "not on the list" and "no list".
const END: u32 = 1;
const FIRST_INDEX: u32 = 2;

/// Most programs that one round wakes for memory. The next round wakes others if memory is left.
const MOST_WAKES: u32 = 64;

impl Tcp {
    /// Blocks that programs may fill with data to send, including guarantees.
    #[inline]
    fn queueable_blocks(&self) -> u32 {
        self.payload.free_blocks().saturating_sub(self.thresholds.kept)
    }

    /// Blocks kept free for the guarantees of all connections.
    #[inline]
    fn reserve(&self) -> u32 {
        let Thresholds {
            guarantee, reserve, ..
        } = self.thresholds;
        let guarantees = self.pcbs.len().saturating_mul(2 * guarantee);
        guarantees.max(reserve[0]).min(reserve[1])
    }

    /// Bytes that a queue may hold whatever others hold: at least a block.
    fn guarantee(&self) -> u32 {
        let Thresholds {
            capacity, guarantee, ..
        } = self.thresholds;
        let queues = self.pcbs.len().saturating_mul(2);
        let fits = queues.saturating_mul(guarantee) <= capacity;
        let blocks = match fits {
            true => guarantee,
            false => (capacity / queues.max(1)).clamp(1, guarantee),
        };
        blocks * self.payload.block_len() as u32
    }

    /// Bytes that one queue may hold while this much is free.
    #[inline]
    fn share(&self) -> usize {
        let above = self.payload.free_blocks().saturating_sub(self.reserve());
        above.div_ceil(2) as usize * self.payload.block_len()
    }

    /// Whether memory is so scarce that received data beyond guarantees are dropped.
    #[inline]
    pub(super) fn is_scarce(&self) -> bool {
        self.payload.free_blocks() <= self.reserve().saturating_sub(self.thresholds.margin)
    }

    /// The number of bytes that a connection's program may still queue for sending.
    #[inline]
    pub(crate) fn queueable(&self, index: u32) -> usize {
        let mut most = self.share();
        if most < GUARANTEED as usize && self.queueable_blocks() > 0 {
            most = most.max(self.guarantee() as usize);
        }
        most.saturating_sub(self.pcbs[index].send_queue.len())
    }

    /// Whether a connection's program may queue any bytes.
    #[inline]
    pub(crate) fn may_queue(&self, index: u32) -> bool {
        self.queueable(index) > 0
    }

    /// Limit of a connection's receive queue, in bytes.
    #[inline]
    pub(crate) fn receive_limit(&self, pcb: &Pcb) -> u32 {
        let mut share = self.share().min(u32::MAX as usize) as u32;
        if share < LARGEST_FRAME {
            share = share.max(match self.is_scarce() {
                true => self.guarantee(),
                false => LARGEST_FRAME,
            });
        }
        pcb.settings.receive_buffer.min(share)
    }

    /// Bytes that a connection's receive queue still has room for.
    #[inline]
    pub(crate) fn receive_room(&self, pcb: &Pcb) -> u32 {
        room_of(pcb, self.receive_limit(pcb))
    }

    /// Whether received data of a connection may be stored. Together, peers were promised more room
    /// than there is. Connections that use it must not take the guarantees of others.
    #[inline]
    pub(super) fn may_keep(&self, index: u32) -> bool {
        !self.is_scarce() || self.pcbs[index].receive_queue.len() < self.guarantee() as usize
    }

    /// Drops data received ahead of gaps by connections beyond their guarantee: their peers
    /// retransmit them. A single byte far ahead holds all of the memory before it. Costs one
    /// comparison if no range has arrived since the last call.
    #[cold]
    pub(super) fn drop_what_is_ahead(&mut self) {
        if self.ranges.len() > self.state[0].ranges_left {
            let most = self.thresholds.guarantee;
            let greedy = self.pcbs.iter_live().filter(|(_, pcb)| pcb.ranges != NONE);
            let greedy: Vec<u32> = greedy
                .filter(|(_, pcb)| pcb.receive_queue.blocks() > most)
                .map(|(index, _)| index)
                .collect();
            for index in greedy {
                self.touch(index);
                self.drop_ranges(index);
            }
        }
        self.state[0].ranges_left = self.ranges.len();
    }

    /// Adds a connection to the end of the list of those to wake when memory is free.
    pub(crate) fn await_memory(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        if pcb.memory_next != 0 {
            return;
        }
        if self.state[0].memory_waiters == 0 {
            self.press();
            self.drop_what_is_ahead();
            self.touch(index);
        }
        let free = self.queueable_blocks();
        let state = &mut self.state[0];
        state.memory_too_little = state.memory_too_little.min(free);
        self.append_memory_waiter(index);
    }

    fn append_memory_waiter(&mut self, index: u32) {
        self.pcbs[index].memory_next = END;
        let entry = index + FIRST_INDEX;
        let tail = std::mem::replace(&mut self.state[0].memory_waiters_tail, entry);
        match tail.checked_sub(FIRST_INDEX) {
            Some(last) => self.pcbs[last].memory_next = entry,
            None => self.state[0].memory_waiters = entry,
        }
    }

    /// Removes the connection that has waited longest from the list.
    fn take_memory_waiter(&mut self) -> Option<u32> {
        let index = self.state[0].memory_waiters.checked_sub(FIRST_INDEX)?;
        let next = std::mem::take(&mut self.pcbs[index].memory_next);
        let state = &mut self.state[0];
        if next == END {
            (state.memory_waiters, state.memory_waiters_tail) = (0, 0);
        } else {
            state.memory_waiters = next;
        }
        Some(index)
    }

    /// Whether a connection waits for memory, and there may be enough.
    #[inline]
    pub(crate) fn memory_is_back(&self) -> bool {
        let state = &self.state[0];
        if state.memory_waiters == 0 {
            return false;
        }
        let free = self.queueable_blocks();
        free > 0 && (state.memory_first_passed != 0 || free > state.memory_too_little)
    }

    /// Wakes the connections that have waited longest, at most one for each free block, except
    /// those that hold their share already. A connection that finds too little memory waits again.
    #[cold]
    pub(super) fn wake_memory_waiters(&mut self) {
        let free = self.queueable_blocks();
        let mut left = free;
        for _ in 0..MOST_WAKES {
            if left == 0 {
                return;
            }
            let Some(index) = self.take_memory_waiter() else {
                return;
            };
            if self.pcbs[index].takes_more() && !self.may_queue(index) {
                self.append_memory_waiter(index);
                let entry = index + FIRST_INDEX;
                let state = &mut self.state[0];
                match state.memory_first_passed {
                    0 => (state.memory_first_passed, state.memory_too_little) = (entry, free),
                    first if first == entry => {
                        // All waiters were tried: this little memory helps none of them.
                        state.memory_first_passed = 0;
                        return;
                    }
                    _ => state.memory_too_little = state.memory_too_little.min(free),
                }
                continue;
            }
            left -= 1;
            let state = &mut self.state[0];
            state.look_through_memory_waiters();
            if state.memory_waiters == 0 {
                self.channels.press(false);
            }
            self.pcbs[index].clear(flag::WRITER_WAITS);
            self.mark_event(index, Change::ROOM);
            self.free_if_done(index);
        }
    }
}

/// Bytes that still fit a receive queue of at most `limit`.
#[inline]
pub(super) fn room_of(pcb: &Pcb, limit: u32) -> u32 {
    limit.saturating_sub(pcb.receive_queue.len() as u32)
}
