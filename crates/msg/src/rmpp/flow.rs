//! A flow: the packets between two lives, in both directions.

use super::acknowledge::AckSchedule;
use super::credit::{ReceiveCredit, SendCredit};
use super::early::EarlyFrames;
use super::round_trip::RoundTrip;
use super::sent::SentFrames;
use super::window::CongestionWindow;
use crate::links::ListEnds;
use crate::moment::Moment;
use crate::names::{MessageId, SendId};
use crate::payload::FillPoint;
use std::collections::BTreeMap;
use toehold_wire::Mac;
use toehold_wire::rmpp::{Lives, Seq};

/// Least time between probes of a flow that only waits, in nanoseconds.
const LEAST_PROBE_NS: u64 = 1_000_000_000;

/// What lies between the ends of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowPath {
    /// Both ends are this endpoint. No packet is sent.
    Own,
    /// A path that neither loses nor reorders packets: a message queue.
    Lossless,
    /// A path that may lose, repeat and reorder packets.
    Lossy,
}

/// The state of a flow's sending side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowLife {
    /// Nothing of the peer's life has come. Each packet shows both incarnations.
    Fresh,
    /// The peer has answered.
    Open,
    /// The flow has ended. Its whole messages may still be received.
    Gone,
}

/// Packets without a number that a flow has to send.
#[derive(Debug, Clone, Default)]
pub(crate) struct DuePackets {
    /// Name missing packets.
    pub(crate) nack: bool,
    /// Ask for an answer: a grant, or a RESET.
    pub(crate) probe: bool,
    /// Find out whether the path carries long packets.
    pub(crate) hello: bool,
    /// Answer a HELLO of this length.
    pub(crate) hello_answer: Option<u32>,
}

/// How far an orderly end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClosePhase {
    /// Nothing ends.
    None,
    /// A BYE goes behind all messages.
    Wanted,
    /// The BYE is sent.
    Sent,
    /// The peer's BYE has come. The flow ends with its acknowledgement.
    Heard,
}

/// A flow, by which a program names a peer's life.
#[derive(Debug)]
pub(crate) struct MessageFlow {
    pub(crate) peer: Mac,
    pub(crate) path: FlowPath,
    pub(crate) lives: Lives,
    pub(crate) check: u32,
    pub(crate) life: FlowLife,
    pub(crate) closing: ClosePhase,
    /// Whether the peer began the flow.
    pub(crate) is_accepted: bool,

    pub(crate) sent: SentFrames,
    /// Set by a timeout: packets before this number are sent again once the peer answers.
    pub(crate) silent_until: Option<Seq>,
    pub(crate) send_credit: SendCredit,
    pub(crate) window: CongestionWindow,
    pub(crate) round_trip: RoundTrip,
    /// Longest packet of the path in bytes.
    pub(crate) packet_len: usize,
    /// Sends that are not wholly sent, in their order.
    pub(crate) waiting: ListEnds,
    /// Offered sends with ranges that the peer has asked for.
    pub(crate) serving: ListEnds,
    /// Sends that are sent and not complete.
    pub(crate) pending_sends: u32,
    /// Sends that wait for word of their placement, by their first packet's number.
    pub(crate) deliveries: BTreeMap<u32, SendId>,
    /// Whether the peer has been told that a send waits for a grant.
    pub(crate) has_asked: bool,

    pub(crate) early: EarlyFrames,
    pub(crate) grants: ReceiveCredit,
    pub(crate) fill: FillPoint,
    /// The message whose parts are arriving.
    pub(crate) assembling: Option<MessageId>,
    /// Offers with ranges to ask for.
    pub(crate) pulling: ListEnds,
    /// Messages for which a DONE is to be sent.
    pub(crate) finishing: ListEnds,
    /// Messages of this flow in the endpoint's table.
    pub(crate) messages: u32,
    /// Offers that are being received.
    pub(crate) receiving: u32,
    /// Posted receives for this flow alone.
    pub(crate) directed: u32,

    pub(crate) ack: AckSchedule,
    pub(crate) due: DuePackets,
    pub(crate) rto_at: Moment,
    pub(crate) nack_at: Moment,
    /// The number before which a NACK has named the gap.
    pub(crate) nacked: Option<Seq>,
    pub(crate) probe_at: Moment,
    /// Since when the flow has waited without hearing the peer.
    pub(crate) quiet_since: Moment,
    was_waiting: bool,
    /// The deadline that the endpoint has noted.
    pub(crate) armed: Moment,
    /// Whether the flow is in the endpoint's list of flows with something to send.
    pub(crate) is_busy: bool,
}

impl MessageFlow {
    pub(crate) fn new(peer: Mac, path: FlowPath, lives: Lives, packet_len: usize) -> Self {
        Self {
            peer,
            path,
            lives,
            check: lives.check(),
            life: FlowLife::Fresh,
            closing: ClosePhase::None,
            is_accepted: false,
            sent: SentFrames::new(),
            silent_until: None,
            send_credit: SendCredit::new(),
            window: CongestionWindow::new(),
            round_trip: RoundTrip::new(),
            packet_len,
            waiting: ListEnds::EMPTY,
            serving: ListEnds::EMPTY,
            pending_sends: 0,
            deliveries: BTreeMap::new(),
            has_asked: false,
            early: EarlyFrames::new(),
            grants: ReceiveCredit::new(),
            fill: FillPoint::NONE,
            assembling: None,
            pulling: ListEnds::EMPTY,
            finishing: ListEnds::EMPTY,
            messages: 0,
            receiving: 0,
            directed: 0,
            ack: AckSchedule::new(),
            due: DuePackets::default(),
            rto_at: Moment::NEVER,
            nack_at: Moment::NEVER,
            nacked: None,
            probe_at: Moment::NEVER,
            quiet_since: Moment::NEVER,
            was_waiting: false,
            armed: Moment::NEVER,
            is_busy: false,
        }
    }

    /// Whether packets may be lost, so that timers and repetitions are needed.
    pub(crate) fn is_lossy(&self) -> bool {
        self.path == FlowPath::Lossy
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.life == FlowLife::Gone
    }

    /// Whether anything of the program's or of a message depends on the peer's answer.
    fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
            || !self.waiting.is_empty()
            || self.pending_sends > 0
            || self.receiving > 0
            || self.directed > 0
            || self.assembling.is_some()
    }

    /// Whether another numbered packet may go now.
    pub(crate) fn has_send_room(&self) -> bool {
        !self.is_lossy()
            || (self.sent.has_room()
                && self.window.has_room(self.sent.under_way())
                && self.silent_until.is_none())
    }

    /// Notes a packet of the peer's. Returns `true` if it is the first one.
    pub(crate) fn hear(&mut self, now: Moment) -> bool {
        self.quiet_since = now;
        self.probe_at = Moment::NEVER;
        let is_first = self.life == FlowLife::Fresh;
        if is_first {
            self.life = FlowLife::Open;
        }
        is_first
    }

    /// Sets the timers that follow from the flow's state.
    pub(crate) fn set_timers(&mut self, now: Moment) {
        if !self.is_lossy() || self.is_gone() {
            return;
        }
        let is_waiting = self.is_waiting();
        if is_waiting && !self.was_waiting {
            self.quiet_since = now;
        }
        self.was_waiting = is_waiting;
        if self.sent.is_empty() {
            self.rto_at = Moment::NEVER;
        } else if self.rto_at == Moment::NEVER {
            self.rto_at = now.plus_ns(self.round_trip.rto_ns());
        }
        // A packet under way is repeated by its own timer, and needs no probe.
        if !is_waiting || !self.sent.is_empty() {
            self.probe_at = Moment::NEVER;
        } else if self.probe_at == Moment::NEVER {
            let rto_ns = self.round_trip.rto_ns();
            let least_ns = if self.has_asked { 0 } else { LEAST_PROBE_NS };
            self.probe_at = now.plus_ns(rto_ns.max(least_ns));
        }
        if !self.early.has_gap() {
            self.nack_at = Moment::NEVER;
        }
    }

    /// When the flow has to be looked at. `silence_ns` is how long a waiting flow may hear
    /// nothing.
    pub(crate) fn deadline(&self, silence_ns: Option<u64>) -> Moment {
        if !self.is_lossy() || self.is_gone() {
            return Moment::NEVER;
        }
        let end = match silence_ns {
            Some(span_ns) if self.was_waiting => self.quiet_since.plus_ns(span_ns),
            _ => Moment::NEVER,
        };
        [self.ack.at(), self.rto_at, self.nack_at, self.probe_at]
            .into_iter()
            .fold(end, Moment::min)
    }

    /// Whether the flow has waited longer than `silence_ns` without hearing the peer.
    pub(crate) fn is_silent_for(&self, now: Moment, silence_ns: Option<u64>) -> bool {
        self.was_waiting && silence_ns.is_some_and(|span_ns| now.ns_since(self.quiet_since) >= span_ns)
    }
}
