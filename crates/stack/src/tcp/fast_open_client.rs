//! TCP Fast Open (RFC 7413), the connecting side. A SYN asks a server for a cookie. The next SYN to
//! that server carries the cookie and the program's first bytes.
//!
//! A SYN with data is outstanding beside `snd_una..snd_nxt`, which hold its data alone. The data
//! are in the send queue from the beginning. Data that the server does not take are retransmitted
//! when the handshake is done.

use toehold_wire::tcp::{FastOpen, Seq};

use super::fast_open_cache::{Advice, Lesson};
use super::pcb::{Pcb, State, flag};
use super::progress::Progress;
use super::segment::Segment;
use super::syn::fixed_headers;
use super::{Context, Tcp};
use crate::ip::Ip;
use crate::socket::{SendFlags, Settings, SocketError, setting};
use crate::time::Instant;

/// Room for options in a SYN with data; routers may add some.
const OPTIONS: u16 = 40;

/// Consecutive timeouts, without the next one, after which data in a SYN count as lost.
const VANISHED: u8 = 2;

/// Facts about a connection and Fast Open, in `Cold::fast_open`.
pub(super) mod bit {
    /// The SYN had the option.
    pub(crate) const ASKED: u16 = 1 << 0;
    /// The option had its experimental form.
    pub(crate) const EXPERIMENTAL: u16 = 1 << 1;
    /// The SYN waits for the first bytes of the program.
    pub(crate) const DEFERRED: u16 = 1 << 2;
    /// The SYN carries data.
    pub(crate) const CARRIES: u16 = 1 << 3;
    /// Data of the SYN were taken, by the peer or by this side.
    pub(crate) const TAKEN: u16 = 1 << 4;
    /// The peer opened the connection with a cookie.
    pub(crate) const CHILD: u16 = 1 << 5;
    /// A thread waits to send more once the handshake is done.
    pub(crate) const SENDER_WAITS: u16 = 1 << 6;
    /// SYNs to the peer carry no data for a while.
    pub(crate) const PAUSED: u16 = 1 << 7;
    /// A router had no room for the SYN with its data, which was retransmitted without them.
    pub(crate) const TOO_LARGE: u16 = 1 << 10;
    /// The reason why the SYN carried no data, or the peer did not take them, a
    /// [`super::EarlyDataFailure`].
    pub(crate) const FAILURE: u16 = 0b11 << FAILURE_SHIFT;
    pub(crate) const FAILURE_SHIFT: u16 = 8;
}

/// Reasons why data did not arrive with the SYN (`tcpi_fastopen_client_fail`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EarlyDataFailure {
    /// The server's cookie was not known.
    CookieUnknown = 1,
    /// The server did not acknowledge the data.
    NotTaken = 2,
    /// The SYN had to be retransmitted.
    SynRepeated = 3,
}

/// Facts about a connection's use of Fast Open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EarlyData {
    /// Data of the SYN were taken: by the peer of an active open, or by this side.
    pub taken: bool,
    /// The peer opened the connection with a cookie.
    pub is_child: bool,
    /// The peer has not yet proved its address.
    pub awaits_ack: bool,
    /// The reason why data did not arrive with the SYN.
    pub failure: Option<EarlyDataFailure>,
}

/// The time at which the SYN of a connection leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// At once. With TCP_FASTOPEN_CONNECT and a known cookie, with the first bytes.
    Ordinary,
    /// With the first call that sends. It carries the call's bytes if the server's cookie is known.
    WithData,
}

impl Pcb {
    /// Whether a SYN without a number in `snd_una..snd_nxt` is outstanding.
    pub(super) fn has_syn_apart(&self) -> bool {
        let opens = matches!(self.state(), State::SynSent | State::SynReceived);
        self.is_fast_open() || (opens && self.snd_una != self.iss)
    }

    /// The lowest number that an ICMP error about this connection may quote.
    pub(super) fn first_outstanding(&self) -> Seq {
        match self.has_syn_apart() {
            true => self.iss,
            false => self.snd_una,
        }
    }
}

impl Tcp {
    fn note_failure(&mut self, index: u32, failure: EarlyDataFailure) {
        self.cold[index as usize].clear_fast_open(bit::FAILURE);
        self.cold[index as usize].set_fast_open((failure as u16) << bit::FAILURE_SHIFT);
    }

    /// Facts about a connection's use of Fast Open.
    pub(crate) fn early_data(&self, index: u32) -> EarlyData {
        let bits = self.cold[index as usize].fast_open();
        EarlyData {
            taken: bits & bit::TAKEN != 0,
            is_child: bits & bit::CHILD != 0,
            awaits_ack: self.pcbs[index].is_fast_open(),
            failure: match (bits & bit::FAILURE) >> bit::FAILURE_SHIFT {
                1 => Some(EarlyDataFailure::CookieUnknown),
                2 => Some(EarlyDataFailure::NotTaken),
                3 => Some(EarlyDataFailure::SynRepeated),
                _ => None,
            },
        }
    }

    /// Notes that a peer has opened a connection with a cookie, and possibly with data.
    pub(super) fn note_child(&mut self, index: u32, with_data: bool) {
        let taken = if with_data { bit::TAKEN } else { 0 };
        self.cold[index as usize].set_fast_open(bit::CHILD | taken);
    }

    /// Whether the SYN waits for the first bytes of the program.
    pub(crate) fn is_deferred(&self, index: u32) -> bool {
        self.pcbs[index].state() == State::SynSent
            && self.cold[index as usize].fast_open() & bit::DEFERRED != 0
    }

    /// Notes that a thread waits to send once the handshake is done. The last acknowledgement of
    /// the handshake goes with its bytes.
    pub(crate) fn note_waiting_sender(&mut self, index: u32) {
        if self.pcbs[index].state() == State::SynSent {
            self.cold[index as usize].set_fast_open(bit::SENDER_WAITS);
        }
    }

    /// Whether the acknowledgement of a SYN-ACK waits for data to carry it.
    pub(super) fn awaits_first_bytes(&self, index: u32) -> bool {
        self.cold[index as usize].fast_open() & bit::SENDER_WAITS != 0
    }

    /// Decides when the SYN of a new connection leaves, and its option. Returns `false` if it waits
    /// for the program.
    pub(super) fn open_with(
        &mut self,
        now: Instant,
        index: u32,
        settings: &Settings,
        opening: Opening,
    ) -> bool {
        let wants = opening == Opening::WithData || settings.has(setting::FAST_OPEN_CONNECT);
        if !wants {
            return true;
        }
        let advice = self
            .fast_open_cache
            .advice(&self.keys, now, &self.pcbs[index].tuple);
        if advice == Advice::Nothing {
            self.cold[index as usize].set_fast_open(bit::PAUSED);
        }
        let may_carry = match advice {
            Advice::Nothing => false,
            Advice::Request(_) => settings.has(setting::FAST_OPEN_NO_COOKIE),
            Advice::Cookie(_) => true,
        };
        if opening == Opening::WithData || may_carry {
            self.cold[index as usize].set_fast_open(bit::DEFERRED);
            return false;
        }
        self.ask(index, advice);
        true
    }

    /// Sets the advised option in the SYN.
    fn ask(&mut self, index: u32, advice: Advice) {
        let (Advice::Request(option) | Advice::Cookie(option)) = advice else {
            return;
        };
        let experimental = match option.is_experimental() {
            true => bit::EXPERIMENTAL,
            false => 0,
        };
        self.cold[index as usize].set_fast_open(bit::ASKED | experimental);
        if matches!(advice, Advice::Request(_)) {
            self.note_failure(index, EarlyDataFailure::CookieUnknown);
        }
    }

    /// The advice for a connection; its pause was checked when it was created.
    fn advice_for(&self, index: u32) -> Advice {
        match self.cold[index as usize].fast_open() & bit::PAUSED != 0 {
            true => Advice::Nothing,
            // A pause that began since then does not matter.
            false => self
                .fast_open_cache
                .advice(&self.keys, Instant::NEVER, &self.pcbs[index].tuple),
        }
    }

    /// Sends the SYN of a connection that waited for its program's first bytes, with as many of
    /// them as it may carry. Returns their number.
    //= RFC 7413 §4.1.1 (the client sends the SYN with the cookie and data)
    pub(crate) fn send_with_syn(
        &mut self,
        ip: &Ip,
        index: u32,
        bytes: &[u8],
        flags: SendFlags,
    ) -> Result<usize, SocketError> {
        let advice = self.advice_for(index);
        let needs_none = self.pcbs[index].settings.has(setting::FAST_OPEN_NO_COOKIE);
        let may_carry = match advice {
            Advice::Nothing => false,
            Advice::Request(_) => needs_none,
            Advice::Cookie(_) => true,
        };
        let room = match may_carry {
            true => self.room_in_syn(ip, index).min(self.queueable(index)),
            false => 0,
        };
        let pcb = &mut self.pcbs[index];
        let take = bytes.len().min(room).min(pcb.send_room());
        let queued = pcb
            .send_queue
            .append_in(&mut self.payload, pcb.path.arena, &bytes[..take]);
        if queued > 0 {
            // The SYN is not part of the outstanding data.
            pcb.snd_nxt = pcb.iss + 1;
            pcb.snd_una = pcb.snd_nxt;
            if flags.urgent && queued == bytes.len() {
                pcb.snd_up = pcb.queue_end();
                pcb.set(flag::URGENT_OUT);
            }
            pcb.settings
                .set(setting::MORE_ANNOUNCED, flags.more && queued == bytes.len());
            self.cold[index as usize].set_fast_open(bit::CARRIES);
        }
        self.cold[index as usize].clear_fast_open(bit::DEFERRED);
        if !needs_none {
            self.ask(index, advice);
        }
        self.pcbs[index].set(flag::SYN_PENDING);
        self.mark_ready(index);
        Ok(queued)
    }

    /// Bytes that a SYN may carry.
    //= RFC 7413 §4.1.3 (the MSS that the server last named bounds the data)
    fn room_in_syn(&self, ip: &Ip, index: u32) -> usize {
        let pcb = &self.pcbs[index];
        let mut size = ip
            .path_mtu(&pcb.tuple.remote)
            .saturating_sub(fixed_headers(pcb.tuple.local.is_ipv4()));
        if let Some(named) = self.fast_open_cache.segment_size(&self.keys, &pcb.tuple) {
            size = size.min(named);
        }
        if pcb.settings.max_segment > 0 {
            size = size.min(pcb.settings.max_segment);
        }
        let nameable = u16::try_from(self.nameable()).unwrap_or(u16::MAX);
        usize::from(size.min(nameable).saturating_sub(OPTIONS))
    }

    /// Bytes in the SYN about to be sent. A retransmitted SYN carries none.
    //= RFC 7413 §4.1.3.1 (the SYN is repeated without data and cookie)
    pub(super) fn data_of_syn(&self, index: u32) -> usize {
        let pcb = &self.pcbs[index];
        let carries = self.cold[index as usize].fast_open() & bit::CARRIES != 0;
        match pcb.state() == State::SynSent && pcb.syn_count == 0 && carries && self.scoreboard.has_room() {
            true => pcb.send_queue.len(),
            false => 0,
        }
    }

    /// Notes that the SYN has left with `len` bytes.
    pub(super) fn note_data_of_syn(&mut self, now: Instant, index: u32, len: usize) {
        let start = self.pcbs[index].iss + 1;
        let end = start + len as u32;
        self.push_sent(now, index, (start, end), true);
        self.pcbs[index].snd_nxt = end;
    }

    /// The Fast Open option of the SYN about to be sent.
    pub(super) fn client_option(&self, index: u32) -> Option<FastOpen> {
        let pcb = &self.pcbs[index];
        let asks = self.cold[index as usize].fast_open() & bit::ASKED != 0;
        if pcb.state() != State::SynSent || pcb.syn_count > 0 || !asks {
            return None;
        }
        match self.advice_for(index) {
            Advice::Nothing => None,
            Advice::Request(option) | Advice::Cookie(option) => Some(option),
        }
    }

    /// Handles the peer's answer to the SYN: learns its cookie, and notes the result of the data.
    /// `repeated`: the SYN was sent more than once.
    pub(super) fn syn_answered(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
        repeated: bool,
    ) {
        let bits = self.cold[index as usize].fast_open();
        if bits & (bit::ASKED | bit::CARRIES) == 0 {
            return;
        }
        let carries = bits & bit::CARRIES != 0;
        let cookie = segment
            .options
            .fast_open
            .filter(|option| bits & bit::ASKED != 0 && !option.cookie().is_empty());
        let was_asked_alone = bits & bit::ASKED != 0 && !carries && !repeated && cookie.is_none();
        let pcb = &self.pcbs[index];
        let taken = carries && segment.ack == pcb.snd_nxt;
        let lesson = Lesson {
            mss: pcb.peer_mss,
            cookie,
            unanswered: was_asked_alone.then_some(bits & bit::EXPERIMENTAL != 0),
            taken,
        };
        let tuple = pcb.tuple;
        self.fast_open_cache.learn(&self.keys, cx.now, &tuple, &lesson);
        if !carries {
            return;
        }
        let pcb = &mut self.pcbs[index];
        if bits & bit::TOO_LARGE != 0 && pcb.syn_count == 2 {
            // Congestion did not drop the SYN, so that the window need not shrink.
            pcb.syn_count = 1;
        }
        self.release_data_of_syn(cx.now, index, segment.ack);
        if taken {
            self.cold[index as usize].set_fast_open(bit::TAKEN);
            cx.counters.tcp_fast_open_data_taken += 1;
            return;
        }
        //= RFC 7413 §4.1.2 (what the server does not acknowledge is sent once more)
        cx.counters.tcp_fast_open_data_refused += 1;
        self.note_failure(
            index,
            match repeated {
                true => EarlyDataFailure::SynRepeated,
                false => EarlyDataFailure::NotTaken,
            },
        );
        self.send_data_of_syn_again(index);
    }

    fn release_data_of_syn(&mut self, now: Instant, index: u32, ack: Seq) {
        let mut progress = Progress::default();
        let pcb = &mut self.pcbs[index];
        self.scoreboard.release(now, pcb, ack, &mut progress);
        let acked = ack.after(pcb.snd_una).min(pcb.send_queue.len() as u32);
        pcb.send_queue.consume(&mut self.payload, acked as usize);
        pcb.bytes_acked = pcb.bytes_acked.wrapping_add(acked.into());
        pcb.snd_una += acked;
        self.scoreboard.drop_empty_flight(pcb);
    }

    /// Retransmits the rest of the SYN's data. That the server did not take them is no sign of
    /// congestion.
    fn send_data_of_syn_again(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        self.scoreboard.mark_lost_where(pcb, |_| true);
        self.mark_ready(index);
    }

    /// Retransmits the SYN at once without data, since a router could not forward it with them.
    pub(super) fn syn_too_large(&mut self, index: u32) {
        let carries = self.cold[index as usize].fast_open() & bit::CARRIES != 0;
        let pcb = &mut self.pcbs[index];
        if carries && pcb.state() == State::SynSent && pcb.syn_count == 1 {
            pcb.set(flag::SYN_PENDING);
            self.cold[index as usize].set_fast_open(bit::TOO_LARGE);
            self.mark_ready(index);
        }
    }

    /// Handles a timeout of an active open, after `retries` consecutive ones; `expired`: it is the
    /// last.
    pub(super) fn suspect_path(&mut self, cx: &mut Context<'_>, index: u32, timeouts: u8, expired: bool) {
        let bits = self.cold[index as usize].fast_open();
        let is_early = bits & (bit::ASKED | bit::CARRIES) != 0;
        if is_early && (timeouts == VANISHED || (timeouts < VANISHED && expired)) {
            cx.counters.tcp_fast_open_pauses += 1;
            if self.pcbs[index].state() == State::SynSent {
                self.note_failure(index, EarlyDataFailure::SynRepeated);
            }
            let tuple = self.pcbs[index].tuple;
            self.fast_open_cache.pause(&self.keys, cx.now, &tuple);
        }
    }
}
