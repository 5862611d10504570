//! Buffers of the few packets that the IP layer itself sends.
//!
//! A fixed number of buffers of one frame each. A frame is ready for the link, or waits with a few
//! others for a neighbour's hardware address. A TCP segment lies here only if it belongs to no
//! connection and has to wait.

use super::list::Lists;
use toehold_shm::{Carver, OutOfMemory, Slab, Steps, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Frames that may wait for one neighbour's hardware address.
///
/// Enough for one echo reply in fragments on common links.
//= RFC 1122 §2.3.2.2
//= RFC 4861 §7.2.2
pub(super) const MOST_PER_NEIGHBOR: usize = 3;

/// Bytes of all buffers, within the bounds on their number.
const BUFFER_BYTES: usize = 128 << 10;
const FEWEST: usize = 8;
/// Buffers reserved for answers to address resolution. A flood of echo requests must not make this
/// stack unreachable.
pub(super) const RESERVED: u32 = 4;
const MOST: usize = 64;

/// The list of frames that are ready for the link. List `n + 1` holds the frames that wait for
/// neighbour `n`.
const READY: u32 = 0;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Packet {
    /// Bytes of the frame in the buffer.
    len: u32,
    /// Whether the link once had no room for the frame.
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

    /// Frees all buffers. It may be called after a process died in the middle of a change.
    pub(super) fn forget(&mut self) {
        self.records.mend(|_, _| false);
        self.lists.forget();
    }

    /// Takes a buffer for a frame of `len` bytes. Its contents are arbitrary.
    pub(super) fn allocate(&mut self, len: usize) -> Option<u32> {
        if len > self.stride {
            return None;
        }
        self.records.insert(Packet {
            len: len as u32,
            refused: 0,
        })
    }

    /// Free buffers.
    pub(super) fn free_buffers(&self) -> u32 {
        self.records.capacity().saturating_sub(self.records.len())
    }

    /// A bound for a walk over the ready frames.
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

    /// The next ready frame behind another.
    pub(super) fn next_ready(&self, packet: u32) -> Option<u32> {
        let next = self.lists.after(packet);
        (next != toehold_shm::NONE).then_some(next)
    }

    /// Removes a ready frame and frees its buffer.
    pub(super) fn drop_ready(&mut self, packet: u32) {
        self.lists.remove(READY, packet);
        self.free(packet);
    }

    /// Notes that the link had no room for a ready frame.
    pub(super) fn mark_refused(&mut self, packet: u32) {
        self.records[packet].refused = 1;
    }

    /// Drops refused frames, oldest first, until `wanted` buffers are free, and returns their
    /// number. A neighbour whose queue is full must not hold all buffers.
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

    /// Queues a frame for `neighbor`. If too many wait already, drops the oldest and returns
    /// `true`.
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

    /// Drops the oldest frame that waits for `neighbor`. Returns whether there was one.
    pub(super) fn drop_waiting(&mut self, neighbor: u32) -> bool {
        let packet = self.pop_waiting(neighbor);
        if let Some(packet) = packet {
            self.free(packet);
        }
        packet.is_some()
    }
}
