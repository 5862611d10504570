//! Timers of neighbours: requests, probes, failure.

use super::record::{FAILED, QUIET, RESOLVED, Reachability, TIMED};
use super::{Neighbors, Question};
use crate::counters::Counters;
use crate::ip::state::{Context, State};
use crate::time::Instant;
use Reachability::{Delay, Failed, Incomplete, Probe, Reachable, Stale};
use toehold_shm::NONE;

pub(super) const SECOND: u64 = 1_000_000_000;

/// Time between two requests to the same neighbour.
//= RFC 1122 §2.3.2.1
//= RFC 4861 §10
const RETRANS_TIMER: u64 = SECOND;
//= RFC 4861 §10
const MAX_MULTICAST_SOLICIT: u8 = 3;
//= RFC 4861 §10
const MAX_UNICAST_SOLICIT: u8 = 3;
//= RFC 4861 §10
const DELAY_FIRST_PROBE_TIME: u64 = 5 * SECOND;
//= RFC 4861 §10
pub(super) const BASE_REACHABLE_TIME: u64 = 30 * SECOND;
impl Neighbors {
    /// Moves a record into a state, even if it is in that state already.
    pub(super) fn enter(&mut self, now: Instant, neighbor: u32, next: Reachability, state: &mut State) {
        let span = match next {
            Incomplete | Probe => Some(RETRANS_TIMER),
            Reachable => Some(self.reachable_time),
            Delay => Some(DELAY_FIRST_PROBE_TIME),
            Stale | Failed => None,
        };
        let record = &mut self.records[neighbor];
        let before = record.state();
        record.deadline = span.map_or(Instant::NEVER, |span| now.plus_nanos(span));
        record.state = next as u8;
        if before != next {
            record.asked = 0;
        }
        state.wake_at(record.deadline);
        if before == Reachable && next == Stale {
            // Connections must ask for their path again, which starts the delay.
            state.paths_changed();
        }
        if before == Incomplete {
            self.tally[0].incomplete = self.tally[0].incomplete.wrapping_sub(1);
        }
        if next == Incomplete {
            self.tally[0].incomplete = self.tally[0].incomplete.wrapping_add(1);
        }
        self.states.remove(before as u32, neighbor);
        self.states.push_back(next as u32, neighbor);
    }

    pub(super) fn ask(&mut self, neighbor: u32) {
        let record = &mut self.records[neighbor];
        record.asked = record.asked.saturating_add(1);
        if record.question_due == 0 {
            record.question_due = 1;
            self.questions.push_back(0, neighbor);
        }
    }

    pub(super) fn tell(&mut self, neighbor: u32, event: u8) {
        let record = &mut self.records[neighbor];
        record.event = event;
        if record.event_listed == 0 {
            record.event_listed = 1;
            self.events.push_back(0, neighbor);
        }
    }

    /// Handles expired timers, and returns the time of the next one.
    pub(in super::super) fn handle_timeout(
        &mut self,
        cx: &mut Context<'_>,
        counters: &mut Counters,
    ) -> Instant {
        let mut next = Instant::NEVER;
        for list in TIMED {
            loop {
                let first = self.states.front(list as u32);
                if first == NONE {
                    break;
                }
                let deadline = self.records[first].deadline;
                if deadline > cx.now {
                    next = next.min(deadline);
                    break;
                }
                self.expire(cx, first, counters);
            }
        }
        next
    }

    /// Handles the end of a record's time in its state.
    fn expire(&mut self, cx: &mut Context<'_>, neighbor: u32, counters: &mut Counters) {
        let record = &self.records[neighbor];
        let (current, asked) = (record.state(), record.asked);
        match current {
            //= RFC 4861 §7.3.3
            Reachable => self.enter(cx.now, neighbor, Stale, cx.state),
            //= RFC 4861 §7.3.3
            Delay => {
                self.enter(cx.now, neighbor, Probe, cx.state);
                self.ask(neighbor);
            }
            //= RFC 4861 §7.2.2
            Incomplete if asked < MAX_MULTICAST_SOLICIT => {
                self.enter(cx.now, neighbor, Incomplete, cx.state);
                self.ask(neighbor);
            }
            //= RFC 4861 §7.3.3
            Probe if asked < MAX_UNICAST_SOLICIT => {
                self.enter(cx.now, neighbor, Probe, cx.state);
                self.ask(neighbor);
            }
            _ => self.fail(cx, neighbor, counters),
        }
    }

    /// Gives up an address that does not answer, with the connections that wait for it.
    pub(super) fn fail(&mut self, cx: &mut Context<'_>, neighbor: u32, counters: &mut Counters) {
        if self.records[neighbor].has_hardware_address() {
            cx.state.paths_changed();
        }
        self.enter(cx.now, neighbor, Failed, cx.state);
        while cx.packets.drop_waiting(neighbor) {
            counters.drop_unresolved += 1;
        }
        self.tell(neighbor, FAILED);
    }

    /// The first request that is due, if any. It stays due until [`Neighbors::question_asked`].
    pub(in super::super) fn next_question(&mut self) -> Option<Question> {
        loop {
            let neighbor = self.questions.front(0);
            if neighbor == NONE {
                return None;
            }
            let record = &self.records[neighbor];
            let mac = match record.state() {
                Incomplete => None,
                Probe => Some(record.mac),
                // The answer arrived before the request left.
                _ => {
                    self.question_asked(neighbor);
                    continue;
                }
            };
            return Some(Question {
                neighbor,
                target: record.address,
                mac,
            });
        }
    }

    /// Whether a request is due.
    #[inline]
    pub(in super::super) fn has_questions(&self) -> bool {
        self.questions.front(0) != NONE
    }

    /// Moves a due request to the end, since the link had no room for it.
    pub(in super::super) fn question_refused(&mut self, neighbor: u32) {
        self.questions.remove(0, neighbor);
        self.questions.push_back(0, neighbor);
    }

    pub(in super::super) fn question_asked(&mut self, neighbor: u32) {
        self.questions.remove(0, neighbor);
        self.records[neighbor].question_due = 0;
    }

    /// The next neighbour that TCP waits for, with `true` if it has answered.
    #[inline]
    pub(in super::super) fn next_event(&mut self) -> Option<(u32, bool)> {
        if self.events.front(0) == NONE {
            None
        } else {
            self.take_event()
        }
    }

    fn take_event(&mut self) -> Option<(u32, bool)> {
        while let Some(neighbor) = self.events.pop_front(0) {
            let record = &mut self.records[neighbor];
            let event = core::mem::replace(&mut record.event, QUIET);
            record.event_listed = 0;
            if event != QUIET && record.waiting_head != NONE {
                return Some((neighbor, event == RESOLVED));
            }
        }
        None
    }
}
