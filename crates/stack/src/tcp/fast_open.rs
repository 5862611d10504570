//! TCP Fast Open (RFC 7413), the listening side. A SYN that returns a cookie opens a connection at
//! once. Its program reads the SYN's data and answers before the handshake is done.
//!
//! Such a connection is in state ESTABLISHED from the beginning. Its `FAST_OPEN` flag stands for
//! the unacknowledged SYN-ACK. The flag is set until an acknowledgement proves the peer's address.
//! A listener bounds the number of such connections: beyond, a SYN is handled without Fast Open.
//! The data of a SYN may arrive twice (RFC 7413 §2.1), so that programs must enable the option.

use toehold_shm::NONE;
use toehold_wire::tcp::{FastOpen, Flags};

use super::congestion::Congestion;
use super::pcb::{Pcb, State, flag};
use super::segment::Segment;
use super::{Context, Tcp};
use crate::keyed::Keys;
use crate::socket::setting;
use crate::time::Instant;
use crate::tuple::FourTuple;

impl Keys {
    /// The cookie of a peer. It depends on both addresses only, so that nodes with the same key
    /// accept each other's cookies.
    //= RFC 7413 §4.1.2 (a function of the client's address and a secret, of 64 bits at least)
    fn fast_open_cookie(&self, tuple: &FourTuple) -> [u8; 8] {
        let mut addresses = [0; 32];
        let width = if tuple.local.is_ipv4() { 4 } else { 16 };
        addresses[..width].copy_from_slice(&tuple.remote.0[16 - width..]);
        addresses[width..2 * width].copy_from_slice(&tuple.local.0[16 - width..]);
        self.fast_open.bytes(&addresses[..2 * width]).to_le_bytes()
    }
}

impl Pcb {
    /// Whether the peer has not yet proved its address.
    #[inline]
    pub(super) fn is_fast_open(&self) -> bool {
        self.settings.has(setting::FAST_OPEN)
    }

    /// Whether this segment repeats the SYN that opened the connection.
    pub(super) fn is_first_syn(&self, segment: &Segment<'_>) -> bool {
        (self.state() == State::SynReceived || self.is_fast_open())
            && segment.has(Flags::SYN)
            && segment.seq == self.irs()
    }
}

impl Tcp {
    /// Handles a SYN with the option, which has made a half-open connection. A valid cookie opens
    /// it; otherwise the SYN-ACK carries a cookie.
    pub(super) fn fast_open_input(
        &mut self,
        cx: &mut Context<'_>,
        listener: u32,
        index: u32,
        segment: &Segment<'_>,
    ) {
        let pending = self.listeners[listener].fast_open;
        let needs_none = self.listeners[listener]
            .settings
            .has(setting::FAST_OPEN_NO_COOKIE);
        let option = segment.options.fast_open;
        let asks = option.is_some() || (needs_none && !segment.payload.is_empty());
        if pending.limit == 0 || !asks {
            return;
        }
        let wrong = option
            .filter(|option| !needs_none && option.cookie() != self.keys.fast_open_cookie(&segment.tuple));
        if let Some(option) = wrong {
            //= RFC 7413 §4.2.2 (a request, or a cookie that is not valid, is answered with one; the data are not taken)
            cx.counters.tcp_fast_open_cookies_sent += 1;
            let settings = &mut self.pcbs[index].settings;
            settings.set(setting::FAST_OPEN_COOKIE, true);
            settings.set(setting::FAST_OPEN_EXPERIMENT, option.is_experimental());
            return;
        }
        if pending.is_full(cx.now) {
            //= RFC 7413 §4.2.2 (beyond the limit of pending requests: the regular handshake)
            cx.counters.tcp_fast_open_overflows += 1;
            return;
        }
        if self.refresh_path(cx, index) {
            self.fast_open(cx, listener, index, segment);
        }
    }

    /// Opens a connection before its handshake is done.
    //= RFC 7413 §4.2.2 (the data go to the program; it may answer at once)
    fn fast_open(&mut self, cx: &mut Context<'_>, listener: u32, index: u32, segment: &Segment<'_>) {
        let mut pcb = self.pcbs[index];
        self.settle_segment_size(&mut pcb);
        pcb.set_state(State::Established);
        // The SYN is not part of the outstanding data: `FAST_OPEN` stands for it.
        pcb.snd_nxt = pcb.iss + 1;
        pcb.snd_una = pcb.snd_nxt;
        pcb.settings.set(setting::FAST_OPEN, true);
        self.pcbs[index] = pcb;
        self.listeners[listener].abandon_handshake();
        self.begin_fast_open(listener, index);
        self.enqueue_accepted(listener, index);
        cx.counters.tcp_fast_opens += 1;
        self.note_child(index, !segment.payload.is_empty());
        if !segment.payload.is_empty() {
            self.data_input(cx, index, segment, None);
            // No window was advertised yet: the data do not reduce the first window.
            let room = self.receive_room(&self.pcbs[index]);
            let clamp = self.clamp(index);
            let pcb = &mut self.pcbs[index];
            pcb.rcv_adv = pcb.rcv_nxt + room.min(65535).min(clamp);
        }
        self.rearm(index);
    }

    /// The Fast Open option of this side's SYN-ACK.
    pub(super) fn fast_open_option(&self, pcb: &Pcb) -> Option<FastOpen> {
        if !pcb.settings.has(setting::FAST_OPEN_COOKIE) {
            return None;
        }
        let cookie = self.keys.fast_open_cookie(&pcb.tuple);
        FastOpen::new(&cookie, pcb.settings.has(setting::FAST_OPEN_EXPERIMENT))
    }

    /// Handles the first acknowledgement on a connection opened early. Returns `false` if the
    /// segment must be dropped.
    pub(super) fn fast_open_completes(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
    ) -> bool {
        if !self.acknowledges_syn(cx, index, segment) {
            return false;
        }
        let pcb = &mut self.pcbs[index];
        if pcb.syn_count > 1 {
            //= RFC 5681 §3.1 (after a lost SYN or SYN-ACK the initial window is one segment)
            let mss = u32::from(pcb.mss);
            pcb.congestion = Congestion::new(pcb.settings.algorithm(), mss, mss);
        } else if pcb.sent_head == NONE {
            // Data sent behind the SYN-ACK are measured separately.
            let sample = cx.now.nanos_since(pcb.waiting_since);
            pcb.rtt.sample(cx.now, sample);
        }
        pcb.backoff = 0;
        if pcb.sent_head == NONE {
            pcb.waiting_since = Instant::NEVER;
        }
        cx.counters.tcp_passive_opens += 1;
        self.end_fast_open(index);
        self.arm_retransmit(cx.now, index);
        self.pcbs[index].start_keepalive(cx.now);
        true
    }

    /// Notes that the peer reset a connection.
    pub(super) fn note_fast_open_reset(&mut self, now: Instant, index: u32) {
        let pcb = &self.pcbs[index];
        if pcb.is_fast_open() && pcb.listener != NONE {
            self.listeners[pcb.listener].fast_open.note_reset(now);
        }
    }

    /// Counts a connection as pending at a listener.
    pub(super) fn begin_fast_open(&mut self, listener: u32, index: u32) {
        self.pcbs[index].listener = listener;
        self.listeners[listener].fast_open.begin();
    }

    /// Ends the pending state of a connection: its handshake is done, or it has ended.
    pub(super) fn end_fast_open(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        pcb.settings.set(setting::FAST_OPEN, false);
        let listener = pcb.listener;
        if !pcb.has(flag::IN_ACCEPT_QUEUE) {
            pcb.listener = NONE;
        }
        if listener != NONE {
            self.listeners[listener].fast_open.end();
        }
    }

    /// Detaches accepted connections that are still pending from a closing listener.
    pub(super) fn detach_fast_open(&mut self, listener: u32) {
        let accepted: Vec<u32> = self
            .pcbs
            .iter_live()
            .filter(|(_, pcb)| pcb.listener == listener && pcb.is_fast_open())
            .map(|(index, _)| index)
            .collect();
        for index in accepted {
            self.pcbs[index].listener = NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_equals_cookie_of_other_server_with_key() {
        let mut keys = Keys::new(&[0; 16]);
        let key = 0xa1a1_a1a1_b2b2_b2b2_c3c3_c3c3_d4d4_d4d4_u128.to_be_bytes();
        keys.set_fast_open_key(&key);
        let v4 = FourTuple::new("192.168.0.1:80".parse().unwrap(), "192.0.2.1:9".parse().unwrap());
        let v6 = FourTuple::new(
            "[fd3d:a0b:17d6::1]:80".parse().unwrap(),
            "[fd3d:fa7b:d17d::1]:9".parse().unwrap(),
        );
        // packetdrill's scripts expect these cookies of Linux.
        assert_eq!(
            u64::from_be_bytes(keys.fast_open_cookie(&v4)),
            0x3021_b9d8_8901_7eeb
        );
        assert_eq!(
            u64::from_be_bytes(keys.fast_open_cookie(&v6)),
            0xc1d1_e974_2a47_a9bc
        );
    }
}
