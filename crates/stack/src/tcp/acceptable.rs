//! Acceptance of segments: PAWS, the receive window, and the defences against blind attackers (RFC
//! 5961).

use toehold_wire::tcp::Flags;

use super::pcb::{Pcb, State, flag};
use super::segment::Segment;
use super::{Context, Tcp};
use crate::socket::SocketError;
use crate::time::Instant;

/// The time for which a remembered timestamp is trusted: 24 days in milliseconds.
//= RFC 7323 §5.5
const PAWS_IDLE_MS: u32 = 24 * 24 * 3600 * 1000;

impl Tcp {
    /// Makes checks one to four of RFC 9293 §3.10.7.4. Returns `false` if the segment needs no
    /// further handling.
    pub(super) fn acceptable(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) -> bool {
        if !self.timestamp_acceptable(cx, index, segment) {
            return false;
        }
        let pcb = &mut self.pcbs[index];
        if !in_window(pcb, segment) {
            if pcb.is_first_syn(segment) && !segment.has(Flags::ACK) {
                //= RFC 7413 §4.2.1 (the SYN may come again without its data)
                pcb.set(flag::SYN_PENDING);
                return false;
            }
            cx.counters.tcp_out_of_window += 1;
            if segment.has(Flags::SYN) && !segment.has(Flags::RST) {
                //= RFC 5961 §4.2 (a SYN is challenged wherever it lies)
                self.challenge(cx, index);
            } else if !segment.has(Flags::RST) {
                self.probed(index);
                //= RFC 9293 §3.10.7.4 (an unacceptable segment is answered with an acknowledgement)
                self.note_duplicate(cx, index, segment);
                self.acknowledge_stray(cx, index, segment);
            }
            return false;
        }
        if segment.has(Flags::RST) {
            self.reset_input(cx, index, segment);
            return false;
        }
        if segment.has(Flags::SYN) && !self.syn_in_connection(cx, index, segment) {
            return false;
        }
        true
    }

    fn timestamp_acceptable(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) -> bool {
        let pcb = &mut self.pcbs[index];
        if !pcb.has(flag::TIMESTAMPS) {
            return true;
        }
        // RFC 7323 §3.2 drops a segment without the option. Some hosts and middleboxes omit it, and
        // Linux and BSD accept their segments.
        let Some(timestamps) = segment.options.timestamps else {
            return true;
        };
        let now_ms = cx.now.millis() as u32;
        let age = now_ms.wrapping_sub(pcb.ts_recent_at);
        let delta = timestamps.value.wrapping_sub(pcb.ts_recent) as i32;
        if delta < 0 && age < PAWS_IDLE_MS && !segment.has(Flags::RST) {
            //= RFC 7323 §5.3 (R1: an old timestamp: acknowledge and drop)
            cx.counters.tcp_paws_drops += 1;
            if segment.has(Flags::SYN) {
                self.challenge(cx, index);
            } else if !is_overtaken_ack(pcb, segment) {
                self.note_duplicate(cx, index, segment);
                self.acknowledge_stray(cx, index, segment);
            }
            return false;
        }
        true
    }

    /// Answers an unexpected segment. Of those without data, such as keepalive probes, it answers a
    /// bounded number a second per connection. Two confused ends therefore cannot keep each other
    /// busy.
    //= RFC 9293 §3.8.4 (a keepalive probe is answered)
    fn acknowledge_stray(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        if segment.len() > 0 || self.cold[index as usize].answers_stray(cx.now) {
            self.pcbs[index].set(flag::ACK_NOW);
        } else {
            cx.counters.tcp_strays_limited += 1;
        }
    }

    /// Sends a challenge acknowledgement if the budget allows.
    pub(super) fn challenge(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.challenge_allowed(cx) {
            cx.counters.tcp_challenge_acks += 1;
            self.pcbs[index].set(flag::ACK_NOW);
        }
    }

    /// Takes one challenge acknowledgement from this second's budget.
    pub(super) fn challenge_allowed(&mut self, cx: &mut Context<'_>) -> bool {
        //= RFC 5961 §7 (throttling of challenge acknowledgements)
        let second = cx.now.0 / 1_000_000_000;
        if self.state[0].challenge_second != second {
            // The budget varies, so that an attacker cannot measure it to learn about other
            // connections (CVE-2016-5696).
            let rate = self.config.challenge_ack_rate;
            let half = u64::from(rate / 2);
            let budget = half + self.state[0].random() % (half + 1) + u64::from(rate % 2);
            self.state[0].challenge_second = second;
            self.state[0].challenge_budget = budget as u32;
        }
        if self.state[0].challenge_budget == 0 {
            cx.counters.tcp_challenge_acks_limited += 1;
            return false;
        }
        self.state[0].challenge_budget -= 1;
        true
    }

    fn reset_input(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        //= RFC 5961 §3.2 (only the exact next sequence number resets; elsewhere in the window: challenge)
        // The peer's position also counts if earlier segments are missing, as on Linux.
        let highest = self.ranges.highest_kept(&self.pcbs[index]);
        let pcb = &mut self.pcbs[index];
        if segment.seq != pcb.rcv_nxt && Some(segment.seq) != highest {
            self.challenge(cx, index);
            return;
        }
        cx.counters.tcp_resets_received += 1;
        let error = match pcb.state() {
            State::SynReceived if pcb.has(flag::PASSIVE) => None,
            State::CloseWait => Some(SocketError::BrokenPipe),
            // Also after both ends have sent everything: as in Linux, a program that waits for the
            // acknowledgement of its data learns that none came.
            _ => Some(SocketError::ConnectionReset),
        };
        self.note_fast_open_reset(cx.now, index);
        self.finish(index, error);
    }

    /// Handles a SYN within a connection. Returns `true` if the acknowledgement of the segment is
    /// to be handled.
    fn syn_in_connection(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) -> bool {
        let pcb = &mut self.pcbs[index];
        if pcb.is_first_syn(segment) {
            if segment.has(Flags::ACK) {
                //= RFC 9293 §3.5 (simultaneous open: the SYN-ACK acknowledges our SYN)
                // The peer's SYN lies below the window and is acknowledged once more.
                pcb.set(flag::ACK_NOW);
                return true;
            }
            // The peer has not seen our SYN-ACK.
            pcb.set(flag::SYN_PENDING);
            return false;
        }
        let is_half_open = pcb.state() == State::SynReceived && pcb.has(flag::PASSIVE);
        if is_half_open && !pcb.is_fast_open() {
            //= RFC 9293 §3.10.7.4 (fourth, SYN-RECEIVED after a passive open: back to LISTEN)
            // As on Linux, the peer learns that its earlier attempt has ended.
            self.reply_reset(cx, segment);
            self.finish(index, None);
            return false;
        }
        //= RFC 5961 §4.2 (a SYN in a synchronized state is challenged)
        self.challenge(cx, index);
        false
    }
}

impl Pcb {
    /// Remembers the timestamp of a segment whose acknowledgement was acceptable.
    //= RFC 7323 §4.3 (2: of the segment that moves the left edge)
    #[inline]
    pub(super) fn remember_timestamp(&mut self, now: Instant, segment: &Segment<'_>) {
        let Some(timestamps) = segment.options.timestamps else {
            return;
        };
        if !self.has(flag::TIMESTAMPS) || segment.seq.gt(self.last_ack_sent) {
            return;
        }
        let now_ms = now.millis() as u32;
        let newer = timestamps.value.wrapping_sub(self.ts_recent) as i32 >= 0;
        if newer || now_ms.wrapping_sub(self.ts_recent_at) >= PAWS_IDLE_MS {
            self.ts_recent = timestamps.value;
            self.ts_recent_at = now_ms;
        }
    }
}

/// Whether any part of the segment may matter. At the left edge this is wider than RFC 9293's
/// table. It accepts bytes that were not yet acknowledged, so that acknowledgements on reordered
/// segments count.
fn in_window(pcb: &Pcb, segment: &Segment<'_>) -> bool {
    let end = segment.seq + segment.len();
    end.ge(pcb.last_ack_sent.min(pcb.rcv_nxt)) && segment.seq.le(pcb.rcv_adv.max(pcb.rcv_nxt))
}

/// Whether a segment is a pure acknowledgement that a later one overtook. It needs no answer, and
/// is no duplicate to report to its sender.
fn is_overtaken_ack(pcb: &Pcb, segment: &Segment<'_>) -> bool {
    segment.len() == 0
        && segment.has(Flags::ACK)
        && segment.seq == pcb.rcv_nxt
        && segment.ack.le(pcb.snd_una)
        && segment.ack.ge(pcb.oldest_ack())
}
