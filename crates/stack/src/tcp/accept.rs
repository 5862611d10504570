//! Listeners: SYNs, the backlog, SYN cookies, and the accept queue.

use toehold_shm::{NONE, Steps};
use toehold_wire::tcp::{Flags, Options};

use super::cold::Cold;
use super::listener::{Listener, Scope};
use super::pcb::{Pcb, State, flag};
use super::pending::Pending;
use super::segment::Segment;
use super::{Context, Tcp};
use crate::socket::{ConnectionId, ListenerId, Settings, SocketError, setting};
use crate::time::Instant;
use crate::tuple::Address;

impl Tcp {
    /// Opens a listener.
    pub(crate) fn listen(
        &mut self,
        cx: &mut Context<'_>,
        address: Address,
        port: u16,
        backlog: u32,
        settings: Settings,
    ) -> Result<ListenerId, SocketError> {
        if !address.is_unspecified() && !cx.ip.is_local(address) {
            return Err(SocketError::AddressNotAvailable);
        }
        let scope = Scope::new(address, &settings);
        let port = if port == 0 {
            self.free_listen_port(&scope)?
        } else {
            port
        };
        let shares = settings.has(setting::REUSE_PORT);
        if self.listeners.conflict(&scope, port, shares) {
            return Err(SocketError::AddressInUse);
        }
        let generation = self.state[0].next_generation();
        let Some(index) = self.listeners.free_slot() else {
            cx.counters.context_memory_out += 1;
            return Err(SocketError::OutOfMemory);
        };
        self.touch_listener(index);
        self.listeners[index] = Listener {
            address,
            port,
            flags: Listener::OPEN,
            on_events: 0,
            generation,
            backlog,
            queue_head: NONE,
            queue_tail: NONE,
            queue_len: 0,
            half_open: 0,
            fast_open: Pending::default(),
            deferral: 0,
            event_next: NONE,
            bucket_next: 0,
            settings,
        };
        self.listeners.note_accept_length(index);
        self.listeners.enter(index);
        Ok(ListenerId { index, generation })
    }

    fn free_listen_port(&mut self, scope: &Scope) -> Result<u16, SocketError> {
        let last = self.config.ephemeral_last;
        let first = self.config.ephemeral_first.min(last);
        let random = self.state[0].random();
        self.listeners
            .free_port(scope, (first, last), random)
            .ok_or(SocketError::AddressNotAvailable)
    }

    /// Closes a listener.
    pub(crate) fn close_listener(&mut self, index: u32) {
        self.listeners.leave(index);
        self.listeners[index].flags = 0;
        self.scatter(index);
    }

    /// Moves the waiting connections of a closed listener to another listener at its address and
    /// port. Without one, resets them.
    pub(super) fn scatter(&mut self, index: u32) {
        let mut steps = Steps::along(self.pcbs.capacity());
        while let Some(connection) = self.pop_accepted(index) {
            steps.count();
            match self.heir_of(index, connection) {
                Some(heir) => self.pass_on_accepted(heir, connection),
                None => {
                    self.pcbs[connection].set(flag::RELEASED);
                    self.abort(connection);
                    self.free_if_done(connection);
                }
            }
        }
        let half_open: Vec<u32> = self
            .pcbs
            .iter_live()
            .filter(|(_, pcb)| pcb.listener == index && pcb.state() == State::SynReceived)
            .map(|(i, _)| i)
            .collect();
        for connection in half_open {
            match self.heir_of(index, connection) {
                Some(heir) => {
                    self.pcbs[connection].listener = heir;
                    self.listeners[heir].begin_handshake();
                }
                None => self.abort(connection),
            }
        }
        self.detach_fast_open(index);
    }

    /// The listener that takes over a connection of a closed listener.
    fn heir_of(&self, closed: u32, connection: u32) -> Option<u32> {
        let tuple = &self.pcbs[connection].tuple;
        self.listeners.heir_of(closed, tuple, &self.keys)
    }

    fn pass_on_accepted(&mut self, heir: u32, connection: u32) {
        self.pcbs[connection].set(flag::RELEASED);
        if self.pcbs[connection].is_fast_open() {
            self.begin_fast_open(heir, connection);
        }
        self.enqueue_accepted(heir, connection);
    }

    /// The oldest connection in the accept queue.
    pub(crate) fn first_waiting(&self, index: u32) -> Option<ConnectionId> {
        let first = self.listeners[index].queue_head;
        (first != NONE).then(|| self.connection_id(first))
    }

    /// Takes the oldest connection from the accept queue.
    pub(crate) fn accept(&mut self, index: u32) -> Result<ConnectionId, SocketError> {
        let connection = self.pop_accepted(index).ok_or(SocketError::WouldBlock)?;
        Ok(self.connection_id(connection))
    }

    fn pop_accepted(&mut self, index: u32) -> Option<u32> {
        let connection = self.listeners[index].queue_head;
        if connection == NONE {
            return None;
        }
        self.touch(connection);
        let listener = &mut self.listeners[index];
        let pcb = &mut self.pcbs[connection];
        listener.queue_head = std::mem::replace(&mut pcb.accept_next, NONE);
        if listener.queue_head == NONE {
            listener.queue_tail = NONE;
        }
        listener.queue_len = listener.queue_len.wrapping_sub(1);
        if !pcb.is_fast_open() {
            pcb.listener = NONE;
        }
        pcb.clear(flag::IN_ACCEPT_QUEUE | flag::RELEASED);
        self.listeners.note_accept_length(index);
        Some(connection)
    }

    /// Handles a segment for a listener's port. Returns `false` if the segment is the kernel's. The
    /// kernel may have a connection with that port from before the listener.
    //= RFC 9293 §3.10.7.2 (LISTEN)
    pub(super) fn listen_input(
        &mut self,
        cx: &mut Context<'_>,
        listener: u32,
        segment: &Segment<'_>,
    ) -> bool {
        let opens = segment.has(Flags::SYN) && !segment.has(Flags::ACK) && !segment.has(Flags::RST);
        if opens {
            self.syn_input(cx, listener, segment);
            return true;
        }
        let returns_cookie =
            segment.has(Flags::ACK) && !segment.has(Flags::RST) && self.cookie_input(cx, listener, segment);
        if returns_cookie {
            return true;
        }
        if self.is_beside_kernel(cx, segment) {
            return false;
        }
        if segment.has(Flags::ACK) && !segment.has(Flags::RST) {
            self.no_connection_input_from_listener(cx, segment);
        }
        true
    }

    fn syn_input(&mut self, cx: &mut Context<'_>, listener: u32, segment: &Segment<'_>) {
        if segment.has(Flags::FIN) {
            return;
        }
        let state = &self.listeners[listener];
        if state.is_full() {
            cx.counters.tcp_listen_overflows += 1;
            return;
        }
        //= RFC 4987 §3.6 (SYN cookies when the half-open connections exceed the backlog)
        if state.half_open > state.backlog.max(1) || self.pcbs.len() == self.pcbs.capacity() {
            self.reply_cookie(cx, listener, segment);
            return;
        }
        self.half_open(cx, listener, segment);
    }

    fn no_connection_input_from_listener(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        //= RFC 9293 §3.10.7.2 (second, any ACK in LISTEN is answered with a reset)
        cx.counters.tcp_no_connection += 1;
        self.reply_reset(cx, segment);
    }

    fn half_open(&mut self, cx: &mut Context<'_>, listener: u32, segment: &Segment<'_>) {
        let mut pcb = self.passive_pcb(cx, listener, segment, &segment.options);
        //= RFC 3168 §6.1.1 (an offer of ECN is ECE and CWR on the SYN)
        // A SYN is never marked: the marks of a path that marks it say nothing about congestion.
        let offers = segment.has(Flags::ECE) && segment.has(Flags::CWR) && !segment.congestion_experienced;
        if offers && self.config.ecn_accept {
            pcb.set(flag::ECN);
        }
        pcb.set(flag::SYN_PENDING);
        pcb.waiting_since = cx.now;
        if let Some(index) = self.adopt(cx, pcb) {
            self.listeners[listener].begin_handshake();
            self.mark_ready(index);
            if segment.options.fast_open.is_some() || !segment.payload.is_empty() {
                self.fast_open_input(cx, listener, index, segment);
            }
        }
    }

    /// A block in SYN-RECEIVED for a peer's SYN with these options.
    fn passive_pcb(
        &mut self,
        cx: &mut Context<'_>,
        listener: u32,
        segment: &Segment<'_>,
        options: &Options,
    ) -> Pcb {
        let settings = self.listeners[listener].settings;
        let mut pcb = self.new_pcb(cx.now, segment.tuple, &settings);
        pcb.set_state(State::SynReceived);
        pcb.set(flag::PASSIVE | flag::RELEASED);
        pcb.listener = listener;
        pcb.rcv_nxt = segment.seq + 1;
        pcb.rcv_adv = pcb.rcv_nxt
            + pcb
                .settings
                .receive_buffer
                .min(65535)
                .min(settings.tuning.clamp());
        pcb.last_ack_sent = pcb.rcv_nxt;
        pcb.snd_wnd = u32::from(segment.window);
        pcb.max_snd_wnd = pcb.snd_wnd;
        pcb.snd_wl1 = segment.seq;
        self.negotiate(cx.now, &mut pcb, options);
        pcb
    }

    fn adopt(&mut self, cx: &mut Context<'_>, pcb: Pcb) -> Option<u32> {
        let settings = match pcb.listener {
            NONE => None,
            listener => Some(self.listeners[listener].settings),
        };
        let Some(index) = self.pcbs.insert(pcb) else {
            cx.counters.context_memory_out += 1;
            return None;
        };
        self.touch(index);
        self.cold[index as usize] = Cold::default();
        if let Some(settings) = settings {
            self.tune(index, &settings);
        }
        if self.enter_flow(index).is_err() {
            self.remove_pcb(index);
            cx.counters.context_memory_out += 1;
            return None;
        }
        Some(index)
    }

    /// Whether an acknowledgement in SYN-RECEIVED covers this side's SYN. Otherwise resets its
    /// sender.
    pub(super) fn acknowledges_syn(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
    ) -> bool {
        let pcb = &self.pcbs[index];
        //= RFC 9293 §3.10.7.4 (fifth, SYN-RECEIVED: an unacceptable ACK is answered with a reset)
        let acceptable = !segment.ack.le(pcb.iss) && !segment.ack.gt(pcb.snd_nxt);
        if !acceptable {
            cx.counters.tcp_bad_acks += 1;
            self.reply_reset(cx, segment);
        }
        acceptable
    }

    /// Handles an acknowledgement in SYN-RECEIVED. Returns `true` if the connection is established.
    pub(super) fn handshake_completes(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        segment: &Segment<'_>,
    ) -> bool {
        if !self.acknowledges_syn(cx, index, segment) {
            return false;
        }
        if self.defers(index, segment) {
            return false;
        }
        let pcb = &mut self.pcbs[index];
        let listener = pcb.listener;
        if listener != NONE && self.listeners[listener].is_full() {
            // The peer considers the connection established. It retransmits its data, or this side
            // its SYN-ACK, until there is room.
            cx.counters.tcp_listen_overflows += 1;
            return false;
        }
        if !pcb.is_awaited() {
            pcb.measure_handshake(cx.now, segment);
        }
        pcb.snd_una = pcb.iss + 1;
        if !pcb.has(flag::PASSIVE) {
            let repeated = pcb.syn_count > 1;
            self.syn_answered(cx, index, segment, repeated);
        }
        if listener != NONE {
            let mut pcb = self.pcbs[index];
            self.settle_segment_size(&mut pcb);
            self.pcbs[index] = pcb;
            self.listeners[listener].complete_handshake();
            self.enqueue_accepted(listener, index);
            cx.counters.tcp_passive_opens += 1;
        }
        self.establish(cx, index, segment);
        true
    }

    /// Defers the end of a handshake for a listener that wants data with it (TCP_DEFER_ACCEPT,
    /// tcp(7)). The peer considers the connection established and will send data.
    fn defers(&mut self, index: u32, segment: &Segment<'_>) -> bool {
        let pcb = &self.pcbs[index];
        let brings = !segment.payload.is_empty() || segment.has(Flags::FIN);
        if brings || u32::from(pcb.backoff) >= self.deferral(index) {
            return false;
        }
        self.pcbs[index].await_data();
        true
    }

    /// The number of timeouts for which a connection in SYN-RECEIVED is deferred.
    pub(super) fn deferral(&self, index: u32) -> u32 {
        let pcb = &self.pcbs[index];
        match pcb.listener {
            NONE => 0,
            // It is accepted already, or its peer returned a valid cookie.
            _ if pcb.is_fast_open() || pcb.syn_count == 0 => 0,
            listener => self.listeners[listener].deferral,
        }
    }

    /// Defers the listener's new connections for this many seconds, rounded to timeouts.
    pub(crate) fn set_deferral(&mut self, listener: u32, seconds: u32) {
        self.listeners[listener].deferral = self.rto_bounds.timeouts_within(seconds);
    }

    pub(super) fn enqueue_accepted(&mut self, listener: u32, index: u32) {
        self.pcbs[index].set(flag::IN_ACCEPT_QUEUE);
        self.pcbs[index].accept_next = NONE;
        let state = &mut self.listeners[listener];
        state.queue_len = state.queue_len.wrapping_add(1);
        let tail = std::mem::replace(&mut state.queue_tail, index);
        if tail == NONE {
            state.queue_head = index;
        } else {
            self.pcbs[tail].accept_next = index;
        }
        self.listeners.note_accept_length(listener);
        self.mark_listener_event(listener);
    }

    /// Handles an acknowledgement without a connection, which may return a SYN cookie.
    fn cookie_input(&mut self, cx: &mut Context<'_>, listener: u32, segment: &Segment<'_>) -> bool {
        let sent_at = self.state[0].cookie_sent_at;
        if !sent_at.is_set() || cx.now.nanos_since(sent_at) > super::syn_cookie::LIFETIME_NS {
            return false;
        }
        if segment.has(Flags::SYN) {
            return false;
        }
        let Some(agreed) = self.keys.check_cookie(segment, cx.now) else {
            cx.counters.tcp_syn_cookies_failed += 1;
            return false;
        };
        if self.listeners[listener].is_full() {
            cx.counters.tcp_listen_overflows += 1;
            return true;
        }
        let mut pcb = self.passive_pcb(cx, listener, segment, &agreed);
        // Up to the window that the SYN-ACK announced.
        pcb.rcv_adv = segment.seq + pcb.rcv_adv.after(pcb.rcv_nxt);
        pcb.rcv_nxt = segment.seq;
        pcb.last_ack_sent = segment.seq;
        pcb.iss = segment.ack - 1;
        pcb.snd_una = segment.ack;
        pcb.snd_nxt = segment.ack;
        if let Some(index) = self.adopt(cx, pcb) {
            cx.counters.tcp_syn_cookies_accepted += 1;
            self.pcbs[index].waiting_since = Instant::NEVER;
            self.listeners[listener].begin_handshake();
            self.pcbs[index].snd_una = segment.ack - 1;
            if self.refresh_path(cx, index) && self.handshake_completes(cx, index, segment) {
                self.finish_cookie(cx, index, segment);
            }
        }
        true
    }

    /// Handles the other contents of the segment that returned the cookie.
    fn finish_cookie(&mut self, cx: &mut Context<'_>, index: u32, segment: &Segment<'_>) {
        if !segment.payload.is_empty() || segment.has(Flags::FIN) {
            self.data_input(cx, index, segment, None);
        }
        self.mark_ready(index);
        self.rearm(index);
    }
}
