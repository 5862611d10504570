//! Deadlines of flows.

use super::{CompletionError, EndpointState};
use crate::moment::Moment;
use crate::names::FlowId;
use toehold_wire::rmpp::MissingRange;

impl EndpointState {
    /// Returns when [`EndpointState::handle_timeout`] is to be called; `None` if no timer
    /// runs.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Moment) {
        // A timer that runs sets the flow's next deadline behind `now`.
        while let Some((at, index)) = self.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop_first();
            if let Some(id) = self.flows.at(index) {
                self.run_timers(now, id);
            }
        }
    }

    fn run_timers(&mut self, now: Moment, id: FlowId) {
        let silence_ns = self.config.silence_ns;
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        flow.armed = Moment::NEVER;
        if flow.is_silent_for(now, silence_ns) {
            self.counters.flows_silent += 1;
            self.end_flow(now, id, CompletionError::PeerSilent);
            return;
        }
        flow.ack.pass(now);
        if flow.rto_at <= now {
            // The oldest packet alone is repeated; the rest waits for what comes back.
            self.counters.timeouts += 1;
            let (start, next) = (flow.sent.first(), flow.sent.next());
            flow.window.lose(start, next, flow.packet_len as u64);
            flow.sent.lose(MissingRange {
                start,
                end: start + 1,
            });
            flow.silent_until = Some(next);
            flow.round_trip.back_off();
            flow.rto_at = now.plus_ns(flow.round_trip.rto_ns());
        }
        if flow.nack_at <= now {
            flow.nack_at = Moment::NEVER;
            flow.due.nack = true;
        }
        if flow.probe_at <= now {
            flow.probe_at = Moment::NEVER;
            flow.due.probe = true;
            flow.round_trip.back_off();
        }
        self.touch(now, id);
    }

    /// Notes that a flow's state has changed: it may have something to send, and its
    /// deadline may be another.
    pub(super) fn touch(&mut self, now: Moment, id: FlowId) {
        self.wake(id);
        self.set_deadline(now, id);
    }

    pub(super) fn set_deadline(&mut self, now: Moment, id: FlowId) {
        let silence_ns = self.config.silence_ns;
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        flow.set_timers(now);
        let deadline = flow.deadline(silence_ns);
        if deadline == flow.armed {
            return;
        }
        if flow.armed != Moment::NEVER {
            self.deadlines.remove(&(flow.armed, id.index()));
        }
        if deadline != Moment::NEVER {
            self.deadlines.insert((deadline, id.index()));
        }
        flow.armed = deadline;
    }
}
