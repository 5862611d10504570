//! A decorator that adds faults to a link, reproducibly: loss, duplication,
//! corruption, reordering, delay with jitter, a bounded rate.
//!
//! It copies frames into its own buffers and releases them by the driver's clock,
//! real or virtual. Equal seeds and equal calls give equal results.

mod path;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use toehold_shm::Gather;

use self::path::Path;
use crate::loopback::copy_frame;
use crate::steering::Flow;
use crate::{
    Capabilities, Fence, Link, MIN_PRIVATE, NeighborChange, Received, Transmit, TransmitError, Transmitter,
};

/// Faults of one direction. Probabilities are for each frame, 0 to 1. The default
/// has no faults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairments {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame comes out twice.
    pub duplicate: f64,
    /// Probability that one bit of a frame is flipped.
    pub corrupt: f64,
    /// Probability that a frame is held back by `reorder_delay_ns` while later
    /// ones overtake it.
    pub reorder: f64,
    /// Extra delay of a reordered frame, in nanoseconds.
    pub reorder_delay_ns: u64,
    /// Delay of every frame, in nanoseconds.
    pub delay_ns: u64,
    /// Largest random addition to the delay, in nanoseconds. It does not reorder: a
    /// frame waits for those before it.
    pub jitter_ns: u64,
    /// Rate of the medium in bits per second, headers included; 0 for no limit.
    pub rate_bps: u64,
    /// Most frames in the path at once. Further ones are dropped.
    pub limit: usize,
}

impl Default for Impairments {
    fn default() -> Self {
        Impairments {
            loss: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            reorder_delay_ns: 1_000_000,
            delay_ns: 0,
            jitter_ns: 0,
            rate_bps: 0,
            limit: 4096,
        }
    }
}

impl Impairments {
    /// Returns whether the settings have no faults.
    pub fn is_none(&self) -> bool {
        let probabilities = [self.loss, self.duplicate, self.corrupt, self.reorder];
        probabilities.iter().all(|&p| p <= 0.0) && [self.delay_ns, self.jitter_ns, self.rate_bps] == [0; 3]
    }
}

/// Settings of an impaired link.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ImpairSettings {
    /// Seed of all random choices.
    pub seed: u64,
    /// Faults of sent frames.
    pub transmit: Impairments,
    /// Faults of received frames.
    pub receive: Impairments,
    /// Whether super-frames may be sent. A lost super-frame is a burst of lost
    /// segments, so they are off by default.
    pub super_frames: bool,
    /// Whether frames begin with an IP header instead of an Ethernet header.
    pub raw_ip: bool,
}

/// Counters of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImpairStatistics {
    /// Frames that entered the path.
    pub frames: u64,
    /// Lost frames.
    pub lost: u64,
    /// Frames that came out twice.
    pub duplicated: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Frames dropped because too many were in the path.
    pub overflowed: u64,
    /// Delayed frames that the link refused for good.
    pub refused: u64,
}

/// A link with faults.
///
/// While frames are in the path, the link refuses to sleep. An idle driver keeps
/// calling, or advances its clock to [`Impair::next_due_ns`].
#[derive(Debug)]
pub struct Impair<L: Link> {
    link: L,
    settings: ImpairSettings,
    outgoing: Path,
    incoming: Path,
    now_ns: u64,
}

impl<L: Link> Impair<L> {
    /// Adds faults to `link` from now on.
    pub fn new(link: L, settings: ImpairSettings) -> Impair<L> {
        let ethernet = !settings.raw_ip;
        Impair {
            link,
            settings,
            outgoing: Path::new(settings.transmit, ethernet, settings.seed),
            incoming: Path::new(settings.receive, ethernet, settings.seed ^ 0x7265_6365_6976_6564),
            now_ns: 0,
        }
    }

    /// Returns when the next delayed frame comes out, on the driver's clock.
    pub fn next_due_ns(&self) -> Option<u64> {
        [self.outgoing.next_due_ns(), self.incoming.next_due_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Counters of sent frames.
    pub fn transmit_statistics(&self) -> ImpairStatistics {
        self.outgoing.statistics
    }

    /// Counters of received frames.
    pub fn receive_statistics(&self) -> ImpairStatistics {
        self.incoming.statistics
    }

    /// The link without faults.
    pub fn inner(&self) -> &L {
        &self.link
    }

    /// The link without faults, for changes.
    pub fn inner_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// Passes due frames to the link. Frames without room wait.
    fn release_outgoing(&mut self) -> usize {
        let Impair { link, outgoing, .. } = self;
        let mut refused = 0;
        let count = outgoing.release(self.now_ns, usize::MAX, |frame| {
            let sent = Transmit {
                headers: &frame.bytes,
                payload: &Gather::EMPTY,
                offload: frame.offload,
            };
            match link.transmit(&sent) {
                Ok(()) => true,
                Err(TransmitError::Full) => false,
                Err(TransmitError::Unreachable | TransmitError::TooLong) => {
                    refused += 1;
                    true
                }
            }
        });
        outgoing.statistics.refused += refused;
        count
    }
}

impl<L: Link> Transmitter for Impair<L> {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        if self.outgoing.is_transparent() {
            return self.link.transmit(frame);
        }
        self.outgoing
            .offer(self.now_ns, frame.offload, |bytes| copy_frame(frame, bytes));
        Ok(())
    }

    fn fence(&self, destination: [u8; 6], flow: &Flow) -> Fence {
        // Impaired frames are copies: no peer reads the original's payload.
        if self.outgoing.is_transparent() {
            self.link.fence(destination, flow)
        } else {
            Fence::default()
        }
    }

    fn passed(&self, fence: Fence) -> bool {
        !self.outgoing.is_transparent() || self.link.passed(fence)
    }
}

impl<L: Link> Link for Impair<L> {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.link.capabilities();
        if self.outgoing.is_transparent() && self.incoming.is_transparent() {
            return capabilities;
        }
        capabilities.local = false;
        if self.settings.transmit.corrupt > 0.0 {
            capabilities.checksum_offload = false;
        }
        if !self.settings.super_frames {
            capabilities.super_frame = u32::from(capabilities.mtu);
        }
        capabilities
    }

    fn address(&self) -> [u8; 6] {
        self.link.address()
    }

    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        self.now_ns = now_ns;
        if self.release_outgoing() != 0 {
            self.link.flush();
        }
        if self.incoming.is_transparent() {
            return self.link.receive(now_ns, budget, handler);
        }
        let Impair { link, incoming, .. } = self;
        link.receive(now_ns, budget, &mut |frame| {
            incoming.offer(now_ns, frame.offload, |bytes| {
                bytes.extend_from_slice(frame.private);
                bytes.resize(frame.len(), 0);
                frame.rest.copy_to(0, &mut bytes[frame.private.len()..]);
            });
        });
        incoming.release(now_ns, budget, |frame| {
            let (private, rest) = frame.bytes.split_at(frame.bytes.len().min(MIN_PRIVATE));
            handler(&Received {
                private,
                rest: Gather::from_slice(rest),
                offload: frame.offload,
            });
            true
        })
    }

    fn flush(&mut self) {
        self.release_outgoing();
        self.link.flush();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        self.link.longest_sleep()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.outgoing.is_empty() && self.incoming.is_empty() && self.link.prepare_sleep()
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        self.link.finish_sleep(now_ns);
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        self.link.next_change()
    }
}
