//! Frames between two connections of the same stack: they wait in payload
//! memory for the next transmission round and never see a link.

use toehold_link::{Checksum, Offload, TransmitError};

use super::Tcp;

/// Most bytes that wait.
const MAX_LOOPED: usize = 4 << 20;

/// In front of every frame: its length and segment size.
const PREFIX: usize = 8;

impl Tcp {
    /// Queues a frame of this stack to itself.
    pub(super) fn push_looped(&mut self, frame: &[u8], segment_size: u16) -> Result<(), TransmitError> {
        let need = PREFIX + frame.len();
        let blocks = need / self.payload.block_len() + 1;
        let queue = &mut self.shard[0].looped;
        if queue.len() + need > MAX_LOOPED || (self.payload.free_blocks() as usize) < blocks {
            return Err(TransmitError::Full);
        }
        let mut prefix = [0; PREFIX];
        prefix[..4].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        prefix[4..6].copy_from_slice(&segment_size.to_ne_bytes());
        queue.append(&mut self.payload, &prefix);
        queue.append(&mut self.payload, frame);
        Ok(())
    }

    /// Takes the oldest frame this stack sent to itself.
    pub(crate) fn pop_looped(&mut self, frame: &mut Vec<u8>) -> Option<Offload> {
        let queue = &mut self.shard[0].looped;
        if queue.is_empty() {
            return None;
        }
        let mut prefix = [0; PREFIX];
        queue.read(&mut self.payload, &mut prefix);
        let [a, b, c, d, e, f, ..] = prefix;
        // No more than there is, whatever somebody else has written to the memory.
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        frame.resize(len.min(queue.len()), 0);
        queue.read(&mut self.payload, frame);
        Some(Offload {
            checksum: Checksum::Verified,
            segment_size: u16::from_ne_bytes([e, f]),
        })
    }
}
