//! Reports this stack's groups to switches and routers. Without reports of the solicited-node
//! groups, a snooping switch does not forward neighbour solicitations.

use core::net::Ipv6Addr;

use super::Ip;
use super::addresses;
use super::egress::Message as Outgoing;
use super::ethernet::Arrival;
use crate::counters::Counters;
use crate::time::Instant;
use toehold_wire::mld::{self, Query, Version};
use toehold_wire::ndisc::solicited_node;
use toehold_wire::{ipv6, protocol};

/// The interval within which an unsolicited report is repeated.
//= RFC 3810 §9.11 (Unsolicited Report Interval)
const REPEAT_WITHIN_MS: u32 = 1000;

/// The kind of the report that is due, as stored in the state.
mod due {
    pub(super) const NOTHING: u32 = 0;
    /// New groups, in version 2.
    pub(super) const CHANGE: u32 = 1;
    /// The answer to a query of version 2.
    pub(super) const ANSWER_V2: u32 = 2;
    /// The answer to a query of version 1.
    pub(super) const ANSWER_V1: u32 = 3;
}

impl Ip {
    /// The groups that are reported; the all-nodes group never is.
    //= RFC 4861 §7.2.1 (a node joins the solicited-node groups of its addresses)
    //= RFC 3810 §6 (nothing is sent for the all-nodes group)
    fn groups(&self) -> Option<(Ipv6Addr, [Ipv6Addr; 2])> {
        let own = self.own.ipv6.filter(|_| self.link.ethernet)?;
        let groups = [own.address, own.link_local].map(solicited_node);
        Some((own.link_local, groups))
    }

    /// Reports the groups unsolicited, and once more soon.
    //= RFC 3810 §6.1
    pub(super) fn report_groups(&mut self, now: Instant, counters: &mut Counters) {
        self.transmit_report(now, due::CHANGE, counters);
        self.schedule_report(now, due::CHANGE, REPEAT_WITHIN_MS);
    }

    /// Handles a query of a router.
    //= RFC 3810 §6.2 (checks, and a random delay within what the query allows)
    pub(super) fn receive_query(
        &mut self,
        arrival: &Arrival<'_>,
        view: &ipv6::View<'_>,
        message: &[u8],
        counters: &mut Counters,
    ) {
        let is_valid = view.hop_limit() == mld::HOP_LIMIT
            && (view.src().segments()[0] & 0xffc0) == 0xfe80
            && view.next_header() == protocol::HOP_BY_HOP;
        let query = Query::parse(message).ok().flatten();
        let (Some(query), Some((_, groups)), true) = (query, self.groups(), is_valid) else {
            counters.drop_icmp += 1;
            return;
        };
        let concerns = query.group.is_none_or(|group| groups.contains(&group));
        if !concerns || !self.speaks {
            return;
        }
        let answer = match query.version {
            Version::V1 => due::ANSWER_V1,
            Version::V2 => due::ANSWER_V2,
        };
        self.schedule_report(arrival.now, answer, query.within_ms);
    }

    /// Schedules a report. An earlier report that is due already stays.
    fn schedule_report(&mut self, now: Instant, kind: u32, within_ms: u32) {
        let span_ns = u64::from(within_ms.min(600_000)) * 1_000_000;
        let state = &mut self.state[0];
        let due = now.plus_nanos(state.random() % span_ns.max(1));
        if state.report_kind == due::NOTHING || due < state.report_at {
            state.report_at = due;
            // A router of version 1 understands version 1 only.
            state.report_kind = state.report_kind.max(kind);
        }
        state.wake_at(state.report_at);
    }

    /// Sends the report that is due, and schedules the next one.
    pub(super) fn run_report(&mut self, now: Instant, counters: &mut Counters) -> Instant {
        let state = &mut self.state[0];
        if state.report_kind == due::NOTHING {
            return Instant::NEVER;
        }
        if state.report_at > now {
            return state.report_at;
        }
        let kind = core::mem::replace(&mut state.report_kind, due::NOTHING);
        self.transmit_report(now, kind, counters);
        Instant::NEVER
    }

    fn transmit_report(&mut self, now: Instant, kind: u32, counters: &mut Counters) {
        let Some((source, groups)) = self.groups() else {
            return;
        };
        let mut buffer = [0; mld::MAX_LEN];
        let is_one = groups[0] == groups[1];
        let groups = &groups[usize::from(is_one)..];
        if kind == due::ANSWER_V1 {
            for &group in groups {
                let len = mld::emit_report_v1(source, group, &mut buffer);
                self.send_report(now, (source, group), &buffer[..len], counters);
            }
        } else {
            let len = mld::emit_report(source, groups, kind == due::CHANGE, &mut buffer);
            self.send_report(now, (source, mld::ROUTERS), &buffer[..len], counters);
        }
    }

    fn send_report(
        &mut self,
        now: Instant,
        (source, destination): (Ipv6Addr, Ipv6Addr),
        payload: &[u8],
        counters: &mut Counters,
    ) {
        let outgoing = Outgoing {
            source: addresses::from_v6(source),
            destination: addresses::from_v6(destination),
            protocol: protocol::HOP_BY_HOP,
            hop_limit: mld::HOP_LIMIT,
            tos: 0,
            payload,
        };
        self.send_message(now, &outgoing, counters);
    }
}
