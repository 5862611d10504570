//! The kernel's stack beside this one: what was handed to it, and what it sends.

use toehold_link::{Received, TransmitError};

use crate::Stack;

/// What became of a frame that was handed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToKernel {
    /// It has it.
    Taken,
    /// Its interface is down.
    Down,
    /// Its interface was deleted.
    Gone,
    /// It had no memory.
    Full,
    /// It takes no such frames.
    Refused,
}

/// What became of a frame that the kernel has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromKernel {
    /// The link has it, so many bytes.
    Sent(usize),
    /// The link did not take it.
    NotSent(TransmitError),
    /// So many frames could not be understood.
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

    /// Counts what became of what the kernel has sent, which is not this stack's affair.
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
