//! Two hosts, the frames between them, and reproducible random numbers.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use toehold_link::{Capabilities, MIN_PRIVATE, Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::Gather;
use toehold_stack::{Instant, Stack, ToKernel};

pub(crate) const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

/// A link between nodes of one host.
pub(crate) const LINK: Capabilities = Capabilities {
    mtu: 1500,
    super_frame: 65_535,
    checksum_offload: true,
    local: true,
    any_thread: true,
};

/// Frames in flight; there is room for a few at a time.
#[derive(Default)]
pub(crate) struct Wire(pub(crate) VecDeque<(Vec<u8>, Offload)>);

impl Transmitter for Wire {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        if self.0.len() >= 64 {
            return Err(TransmitError::Full);
        }
        let mut bytes = frame.headers.to_vec();
        let at = bytes.len();
        bytes.resize(frame.len(), 0);
        frame.payload.copy_to(0, &mut bytes[at..]);
        self.0.push_back((bytes, frame.offload));
        Ok(())
    }
}

impl Wire {
    /// Delivers all frames in flight to a stack. No stack answers the frames that it leaves to the
    /// kernel beside it: the kernel may have both hosts' addresses.
    pub(crate) fn deliver(&mut self, stack: &mut Stack, now: Instant) {
        for (bytes, offload) in self.0.drain(..) {
            let (private, rest) = bytes.split_at(bytes.len().min(MIN_PRIVATE));
            let rest = Gather::from_slice(rest);
            let frame = Received {
                private,
                rest,
                offload,
            };
            stack.handle_frame_beside(now, &frame, None, &mut |_| ToKernel::Taken);
        }
    }
}

/// Random numbers determined by a seed (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
