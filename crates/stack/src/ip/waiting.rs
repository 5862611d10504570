//! The few packets the IP layer sends on its own account, on their way out.
//!
//! A fixed number of buffers of one frame each. A frame is ready for the link,
//! or waits with a few others for a neighbour's hardware address. TCP segments
//! lie here only if they belong to no connection, and have to wait.

use super::list::Lists;
use toehold_shm::{Carver, OutOfMemory, Slab, Steps, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Frames that may wait for one neighbour's hardware address.
///
/// Enough for one echo reply in fragments on common links.
//= RFC 1122 §2.3.2.2
//= RFC 4861 §7.2.2
pub(super) const MOST_PER_NEIGHBOR: usize = 3;

/// Buffer memory there is, within the bounds on their number.
const BUFFER_BYTES: usize = 128 << 10;
const FEWEST: usize = 8;
/// Buffers kept for answers to questions for hardware addresses: a flood of
/// echo requests must not make this stack unreachable.
pub(super) const RESERVED: u32 = 4;
const MOST: usize = 64;

/// The list of frames that are ready for the link; list `n + 1` holds those
/// that wait for neighbour `n`.
const READY: u32 = 0;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Packet {
    /// Bytes of the frame in the buffer.
    len: u32,
    /// Whether the link had no room for it once.
    refused: u32,
}

/// The buffers, and the order in which they leave.
pub(super) struct Packets {
    records: Slab<Packet>,
    bytes: Table<u8>,
    lists: Lists,
    stride: usize,
}

/// Bytes of a buffer for frames with packets of `mtu` bytes.
fn stride_for(mtu: u16) -> usize {
    (super::ethernet::HEADER_LEN + usize::from(mtu)).next_multiple_of(64)
}

fn capacity_for(mtu: u16) -> usize {
    (BUFFER_BYTES / stride_for(mtu)).clamp(FEWEST, MOST)
}

impl Packets {
    pub(super) fn bytes_needed(mtu: u16, neighbors: u32) -> usize {
        let capacity = capacity_for(mtu);
        Slab::<Packet>::bytes_needed(capacity as u32)
            + Table::<u8>::bytes_needed(capacity * stride_for(mtu))
            + Lists::bytes_needed(capacity as u32, neighbors + 1)
    }

    pub(super) fn create(carver: &mut Carver, mtu: u16, neighbors: u32) -> Result<Self, OutOfMemory> {
        let capacity = capacity_for(mtu);
        Ok(Self {
            records: carver.slab(capacity as u32)?,
            bytes: carver.table(capacity * stride_for(mtu))?,
            lists: Lists::create(carver, capacity as u32, neighbors + 1)?,
            stride: stride_for(mtu),
        })
    }

    /// Gives all buffers back, whatever somebody who died has left of them.
    pub(super) fn forget(&mut self) {
        self.records.mend(|_, _| false);
        self.lists.forget();
    }

    /// Takes a buffer for a frame of `len` bytes, with whatever was in it.
    pub(super) fn allocate(&mut self, len: usize) -> Option<u32> {
        if len > self.stride {
            return None;
        }
        self.records.insert(Packet {
            len: len as u32,
            refused: 0,
        })
    }

    /// Buffers nobody has taken.
    pub(super) fn free_buffers(&self) -> u32 {
        self.records.capacity().saturating_sub(self.records.len())
    }

    /// For walks along frames that are ready.
    pub(super) fn steps(&self) -> Steps {
        Steps::along(self.records.capacity())
    }

    pub(super) fn free(&mut self, packet: u32) {
        self.records.remove(packet);
    }

    pub(super) fn frame(&self, packet: u32) -> &[u8] {
        let start = packet as usize * self.stride;
        &self.bytes[start..start + self.records[packet].len as usize]
    }

    pub(super) fn frame_mut(&mut self, packet: u32) -> &mut [u8] {
        let start = packet as usize * self.stride;
        &mut self.bytes[start..start + self.records[packet].len as usize]
    }

    pub(super) fn push_ready(&mut self, packet: u32) {
        self.lists.push_back(READY, packet);
    }

    #[inline]
    pub(super) fn first_ready(&self) -> Option<u32> {
        let packet = self.lists.front(READY);
        (packet != toehold_shm::NONE).then_some(packet)
    }

    /// The frame that is ready behind another one.
    pub(super) fn next_ready(&self, packet: u32) -> Option<u32> {
        let next = self.lists.after(packet);
        (next != toehold_shm::NONE).then_some(next)
    }

    /// Removes a frame that is ready, and frees its buffer.
    pub(super) fn drop_ready(&mut self, packet: u32) {
        self.lists.remove(READY, packet);
        self.free(packet);
    }

    /// Notes that the link had no room for a frame that is ready.
    pub(super) fn mark_refused(&mut self, packet: u32) {
        self.records[packet].refused = 1;
    }

    /// Drops frames the link had no room for, oldest first, until `wanted`
    /// buffers are free, and returns how many: a neighbour that takes nothing
    /// must not hold all of them.
    pub(super) fn give_way(&mut self, wanted: u32) -> u32 {
        let mut dropped = 0;
        let mut at = self.first_ready();
        let mut steps = self.steps();
        while let Some(packet) = at
            && self.free_buffers() < wanted
        {
            steps.count();
            at = self.next_ready(packet);
            if self.records[packet].refused != 0 {
                self.drop_ready(packet);
                dropped += 1;
            }
        }
        dropped
    }

    /// Lets a frame wait for `neighbor`. If too many wait already the oldest
    /// is dropped, and the answer is true.
    //= RFC 4861 §7.2.2
    pub(super) fn wait_for(&mut self, neighbor: u32, packet: u32) -> bool {
        let list = neighbor + 1;
        let mut waiting = 0;
        let mut at = self.lists.front(list);
        while at != toehold_shm::NONE && waiting < MOST_PER_NEIGHBOR {
            waiting += 1;
            at = self.lists.after(at);
        }
        let overflow = waiting >= MOST_PER_NEIGHBOR;
        if overflow {
            self.drop_waiting(neighbor);
        }
        self.lists.push_back(list, packet);
        overflow
    }

    pub(super) fn is_waited_for(&self, neighbor: u32) -> bool {
        self.lists.front(neighbor + 1) != toehold_shm::NONE
    }

    pub(super) fn pop_waiting(&mut self, neighbor: u32) -> Option<u32> {
        self.lists.pop_front(neighbor + 1)
    }

    /// Drops the oldest frame that waits for `neighbor`, if there is one.
    pub(super) fn drop_waiting(&mut self, neighbor: u32) -> bool {
        let packet = self.pop_waiting(neighbor);
        if let Some(packet) = packet {
            self.free(packet);
        }
        packet.is_some()
    }
}
