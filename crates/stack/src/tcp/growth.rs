//! Buffers that grow with their path: a stream over a long one needs as many bytes under way
//! as the path holds, and twice that, so that it can find out whether it holds more.
//!
//! Nothing here makes a buffer smaller, and one that the program has chosen stays as it is.
//! Short paths keep what they have: what a processor's cache does not hold is slower to copy.

use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Tcp;
use crate::socket::{Settings, setting};
use crate::time::Instant;

/// What a path may carry that a buffer grows for, in bytes a nanosecond: 16 Gb/s. A shorter one
/// holds less than the buffer does.
const FASTEST: u64 = 2;

/// How much the window is ahead of what was read in the last round trip: in slow start the
/// sender doubles that in this one, and again before it hears of the next window.
const AHEAD: u32 = 4;

impl Tcp {
    /// Bytes of the receive queue that a connection may come to have.
    pub(super) fn largest_receive_buffer(&self, settings: &Settings) -> u32 {
        match settings.has(setting::RECEIVE_BUFFER_CHOSEN) {
            true => settings.receive_buffer,
            false => settings.receive_buffer.max(self.config.receive_buffer_max),
        }
    }

    /// The congestion window has grown: the program may have to queue more ahead.
    #[inline]
    pub(super) fn grow_send_buffer(&mut self, index: u32) {
        let pcb = &self.pcbs[index];
        let useful = pcb.congestion.cwnd().min(pcb.snd_wnd);
        let buffer = pcb.settings.send_buffer;
        if useful > buffer / 2
            && buffer < self.config.send_buffer_max
            && holds(pcb.rtt.min_ns(), buffer)
            && !pcb.settings.has(setting::SEND_BUFFER_CHOSEN)
        {
            let grown = useful.saturating_mul(2).min(self.config.send_buffer_max);
            self.pcbs[index].settings.send_buffer = grown;
        }
    }

    /// An acknowledgement is on its way. Once a round trip it is looked at how much the
    /// program has read in one, which is what the sender can have under way; a slow program
    /// does not get a larger buffer.
    #[inline]
    pub(super) fn grow_receive_buffer(&mut self, now: Instant, index: u32) {
        let pcb = &mut self.pcbs[index];
        let rtt_ns = pcb.rtt.srtt_ns();
        if pcb.settings.receive_buffer >= self.config.receive_buffer_max
            || !holds(pcb.rtt.min_ns(), pcb.settings.receive_buffer)
            || pcb.settings.has(setting::RECEIVE_BUFFER_CHOSEN)
        {
            return;
        }
        let before = pcb.rtt.round;
        let round = Round::new(now, pcb.rcv_nxt - pcb.receive_queue.len() as u32);
        let elapsed_ns = round.ms_since(before) * 1_000_000;
        if elapsed_ns < rtt_ns {
            return;
        }
        pcb.rtt.round = round;
        // After a pause, what was read in it says nothing of a round trip.
        let wanted = round.bytes_since(before).saturating_mul(AHEAD);
        if before != Round::default()
            && elapsed_ns < 2 * rtt_ns + 2_000_000
            && wanted > pcb.settings.receive_buffer
        {
            pcb.settings.receive_buffer = wanted.min(self.config.receive_buffer_max);
        }
    }
}

/// Whether a path of these round trips may hold as much as a buffer.
fn holds(rtt_ns: u64, buffer: u32) -> bool {
    rtt_ns.saturating_mul(FASTEST) >= buffer.into()
}

/// A moment of the received stream, as roughly as is enough: a round trip is no minute, and
/// no more is read in one than the largest buffer holds. All zeroes: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Round {
    /// When, in milliseconds, modulo 2^16.
    at_ms: u16,
    /// The first byte that the program had not read, in KiB of sequence space.
    read_kib: u16,
}

impl Round {
    fn new(now: Instant, read: Seq) -> Self {
        Self {
            at_ms: now.millis() as u16,
            read_kib: (read.0 >> 10) as u16,
        }
    }

    fn ms_since(self, before: Self) -> u64 {
        self.at_ms.wrapping_sub(before.at_ms).into()
    }

    fn bytes_since(self, before: Self) -> u32 {
        // Modulo 64 MiB.
        let kib = self.read_kib.wrapping_sub(before.read_kib);
        u32::from(kib) << 10
    }
}
