//! The kernel's stack beside this one: results of frames handed to it and sent by it.

use toehold_link::{Received, TransmitError};

use crate::Stack;

/// The result of a frame handed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToKernel {
    /// The kernel took the frame.
    Taken,
    /// The kernel's interface is down.
    Down,
    /// The kernel's interface was deleted.
    Gone,
    /// The kernel had no memory.
    Full,
    /// The kernel does not take such frames.
    Refused,
}

/// The result of a frame that the kernel sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromKernel {
    /// The link took the frame, of this many bytes.
    Sent(usize),
    /// The link refused the frame.
    NotSent(TransmitError),
    /// This many frames were malformed.
    Malformed(u64),
}

impl Stack {
    #[cold]
    pub(crate) fn hand_over(
        &mut self,
        frame: &Received<'_>,
        kernel: &mut dyn FnMut(&Received<'_>) -> ToKernel,
    ) {
        let counters = &mut self.counters[0];
        match kernel(frame) {
            ToKernel::Taken => {
                counters.to_kernel_frames += 1;
                counters.to_kernel_bytes += frame.len() as u64;
            }
            ToKernel::Down => counters.drop_to_kernel_down += 1,
            ToKernel::Gone => counters.drop_to_kernel_gone += 1,
            ToKernel::Full => counters.drop_to_kernel_full += 1,
            ToKernel::Refused => counters.drop_to_kernel_refused += 1,
        }
    }

    /// Counts the result of a frame that the kernel sent through this stack's link.
    pub fn count_from_kernel(&mut self, what: FromKernel) {
        let counters = &mut self.counters[0];
        match what {
            FromKernel::Sent(bytes) => {
                counters.from_kernel_frames += 1;
                counters.from_kernel_bytes += bytes as u64;
            }
            FromKernel::NotSent(TransmitError::Unreachable) => counters.drop_from_kernel_unreachable += 1,
            FromKernel::NotSent(TransmitError::Full) => counters.drop_from_kernel_full += 1,
            FromKernel::NotSent(TransmitError::TooLong) => counters.drop_from_kernel_malformed += 1,
            FromKernel::Malformed(frames) => counters.drop_from_kernel_malformed += frames,
        }
    }
}
