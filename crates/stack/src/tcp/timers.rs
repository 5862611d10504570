//! A connection's timers. Each has its deadline in the control block. The timing wheel holds one
//! entry a connection, at the earliest deadline for which it was armed. Postponing a deadline costs
//! nothing: the wheel fires at the old one, finds no expired timer, and is armed again.

use toehold_shm::{NONE, Steps};

use super::pcb::{Pcb, Repair, RetransmitTimer, State, flag};
use super::rtt::RtoBounds;
use super::{Context, Tcp};
use crate::socket::{NO_FIN_WAIT_2, Tuning, setting};
use crate::time::Instant;
use core::time::Duration;

/// Slack of a tail loss probe beyond two round trips, for scheduling on both sides.
const PROBE_SLACK_NS: u64 = 2_000_000;

/// Longest delay of a corked partial segment with no data in flight. As on Linux.
const CORK_NS: u64 = 200_000_000;

/// Number of SYN retransmissions before the interval grows, as on Linux since 6.5
/// (`tcp_syn_linear_timeouts`). A peer with a full queue usually has room again soon.
const SYNS_AT_ONCE: u8 = 4;

/// The number of a connection's timeouts without backoff.
fn at_once_of(pcb: &Pcb) -> u8 {
    match pcb.state() {
        State::SynSent => SYNS_AT_ONCE,
        _ => 0,
    }
}

impl Tcp {
    /// The earliest time at which [`Tcp::handle_timeout`] has work to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let wheel = self.wheel.next_deadline();
        let time_wait = self.time_waits.next_deadline();
        match (wheel, time_wait) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Handles every expired timer.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.expire_time_waits(cx.now);
        // A connection's next deadline is later than now.
        let mut steps = Steps::along(self.pcbs.capacity());
        while let Some(index) = self.wheel.pop_expired(cx.now) {
            steps.count();
            self.touch(index);
            self.pcbs[index].wheel_at = Instant::NEVER;
            self.run_timers(cx, index);
            self.leave_neighbor(cx.ip, index);
            self.rearm(index);
            self.free_if_done(index);
        }
    }

    fn run_timers(&mut self, cx: &mut Context<'_>, index: u32) {
        if user_timeout_at(&self.pcbs[index]) <= cx.now {
            //= RFC 9293 §3.9.1 (data not delivered within the user timeout: abort)
            cx.counters.tcp_aborted_on_timeout += 1;
            self.finish(
                index,
                Some(self.cold[index as usize].timeout_error(&self.pcbs[index])),
            );
            return;
        }
        if self.pcbs[index].ack_at <= cx.now {
            //= RFC 9293 §3.8.6.3 (a delayed acknowledgement goes out in time)
            let pcb = &mut self.pcbs[index];
            pcb.ack_at = Instant::NEVER;
            pcb.clear(flag::INTERACTIVE);
            pcb.set(flag::ACK_NOW);
            self.mark_ready(index);
        }
        if self.pcbs[index].retransmit_at <= cx.now {
            self.run_retransmit_timer(cx, index);
        }
        if self.pcbs[index].life_at <= cx.now {
            self.pcbs[index].life_at = Instant::NEVER;
            self.run_life_timer(cx, index);
        }
    }

    fn run_retransmit_timer(&mut self, cx: &mut Context<'_>, index: u32) {
        let pcb = &mut self.pcbs[index];
        pcb.retransmit_at = Instant::NEVER;
        let timer = pcb.timer();
        pcb.timer_raw = RetransmitTimer::Off as u8;
        match timer {
            RetransmitTimer::Off => {}
            RetransmitTimer::Timeout
                if matches!(pcb.state(), State::SynSent | State::SynReceived) || pcb.is_fast_open() =>
            {
                self.syn_timeout(cx, index);
            }
            RetransmitTimer::Timeout => self.retransmission_timeout(cx, index),
            RetransmitTimer::TailProbe => {
                pcb.set(flag::TAIL_PROBE);
                self.mark_ready(index);
            }
            RetransmitTimer::Reordering => {
                self.scoreboard.rack_detect(cx.now, pcb);
                if pcb.lost > 0 {
                    self.losses_found(cx, index);
                }
            }
            RetransmitTimer::Persist => self.probe_timeout(cx, index),
            RetransmitTimer::Cork => {
                pcb.push_out();
                self.mark_ready(index);
            }
            RetransmitTimer::Pacing => self.mark_ready(index),
        }
        // Its segments may stay unsent while the link is full or the neighbour unknown: the timer
        // runs on all the same.
        self.arm_retransmit(cx.now, index);
    }

    fn syn_timeout(&mut self, cx: &mut Context<'_>, index: u32) {
        let retries = match self.tuning(index).map_or(0, |tuning| tuning.syn_retries) {
            // The program's limit does not apply to SYN-ACKs.
            chosen @ 1.. if self.pcbs[index].state() == State::SynSent => chosen,
            _ => self.config.syn_retries,
        };
        let limit = retries.saturating_add(at_once_of(&self.pcbs[index]));
        let is_late = self.is_late(cx.now, index, retries);
        let deferral = match self.pcbs[index].is_awaited() {
            true => self.deferral(index),
            false => 0,
        };
        let pcb = &mut self.pcbs[index];
        let is_deferred = u32::from(pcb.backoff) + 1 < deferral;
        // The second bound is for SYNs that never left.
        let expired = (pcb.syn_count > limit || pcb.backoff >= limit || is_late) && !is_deferred;
        let timeouts = pcb.backoff;
        self.suspect_path(cx, index, timeouts, expired);
        let pcb = &mut self.pcbs[index];
        if expired {
            cx.counters.tcp_aborted_on_timeout += 1;
            self.finish(
                index,
                Some(self.cold[index as usize].timeout_error(&self.pcbs[index])),
            );
            return;
        }
        if !pcb.has(flag::SYN_PENDING) {
            cx.counters.tcp_timeouts += 1;
        }
        pcb.backoff = pcb.backoff.saturating_add(1);
        if !is_deferred {
            pcb.set(flag::SYN_PENDING);
            self.mark_ready(index);
        }
    }

    /// Whether a SYN has waited for its answer long enough. The limit is the time of `retries`
    /// retransmissions with an interval that doubles from the first one on, as on Linux.
    /// Retransmissions without backoff do not prolong an attempt.
    fn is_late(&self, now: Instant, index: u32, retries: u8) -> bool {
        let pcb = &self.pcbs[index];
        if pcb.state() != State::SynSent || !pcb.waiting_since.is_set() {
            return false;
        }
        let base_ns = (self.config.rto_initial.as_nanos() as u64).max(1);
        let most_ns = (self.config.rto_max.as_nanos() as u64).max(base_ns);
        let doublings = (most_ns / base_ns).ilog2().min(u32::from(retries));
        let doubled_ns = base_ns.saturating_mul((2_u64 << doublings) - 1);
        let rest_ns = most_ns.saturating_mul(u64::from(retries) - u64::from(doublings));
        now.nanos_since(pcb.waiting_since) >= doubled_ns.saturating_add(rest_ns)
    }

    /// Handles the timer of a probe of a closed window.
    //= RFC 9293 §3.8.6.1 (zero-window probing, with exponentially growing intervals)
    fn probe_timeout(&mut self, cx: &mut Context<'_>, index: u32) {
        let pcb = &mut self.pcbs[index];
        if pcb.waiting_since == Instant::NEVER {
            pcb.waiting_since = cx.now;
        }
        // A slow peer has no limit; an unresolved path has.
        let limited = pcb.has(flag::RELEASED) || pcb.snd_wnd > 0;
        if limited && self.gives_up(cx, index) {
            return;
        }
        let pcb = &mut self.pcbs[index];
        let closed = pcb.snd_wnd == 0;
        if closed || pcb.has(flag::PROBE) {
            // The peer has no room, or the link has had none since the last time.
            pcb.backoff = pcb.backoff.saturating_add(1);
        }
        pcb.push_out();
        if closed {
            self.grow_for_idle_peer(index);
        }
        self.mark_ready(index);
    }

    fn run_life_timer(&mut self, cx: &mut Context<'_>, index: u32) {
        let pcb = &mut self.pcbs[index];
        match pcb.state() {
            State::Closed | State::SynSent | State::SynReceived => {}
            State::FinWait2 if pcb.has(flag::RELEASED) => self.enter_time_wait(cx, index),
            _ => self.keepalive_timeout(cx, index),
        }
    }

    //= RFC 9293 §3.8.4 (keepalives: off by default, at least two hours by default)
    fn keepalive_timeout(&mut self, cx: &mut Context<'_>, index: u32) {
        let pcb = &mut self.pcbs[index];
        if !pcb.settings.has(setting::KEEPALIVE) {
            return;
        }
        let idle_until = pcb.last_received + pcb.settings.keepalive_idle();
        if pcb.outstanding() > 0 || idle_until > cx.now {
            pcb.keepalive_probes = 0;
            // Outstanding data serve as a probe; the retransmission timer handles them.
            let again = cx.now + pcb.settings.keepalive_idle();
            pcb.life_at = if pcb.outstanding() > 0 { again } else { idle_until };
            return;
        }
        let interval_ns = u64::from(pcb.settings.keepalive_interval_s) * 1_000_000_000;
        if pcb.has(flag::PROBE) {
            // The link did not take the last probe, so that it does not count as unanswered.
            pcb.life_at = cx.now.plus_nanos(interval_ns);
            return;
        }
        if pcb.keepalive_probes >= pcb.settings.keepalive_probes {
            cx.counters.tcp_aborted_on_timeout += 1;
            self.abort(index);
            self.pcbs[index].error = self.cold[index as usize].timeout_error(&self.pcbs[index]) as u8;
            return;
        }
        pcb.keepalive_probes += 1;
        pcb.set(flag::PROBE);
        pcb.life_at = cx.now.plus_nanos(interval_ns);
        self.mark_ready(index);
    }

    /// Bounds the stay in FIN-WAIT-2 of a connection that its program has closed.
    pub(super) fn start_fin_wait_2(&mut self, index: u32, now: Instant) {
        let span = match self.tuning(index).map_or(0, |tuning| tuning.fin_wait_2_s) {
            0 => self.config.fin_wait_2,
            NO_FIN_WAIT_2 => Duration::ZERO,
            seconds => Duration::from_secs(seconds.into()),
        };
        let pcb = &mut self.pcbs[index];
        if pcb.has(flag::RELEASED) {
            pcb.life_at = now + span;
        }
    }

    /// Retransmission timeout with its backoff, in nanoseconds.
    pub(crate) fn timeout_ns(&self, index: u32) -> u64 {
        let pcb = &self.pcbs[index];
        let backoff = pcb.backoff.saturating_sub(at_once_of(pcb));
        match self.tuning(index) {
            None => pcb.rtt.rto(&self.rto_bounds, backoff),
            Some(tuning) => tuned_timeout_ns(pcb, tuning, &self.rto_bounds, backoff),
        }
    }

    /// Sets the retransmission timer to the connection's present need. Called after every
    /// transmission round and every acknowledgement.
    #[inline]
    pub(super) fn arm_retransmit(&mut self, now: Instant, index: u32) {
        let pcb = &mut self.pcbs[index];
        if is_at_rest(pcb) {
            pcb.timer_raw = RetransmitTimer::Off as u8;
            pcb.retransmit_at = Instant::NEVER;
            return;
        }
        self.arm_busy(now, index);
    }

    /// Chooses the retransmission timer of a connection that may be waiting for an answer or for
    /// room.
    fn arm_busy(&mut self, now: Instant, index: u32) {
        let pcb = &self.pcbs[index];
        if pcb.timer() == RetransmitTimer::Reordering && pcb.outstanding() > 0 {
            return;
        }
        let (mut timer, mut deadline) = self.choose_timer(now, index);
        // Data delayed by their rate alone need no probe of the peer's window.
        let is_moot = matches!(timer, RetransmitTimer::Persist | RetransmitTimer::Cork);
        if let Some(until) = self.paced_until(now, index)
            && (until < deadline || is_moot)
            && (waits_to_send(&self.pcbs[index]) || self.pcbs[index].lost > 0)
        {
            (timer, deadline) = (RetransmitTimer::Pacing, until);
        }
        let pcb = &mut self.pcbs[index];
        pcb.timer_raw = timer as u8;
        pcb.retransmit_at = deadline;
    }

    fn choose_timer(&self, now: Instant, index: u32) -> (RetransmitTimer, Instant) {
        let pcb = &self.pcbs[index];
        if pcb.state() == State::Closed {
            return (RetransmitTimer::Off, Instant::NEVER);
        }
        if pcb.outstanding() == 0 && pcb.has(flag::SYN_PENDING) {
            // The first SYN has not left yet.
            return (RetransmitTimer::Timeout, self.timeout_anew(now, index));
        }
        if pcb.outstanding() == 0 && !pcb.has_syn_apart() {
            if !waits_to_send(pcb) {
                return (RetransmitTimer::Off, Instant::NEVER);
            }
            let (timer, span_ns) = if is_corked(pcb) {
                (RetransmitTimer::Cork, CORK_NS)
            } else {
                (RetransmitTimer::Persist, self.timeout_ns(index))
            };
            let runs = pcb.timer() == timer && pcb.retransmit_at.is_set();
            let deadline = if runs {
                pcb.retransmit_at
            } else {
                now.plus_nanos(span_ns)
            };
            return (timer, deadline);
        }
        //= RFC 6298 §5.3 (an acknowledgement of new data restarts the timer)
        let base = pcb.waiting_since.min(now);
        //= RFC 8985 §7.3 (after a probe the timer runs anew)
        let sent = if pcb.sent_head == NONE || self.scoreboard.tail_probe_flies(pcb) || pcb.has_syn_apart() {
            pcb.last_sent
        } else {
            //= RFC 6298 §5.1 (it runs for the oldest segment, from when that was last sent)
            self.scoreboard[pcb.sent_head].xmit
        };
        let timeout_at = base.max(sent).plus_nanos(self.timeout_ns(index));
        if timeout_at <= now && matches!(pcb.timer(), RetransmitTimer::Off | RetransmitTimer::Timeout) {
            return (RetransmitTimer::Timeout, self.timeout_anew(now, index));
        }
        if timeout_at > now && pcb.wants_tail_probe() {
            //= RFC 8985 §7.2 (a probe never waits longer than the retransmission timeout)
            let at = base
                .max(pcb.last_sent)
                .plus_nanos(pcb.tail_probe_timeout_ns(&self.rto_bounds))
                .min(timeout_at);
            return (RetransmitTimer::TailProbe, at.max(now.plus_nanos(1)));
        }
        (RetransmitTimer::Timeout, timeout_at.max(now.plus_nanos(1)))
    }

    /// The timeout when there is no later transmission to run from. It runs from its last expiry,
    /// since the segment of that may still wait for the link. A timer that runs, or has expired and
    /// was not handled yet, stays.
    //= RFC 6298 §5.6 (start the timer, such that it expires after RTO seconds)
    fn timeout_anew(&self, now: Instant, index: u32) -> Instant {
        let pcb = &self.pcbs[index];
        if pcb.timer() == RetransmitTimer::Timeout {
            pcb.retransmit_at
        } else {
            now.plus_nanos(self.timeout_ns(index))
        }
    }

    /// Arms the wheel for the earliest deadline if it does not fire before.
    #[inline]
    pub(crate) fn rearm(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        let earliest = pcb
            .retransmit_at
            .min(pcb.ack_at)
            .min(pcb.life_at)
            .min(user_timeout_at(pcb));
        if earliest < pcb.wheel_at {
            pcb.wheel_at = earliest;
            self.wheel.schedule(index, earliest);
        }
    }
}

impl Pcb {
    /// Arms the keepalive timer if the program wants it.
    pub(crate) fn start_keepalive(&mut self, now: Instant) {
        if self.settings.has(setting::KEEPALIVE) && self.state().is_synchronized() {
            let idle_until = self.last_received + self.settings.keepalive_idle();
            self.life_at = idle_until.max(now.plus_nanos(1));
        }
    }

    //= RFC 8985 §7.2 (when to schedule a tail loss probe)
    fn wants_tail_probe(&self) -> bool {
        self.has(flag::SACK)
            && self.repair() == Repair::Open
            && self.state().is_synchronized()
            && self.sacked == 0
            && self.backoff == 0
            && self.rtt.has_sample()
            && !self.has(flag::TAIL_PROBE_OUT | flag::TAIL_PROBE)
            && self.sent_head != NONE
    }

    //= RFC 8985 §7.2 (PTO: two round trips, plus the peer's delay if one segment is in flight)
    fn tail_probe_timeout_ns(&self, bounds: &RtoBounds) -> u64 {
        let two_trips = self.rtt.srtt_ns().saturating_mul(2);
        let single = self.outstanding() <= u32::from(self.mss);
        two_trips + if single { bounds.min_ns } else { PROBE_SLACK_NS }
    }
}

/// Number of a thin stream's timeouts without backoff, if its program has asked for that, as on
/// Linux.
const THIN_AT_ONCE: u8 = 6;

/// A thin stream has fewer segments than this in flight.
const THIN: u32 = 4;

/// The retransmission timeout of a connection whose program has changed its bounds.
#[cold]
fn tuned_timeout_ns(pcb: &Pcb, tuning: &Tuning, bounds: &RtoBounds, backoff: u8) -> u64 {
    let mut bounds = *bounds;
    if tuning.rto_min_us > 0 {
        bounds.min_ns = u64::from(tuning.rto_min_us) * 1000;
    }
    if tuning.rto_max_ms > 0 {
        bounds.max_ns = u64::from(tuning.rto_max_ms) * 1_000_000;
    }
    let is_thin = tuning.thin_linear != 0
        && pcb.state() == State::Established
        && pcb.outstanding() < THIN * u32::from(pcb.mss.max(1))
        && backoff <= THIN_AT_ONCE;
    pcb.rtt.rto(&bounds, if is_thin { 0 } else { backoff })
}

/// The time at which data, a SYN or a FIN will have waited for as long as the user timeout. Every
/// acknowledgement of new data restarts the wait.
//= RFC 5482 §1 (how long transmitted data may stay unacknowledged before the connection is closed)
#[inline]
pub(crate) fn user_timeout_at(pcb: &Pcb) -> Instant {
    let span_ms = u64::from(pcb.settings.user_timeout_ms);
    if span_ms == 0 || !pcb.waiting_since.is_set() || pcb.state() == State::Closed {
        return Instant::NEVER;
    }
    pcb.waiting_since.plus_nanos(span_ms * 1_000_000)
}

/// Whether only the program's cork, or its announcement of more data, delays queued data while no
/// data are in flight.
fn is_corked(pcb: &Pcb) -> bool {
    let unsent = pcb.unsent();
    pcb.settings.has(setting::CORK | setting::MORE_ANNOUNCED)
        && !pcb.has(flag::FIN_QUEUED)
        && unsent < u32::from(pcb.mss)
        && unsent <= pcb.snd_wnd
}

pub(super) fn fin_unsent(pcb: &Pcb) -> bool {
    pcb.has(flag::FIN_QUEUED) && !pcb.has(flag::FIN_SENT)
}

/// Whether no data are in flight or waiting: the usual case after an acknowledgement.
#[inline]
fn is_at_rest(pcb: &Pcb) -> bool {
    pcb.state_raw == State::Established as u8
        && pcb.snd_una == pcb.snd_nxt
        && pcb.send_queue.is_empty()
        && !pcb.has(flag::SYN_PENDING | flag::FIN_QUEUED)
        && !pcb.is_fast_open()
}

/// Whether there are data that were never sent.
pub(super) fn waits_to_send(pcb: &Pcb) -> bool {
    pcb.state().may_transmit() && (pcb.unsent() > 0 || fin_unsent(pcb))
}
