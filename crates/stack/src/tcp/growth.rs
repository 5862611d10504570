//! Buffers that grow with their path: a stream over a long one needs as many bytes under way
//! as the path holds, and twice that, so that it can find out whether it holds more.
//!
//! Short paths keep what they have: what a processor's cache does not hold is slower to copy.
//! But a buffer that is full makes its writer wait for the reader, and the reader, once it is
//! empty, for the writer. Where one waits for long before the other comes, fewer turns are
//! worth more than the cache: while an engine stands between the two, where the peer's stack
//! takes more at once, as the kernel's does, and when the reader has not come for a while. The
//! latter may never come if the writer has to wait: programs write hundreds of kilobytes before
//! anybody reads, which the kernel's buffers take.
//!
//! Nothing here makes a buffer smaller, and one that the program has chosen stays as it is.

use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Tcp;
use crate::config::TcpConfig;
use crate::socket::{CommonSettings, setting};
use crate::time::Instant;

/// What a path may carry that a buffer grows for, in bytes a nanosecond: 16 Gb/s. A shorter one
/// holds less than the buffer does.
const FASTEST: u64 = 2;

/// How much the window is ahead of what was read in the last round trip: in slow start the
/// sender doubles that in this one, and again before it hears of the next window.
const AHEAD: u32 = 4;

impl Tcp {
    /// Bytes of the receive queue that a connection may come to have.
    pub(super) fn largest_receive_buffer(&self, settings: &CommonSettings) -> u32 {
        if settings.has(setting::RECEIVE_BUFFER_CHOSEN) {
            return settings.receive_buffer;
        }
        let TcpConfig {
            receive_buffer_max,
            short_path_buffer,
            idle_buffer,
            ..
        } = self.config;
        let grown = receive_buffer_max.max(short_path_buffer).max(idle_buffer);
        settings.receive_buffer.max(grown)
    }

    /// The congestion window has grown: the program may have to queue more ahead.
    #[inline]
    pub(super) fn grow_send_buffer(&mut self, index: u32) {
        let pcb = &self.pcbs[index];
        if pcb.settings.send_buffer < self.config.short_path_buffer && self.channels.is_attended() {
            return self.double_send_buffer(index, self.config.short_path_buffer);
        }
        let useful = pcb.congestion.cwnd().min(pcb.snd_wnd);
        let buffer = pcb.settings.send_buffer;
        let most = match holds(pcb.rtt.min_ns(), buffer) {
            true => self.config.send_buffer_max,
            false => self.config.short_path_buffer,
        };
        if useful > buffer / 2 && buffer < most && !pcb.settings.has(setting::SEND_BUFFER_CHOSEN) {
            self.pcbs[index].settings.send_buffer = useful.saturating_mul(2).min(most);
        }
    }

    /// An acknowledgement is on its way. Once a round trip it is looked at how much the
    /// program has read in one, which is what the sender can have under way; a slow program
    /// does not get a larger buffer.
    #[inline]
    pub(super) fn grow_receive_buffer(&mut self, now: Instant, index: u32) {
        let pcb = &self.pcbs[index];
        if pcb.settings.receive_buffer < self.config.short_path_buffer && self.channels.is_attended() {
            return self.double_receive_buffer(index, self.config.short_path_buffer);
        }
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

    /// Nobody reads soon what this side's program writes: it may write more ahead.
    pub(super) fn grow_for_idle_peer(&mut self, index: u32) {
        self.double_send_buffer(index, self.most_for_idle());
    }

    /// What nobody reads is not to take the memory of those who do.
    fn most_for_idle(&self) -> u32 {
        let plenty = self.payload.free_blocks() > self.payload.capacity() / 2;
        let short = self.config.short_path_buffer;
        if plenty {
            short.max(self.config.idle_buffer)
        } else {
            short
        }
    }

    fn double_send_buffer(&mut self, index: u32, most: u32) {
        let settings = &mut self.pcbs[index].settings;
        if settings.send_buffer < most && !settings.has(setting::SEND_BUFFER_CHOSEN) {
            settings.send_buffer = settings.send_buffer.saturating_mul(2).min(most);
            self.tell_of_room(index);
        }
    }

    /// A segment outside of the window has come: if that is closed, the peer has waited for a
    /// while and probes it.
    pub(super) fn probed(&mut self, index: u32) {
        let pcb = &self.pcbs[index];
        let room = pcb.rcv_adv.after(pcb.rcv_nxt);
        // What is less than scaling can express was advertised as nothing.
        if room.unbounded_shr(pcb.rcv_wscale.into()) == 0 {
            self.grow_for_idle_program(index);
        }
    }

    /// This side's program does not read soon what has arrived: the peer may send more ahead.
    fn grow_for_idle_program(&mut self, index: u32) {
        self.double_receive_buffer(index, self.most_for_idle());
    }

    fn double_receive_buffer(&mut self, index: u32, most: u32) {
        let settings = &mut self.pcbs[index].settings;
        if settings.receive_buffer < most && !settings.has(setting::RECEIVE_BUFFER_CHOSEN) {
            settings.receive_buffer = settings.receive_buffer.saturating_mul(2).min(most);
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
