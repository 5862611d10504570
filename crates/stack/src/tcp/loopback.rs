//! Segments between two connections of the same stack, which never reach a link. Their headers wait
//! in payload memory for the next transmission round. Their payload stays in the sender's queue,
//! and is copied once, to the receiver's.

use toehold_link::TransmitError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::queued::Queued;
use super::segment::{Data, Place, Segment};
use super::{Context, Tcp};
use crate::tuple::FourTuple;

/// Most bytes of waiting headers.
const MAX_LOOPBACK: usize = 1 << 20;

/// The longest TCP header.
const MAX_HEADER: usize = 60;

/// Precedes every header.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Prefix {
    /// The tuple of the sender.
    ends: FourTuple,
    header_len: u32,
    payload: Queued,
    hops: u32,
}

impl Tcp {
    /// Queues a segment of this stack to itself.
    pub(super) fn push_loopback(
        &mut self,
        ends: FourTuple,
        header: &[u8],
        payload: Queued,
        hops: u8,
    ) -> Result<(), TransmitError> {
        let need = size_of::<Prefix>() + header.len();
        let blocks = need / self.payload.block_len() + 1;
        let state = &mut self.state[0];
        if state.loopback.len() + need > MAX_LOOPBACK || (self.payload.free_blocks() as usize) < blocks {
            return Err(TransmitError::Full);
        }
        let prefix = Prefix {
            ends,
            header_len: header.len() as u32,
            payload,
            hops: hops.into(),
        };
        state.loopback.append(&mut self.payload, prefix.as_bytes());
        state.loopback.append(&mut self.payload, header);
        state.loopback_sent = state.loopback_sent.wrapping_add(1);
        Ok(())
    }

    /// Handles the oldest segment that this stack sent to itself. Returns `false` if there is none.
    pub(crate) fn handle_loopback(&mut self, cx: &mut Context<'_>) -> bool {
        let mut header = [0; MAX_HEADER];
        let Some(prefix) = self.pop_loopback(&mut header) else {
            return false;
        };
        cx.counters.frames_received += 1;
        cx.counters.tcp_segments_received += 1;
        // Bounded by the buffer, whatever another process has written to the memory.
        let header = &header[..MAX_HEADER.min(prefix.header_len as usize)];
        match &Segment::loopback(&prefix.ends, header, prefix.payload, prefix.hops as u8) {
            Ok(segment) if self.is_queued(&prefix.ends, &prefix.payload) => {
                self.segment_input(cx, segment, None);
            }
            // Retransmitted, and acknowledged since.
            Ok(_) => {}
            Err(_) => cx.counters.drop_malformed += 1,
        }
        let state = &mut self.state[0];
        state.loopback_taken = state.loopback_taken.wrapping_add(1);
        true
    }

    fn pop_loopback(&mut self, header: &mut [u8; MAX_HEADER]) -> Option<Prefix> {
        let queue = &mut self.state[0].loopback;
        if queue.is_empty() {
            return None;
        }
        let mut prefix = [0; size_of::<Prefix>()];
        queue.read(&mut self.payload, &mut prefix);
        let prefix = Prefix::read_from_bytes(&prefix).ok()?;
        let len = MAX_HEADER.min(prefix.header_len as usize);
        queue.read(&mut self.payload, &mut header[..len]);
        Some(prefix)
    }

    /// Whether payload is still in the sender's queue.
    fn is_queued(&self, ends: &FourTuple, payload: &Queued) -> bool {
        if payload.len == 0 {
            return true;
        }
        let sender = self.pcbs.peek(payload.connection);
        sender.is_some_and(|sender| {
            sender.tuple == *ends
                && payload.start.ge(sender.queue_start())
                && (payload.start + payload.len).le(sender.queue_end())
        })
    }

    /// Copies `len` bytes of a segment's payload, from byte `from` on, to `at` bytes behind the
    /// head of a connection's receive queue. Returns the number copied.
    pub(super) fn place_payload(
        &mut self,
        index: u32,
        at: usize,
        payload: &Data<'_>,
        (from, len): (usize, usize),
    ) -> usize {
        let memory = &mut self.payload;
        match payload.place {
            Place::Arrived(arrived) => {
                let queue = &mut self.pcbs[index].receive_queue;
                arrived.write_to(queue, memory, at, from, len)
            }
            Place::Queued(queued) => {
                // The two may be one connection. If not, the sender's block must not be changed,
                // see `mend`.
                let sender = &self.pcbs[queued.connection];
                let start = queued.start.distance(sender.queue_start()) as usize;
                let Some(source) = sender.send_queue.at_block(memory, start, queued.block) else {
                    return 0;
                };
                let queue = &mut self.pcbs[index].receive_queue;
                queue.write_at_from(memory, at, &source, start + from, len)
            }
        }
    }

    /// Appends `len` bytes of a segment's payload, from byte `from` on, to a connection's receive
    /// queue. Returns the number appended.
    #[inline]
    pub(super) fn append_payload(
        &mut self,
        index: u32,
        payload: &Data<'_>,
        (from, len): (usize, usize),
    ) -> usize {
        let pcb = &mut self.pcbs[index];
        if let Place::Arrived(arrived) = payload.place
            && pcb.ranges == toehold_shm::NONE
        {
            return arrived.append_to(&mut pcb.receive_queue, &mut self.payload, from, len);
        }
        let at = pcb.receive_queue.len();
        let placed = self.place_payload(index, at, payload, (from, len));
        self.pcbs[index].receive_queue.extend(placed);
        placed
    }
}
