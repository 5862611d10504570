//! Frames to the kernel, handed over by whoever drives.

use std::os::fd::OwnedFd;

use toehold_link::tap::{MAX_MTU, Tap, TapDescription, TapError};
use toehold_link::{Received, Transmit, TransmitError, Transmitter};
use toehold_stack::ToKernel;

/// One process's way into the node's TAP device, for the holder of a shard's lease. Never
/// waits for the kernel.
pub(crate) struct Outlet {
    tap: Tap,
}

impl Outlet {
    /// With a descriptor of the device.
    pub(crate) fn new(descriptor: OwnedFd, description: &TapDescription) -> Result<Outlet, TapError> {
        let description = TapDescription {
            // The sender's MTU may be larger than this node's, and the kernel takes it.
            mtu: MAX_MTU,
            ..description.clone()
        };
        let tap = Tap::from_parts(descriptor, description)?;
        Ok(Outlet { tap })
    }

    /// Hands over a frame as it came: super-frames whole, checksums undone. What the sender
    /// can still change, the kernel copies before it looks at it.
    pub(crate) fn hand_over(&mut self, frame: &Received<'_>) -> ToKernel {
        let frame = Transmit {
            headers: frame.private,
            payload: &frame.rest,
            offload: frame.offload,
        };
        let refused = self.refused();
        match self.tap.transmit(&frame) {
            Ok(()) if self.refused() == refused => ToKernel::Taken,
            Ok(()) | Err(TransmitError::TooLong) => ToKernel::Refused,
            Err(TransmitError::Full) => ToKernel::Full,
            Err(TransmitError::Unreachable) if self.tap.is_gone() => ToKernel::Gone,
            Err(TransmitError::Unreachable) => ToKernel::Down,
        }
    }

    /// Frames that went nowhere although the device was there.
    fn refused(&self) -> u64 {
        let counted = self.tap.statistics();
        counted.refused + counted.bad_super_frames + counted.bad_checksums
    }
}
