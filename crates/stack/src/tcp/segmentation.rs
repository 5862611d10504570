//! Segmentation of queued bytes: the length of the next frame, whether to send it now, and its
//! flags.

use toehold_shm::MAX_PARTS;
use toehold_wire::tcp::{Flags, Seq};

use super::Tcp;
use super::pcb::{Pcb, flag};
use crate::socket::setting;

impl Tcp {
    /// The number of bytes of new data to send next; 0: none now.
    pub(super) fn next_chunk(&mut self, index: u32, queued: u32) -> u32 {
        let pcb = &self.pcbs[index];
        let unsent = self.record_ends.within_record(pcb, queued);
        let followed = unsent < queued;
        let mss = u32::from(pcb.mss);
        let window = (pcb.snd_una + pcb.snd_wnd).after(pcb.snd_nxt);
        let congestion = pcb.congestion.cwnd().saturating_sub(pcb.in_flight());
        let nothing_out = pcb.outstanding() == 0;
        let data = unsent.min(window);
        if data > congestion && congestion < mss && !nothing_out {
            self.pcbs[index].set(flag::WINDOW_LIMITED);
            return 0;
        }
        let mut allowed = data.min(congestion.max(if nothing_out { mss } else { 0 }));
        if allowed > mss {
            allowed = allowed.min(self.largest_chunk(pcb));
        }
        if allowed >= mss {
            if data >= congestion {
                // This also holds if the chunk fills the window exactly.
                self.pcbs[index].set(flag::WINDOW_LIMITED);
            }
            let whole = whole_segments(allowed, mss as u16);
            // A super-frame carries a short last segment only if no data follow that could fill it.
            return if allowed == unsent && (followed || self.may_end_short(index, unsent, mss)) {
                allowed
            } else {
                whole
            };
        }
        if allowed == unsent && (followed || self.may_end_short(index, unsent, mss)) {
            return allowed;
        }
        //= RFC 9293 §3.8.6.2.1 (the sender's side of silly window avoidance: half the largest window is worth it)
        // A wait that lasted too long also suffices: the window may never be larger.
        let pcb = &self.pcbs[index];
        let worth = 2 * u64::from(window) >= u64::from(pcb.max_snd_wnd) || pcb.has(flag::PROBE);
        if allowed > 0 && allowed == window && allowed < unsent && worth {
            allowed
        } else {
            0
        }
    }

    /// Whether a segment of less than full size may end the queue now.
    fn may_end_short(&self, index: u32, unsent: u32, mss: u32) -> bool {
        let pcb = &self.pcbs[index];
        let held = pcb.has(flag::MORE) || pcb.settings.has(setting::CORK);
        //= RFC 9293 §3.7.4 (Nagle: hold a short segment while data are unacknowledged)
        // In Minshall's variant, as on Linux (draft-minshall-nagle-01): only while a short segment
        // is unacknowledged. A short segment behind full ones would otherwise wait for an
        // acknowledgement that the peer delays.
        let may = pcb.settings.has(setting::NO_DELAY) || !self.scoreboard.small_flies(pcb);
        let must = pcb.has(flag::FIN_QUEUED | flag::PROBE | flag::URGENT_OUT);
        may && !held || must || unsent.is_multiple_of(mss)
    }

    /// Most bytes of a queue that one frame can refer to, from any offset in a block.
    #[inline]
    pub(super) fn nameable(&self) -> u32 {
        (MAX_PARTS as u32 - 1) * self.payload.block_len() as u32
    }

    /// Largest payload of one frame: a segment, or as many whole segments as the link's super-frame
    /// holds.
    ///
    /// A packet's length has 16 bits, including headers, so a write of 65536 bytes takes two
    /// frames, as on Linux. Delaying the short one until the next write would bring back Nagle's
    /// algorithm.
    #[inline]
    pub(super) fn largest_chunk(&self, pcb: &Pcb) -> u32 {
        let mss = u32::from(pcb.mss);
        if !self.super_frames && !pcb.path.is_loopback() {
            return mss;
        }
        let headers = u32::from(super::syn::fixed_headers(pcb.tuple.local.is_ipv4())) + 40;
        let largest = u32::from(pcb.path.super_frame)
            .saturating_sub(headers)
            .min(self.nameable());
        let bound = match self.config.super_frame_segments {
            0 => u32::MAX,
            most => most.saturating_mul(mss),
        };
        let largest = largest.min(bound);
        if largest > mss {
            largest - largest % mss.max(1)
        } else {
            mss
        }
    }
}

/// Whether a segment that ends at `seq` carries the last byte that the program pushed.
//= RFC 9293 §3.9.1 (PSH on the last segment when nothing is left to send)
pub(super) fn ends_push(pcb: &Pcb, seq: Seq) -> bool {
    seq == pcb.queue_end() && !pcb.settings.has(setting::MORE_ANNOUNCED)
}

/// Flags of a segment with data.
pub(super) fn data_flags(pcb: &Pcb, len: u32, fin: bool, pushed: bool) -> Flags {
    let mut flags = Flags::ACK;
    // A unit that arrived as one may be handed to the program as one.
    if len > 0 && (pushed || len > pcb.mss.into()) {
        flags |= Flags::PSH;
    }
    if fin {
        flags |= Flags::FIN;
    }
    flags
}

/// The largest number of bytes, up to `len`, that fills whole segments; `len` if it is less than
/// one.
pub(super) fn whole_segments(len: u32, mss: u16) -> u32 {
    let mss = u32::from(mss.max(1));
    if len > mss { len - len % mss } else { len }
}
