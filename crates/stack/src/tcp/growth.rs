//! Buffers that grow with their path. A stream over a long path needs as many bytes in flight as
//! the path holds. It needs twice that to find out whether the path holds more.
//!
//! Short paths keep their initial buffers: memory outside of the processor's cache is slower to
//! copy. But a full buffer makes its writer wait for the reader, and an empty one makes the reader
//! wait for the writer. If these waits are long, fewer turns are worth more than the cache. This is
//! so while an engine stands between the two, and where the peer's stack takes more at once, as the
//! kernel's does. It is also so when the reader has not read for a while. The reader may depend on
//! the writer: programs write hundreds of kilobytes before a read, which the kernel's buffers hold.
//!
//! This module never shrinks a buffer, and never changes one whose size the program has chosen.

use super::Tcp;
use super::pcb::Pcb;
use super::round::Round;
use crate::config::TcpConfig;
use crate::socket::{CommonSettings, setting};
use crate::time::Instant;

/// The rate of a path for which a buffer grows, in bytes a nanosecond: 16 Gb/s. A shorter path
/// holds less than the buffer does.
const FASTEST: u64 = 2;

/// Factor of the window over the bytes read in the last round trip. In slow start the sender
/// doubles its rate in this round trip, and again before it sees the next window.
const AHEAD: u32 = 4;

impl TcpConfig {
    /// Largest receive queue that a connection may get, in bytes.
    pub(super) fn largest_receive_buffer(&self, settings: &CommonSettings) -> u32 {
        if settings.has(setting::RECEIVE_BUFFER_CHOSEN) {
            return settings.receive_buffer;
        }
        let grown = self
            .receive_buffer_max
            .max(self.short_path_buffer)
            .max(self.idle_buffer);
        settings.receive_buffer.max(grown)
    }
}

impl Tcp {
    /// Handles growth of the congestion window: the program may have to queue more ahead.
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

    /// Checks once a round trip, when an acknowledgement leaves, how much the program has read in
    /// it. The sender can have that much in flight. A slow program does not get a larger buffer.
    #[inline]
    pub(super) fn grow_receive_buffer(&mut self, now: Instant, index: u32) {
        let pcb = &self.pcbs[index];
        if pcb.settings.receive_buffer < self.config.short_path_buffer && self.channels.is_attended() {
            return self.pcbs[index].double_receive_buffer(self.config.short_path_buffer);
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
        // After a pause, the bytes read in it tell nothing about a round trip.
        let wanted = round.bytes_since(before).saturating_mul(AHEAD);
        if before != Round::default()
            && elapsed_ns < 2 * rtt_ns + 2_000_000
            && wanted > pcb.settings.receive_buffer
        {
            pcb.settings.receive_buffer = wanted.min(self.config.receive_buffer_max);
        }
    }

    /// Allows this side's program to write more ahead, since the peer's program does not read soon.
    pub(super) fn grow_for_idle_peer(&mut self, index: u32) {
        self.double_send_buffer(index, self.most_for_idle());
    }

    /// Limit of buffers that no program reads, so that they leave memory to others.
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

    /// Handles a segment outside of the window. If the window is closed, the peer has waited for a
    /// while and probes it.
    pub(super) fn probed(&mut self, index: u32) {
        let pcb = &self.pcbs[index];
        let room = pcb.rcv_adv.after(pcb.rcv_nxt);
        // A window too small for its scale was advertised as zero.
        if room.unbounded_shr(pcb.rcv_wscale.into()) == 0 {
            self.grow_for_idle_program(index);
        }
    }

    /// Allows the peer to send more ahead, since this side's program does not read soon.
    fn grow_for_idle_program(&mut self, index: u32) {
        let most = self.most_for_idle();
        self.pcbs[index].double_receive_buffer(most);
    }
}

impl Pcb {
    fn double_receive_buffer(&mut self, most: u32) {
        let settings = &mut self.settings;
        if settings.receive_buffer < most && !settings.has(setting::RECEIVE_BUFFER_CHOSEN) {
            settings.receive_buffer = settings.receive_buffer.saturating_mul(2).min(most);
        }
    }
}

/// Whether a path with this round trip may hold as much as a buffer.
fn holds(rtt_ns: u64, buffer: u32) -> bool {
    rtt_ns.saturating_mul(FASTEST) >= buffer.into()
}
