//! Frames to the kernel, handed over by the thread that drives.
//!
//! The kernel answers a flow over the queue that the flow came from. So all frames of one
//! take the same queue, whichever process hands them over, and flows are shared out.

use std::os::fd::OwnedFd;

use toehold_link::steering::{Flow, Steering};
use toehold_link::tap::{MAX_MTU, Tap, TapDescription, TapError};
use toehold_link::{Received, Transmit, TransmitError, Transmitter};
use toehold_stack::ToKernel;

/// One process's way into the node's TAP device, for the holder of a shard's lease. Never
/// waits for the kernel.
pub(crate) struct Outlet {
    /// The queues that are this shard's.
    queues: Vec<Tap>,
    steering: Steering,
}

/// Which of a device's queues are a shard's; none is two shards', unless there are more
/// shards than queues.
pub(crate) fn queues_of_shard(queues: usize, shard: usize, shards: usize) -> impl Iterator<Item = usize> {
    (shard % queues.max(1)..queues).step_by(shards.max(1))
}

impl Outlet {
    /// Makes an outlet with descriptors of the device's queues, up to 16.
    pub(crate) fn new(queues: Vec<OwnedFd>, description: &TapDescription) -> Result<Outlet, TapError> {
        let description = TapDescription {
            // The sender's MTU may be larger than this node's, and the kernel takes it.
            mtu: MAX_MTU,
            ..description.clone()
        };
        let steering = Steering {
            // A peer that makes all flows meet in one queue has what a single queue gives.
            count: queues.len() as u8,
            ..Steering::SOLE
        };
        let open = |queue| Tap::from_parts(queue, description.clone());
        Ok(Outlet {
            queues: queues.into_iter().map(open).collect::<Result<_, _>>()?,
            steering,
        })
    }

    /// The queue of a frame. A frame that belongs to no flow takes the first one.
    fn queue_of(&mut self, frame: &[u8]) -> Option<&mut Tap> {
        let queue = match self.steering.count {
            0 | 1 => 0,
            _ => Flow::of_packet(frame).map_or(0, |flow| self.steering.shard_of(&flow)),
        };
        self.queues.get_mut(usize::from(queue))
    }

    /// Hands over a frame as it came: super-frames whole, checksums undone. What the sender
    /// can still change, the kernel copies before it looks at it.
    pub(crate) fn hand_over(&mut self, frame: &Received<'_>) -> ToKernel {
        let frame = Transmit {
            headers: frame.private,
            payload: &frame.rest,
            offload: frame.offload,
        };
        let Some(tap) = self.queue_of(frame.headers) else {
            return ToKernel::Gone;
        };
        let before = refused(tap);
        match tap.transmit(&frame) {
            Ok(()) if refused(tap) == before => ToKernel::Taken,
            Ok(()) | Err(TransmitError::TooLong) => ToKernel::Refused,
            Err(TransmitError::Full) => ToKernel::Full,
            Err(TransmitError::Unreachable) if tap.is_gone() => ToKernel::Gone,
            Err(TransmitError::Unreachable) => ToKernel::Down,
        }
    }
}

/// Frames that went nowhere although the device was there.
fn refused(tap: &Tap) -> u64 {
    let counted = tap.statistics();
    counted.refused + counted.bad_super_frames + counted.bad_checksums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_is_a_shards_and_every_shard_has_one() {
        for (queues, shards) in [(1, 1), (1, 4), (4, 1), (3, 2), (2, 3), (16, 16), (16, 5)] {
            let mut owners = vec![0; queues];
            for shard in 0..shards {
                let own: Vec<_> = queues_of_shard(queues, shard, shards).collect();
                assert!(!own.is_empty() && own.iter().all(|&queue| queue % shards == shard % queues));
                own.iter().for_each(|&queue| owners[queue] += 1);
            }
            let most = shards.div_ceil(queues);
            assert!(
                owners.iter().all(|owners| (1..=most).contains(owners)),
                "{queues} {shards}"
            );
        }
    }
}
