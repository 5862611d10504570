//! Room in the send queue: the bytes that a program may queue, and when a waiting program is woken.

use super::Tcp;
use super::pcb::{Pcb, flag};
use crate::socket::Change;

/// Largest burst, in bytes, that is queued at once beyond a low-water mark of unsent bytes.
const BURST: u32 = 1 << 16;

/// Longest record, in bytes, that is queued as a whole (PIPE_BUF of pipe(7)), unless the send
/// buffer is shorter.
pub const MOST_WHOLE: usize = 4096;

impl Pcb {
    /// Longest record that is queued as a whole, in bytes. It never exceeds the room at which a
    /// program is woken.
    pub(crate) fn most_whole(&self) -> usize {
        let buffer = self.settings.send_buffer as usize / 3;
        match self.settings.unsent_low_water as usize {
            0 => MOST_WHOLE.min(buffer),
            mark => MOST_WHOLE.min(buffer).min(mark / 2),
        }
    }

    /// Bytes that a program may queue now.
    //= RFC 9293 §3.10.2 (SEND: queue the data, or refuse them for lack of room)
    #[inline]
    pub(crate) fn send_room(&self) -> usize {
        let room = (self.settings.send_buffer as usize).saturating_sub(self.send_queue.len());
        match self.settings.unsent_low_water {
            0 => room,
            mark => room.min(self.room_below(mark)),
        }
    }

    /// Room under a mark for unsent bytes (TCP_NOTSENT_LOWAT). It is the bytes that can leave at
    /// once, and a burst beyond, so that a low mark does not cause small segments.
    fn room_below(&self, mark: u32) -> usize {
        let unsent = self.unsent();
        if unsent >= mark {
            return 0;
        }
        let window = (self.snd_una + self.snd_wnd).after(self.snd_nxt);
        let leaves = window.min(self.congestion.cwnd().saturating_sub(self.in_flight()));
        // Half the peer's largest window, which the peer surely takes soon.
        let burst = (self.max_snd_wnd / 2).min(BURST);
        let burst = burst - burst % u32::from(self.mss).max(1);
        (leaves.saturating_add(burst.max(mark)) - unsent) as usize
    }

    /// Whether there is enough room to wake a program.
    #[inline]
    pub(crate) fn is_roomy(&self) -> bool {
        self.is_roomy_behind(0)
    }

    /// Whether there is enough room to wake a program, behind `more` bytes that are not in the
    /// queue yet.
    #[inline]
    pub(crate) fn is_roomy_behind(&self, more: usize) -> bool {
        let buffer = self.settings.send_buffer as usize;
        let mark = self.settings.unsent_low_water;
        buffer.saturating_sub(self.send_queue.len() + more) >= buffer / 3
            && (mark == 0 || (u64::from(self.unsent()) + more as u64) * 2 < u64::from(mark))
    }
}

impl Tcp {
    /// Wakes a program that waits for room, if there is enough.
    #[inline]
    pub(crate) fn tell_of_room(&mut self, index: u32) {
        let pcb = &self.pcbs[index];
        if !pcb.has(flag::WRITER_WAITS) || !pcb.is_roomy() {
            return;
        }
        if !self.may_queue(index) {
            return self.await_memory(index);
        }
        self.pcbs[index].clear(flag::WRITER_WAITS);
        self.mark_event(index, Change::ROOM);
    }
}
