//! The state machine of an endpoint: matching and flows tied together.
//!
//! [`EndpointState`] has no clock, no thread and no I/O. Its driver calls, in any order:
//!
//! ```text
//! handle_frame(now, origin, packet, memory)   a packet came from the link
//! handle_timeout(now)                         poll_timeout() has passed
//! send, post, cancel, peek, claim, …          a program's calls; none of them waits
//! poll_transmit(now, memory, sink)            gives what can be sent now to the link
//! next_completion()                           what the program learns
//! ```
//!
//! After any call that takes `now`, call `poll_transmit` and look at `poll_timeout` again.

mod arrive;
mod completion;
mod config;
mod entry;
mod finish;
mod input;
mod output;
mod packets;
mod place;
mod post;
mod rendezvous;
mod submit;
mod timers;

pub use completion::{CompletedOperation, Completion, CompletionError};
pub use config::{EndpointConfig, MOST_EAGER_LEN, MOST_INJECT_LEN, MOST_MESSAGE_LEN};
pub use entry::ProgramBuffer;
pub use post::{ClaimedMessage, PeekedMessage, PostError};
pub use submit::{OutgoingMessage, SubmitError};

use crate::counters::MessageCounters;
use crate::entries::{Entries, EntryId};
use crate::links::Links;
use crate::matching::{Matcher, SourceId};
use crate::moment::Moment;
use crate::names::{FlowId, FlowKind, MessageKind, ReceiveId, ReceiveKind, SendId, SendKind};
use crate::payload::PayloadPool;
use crate::rmpp::credit::{FIRST_GRANT, GrantBudget};
use crate::rmpp::flow::{FlowPath, MessageFlow};
use crate::rmpp::sent::SentBody;
use crate::rmpp::tombstones::Tombstones;
use entry::{MessageEntry, ReceiveEntry, SendEntry};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use toehold_wire::Mac;
use toehold_wire::rmpp::Lives;

/// Most RESET packets that wait for the link. Further ones are left out: the peer asks
/// again.
const MOST_RESETS: usize = 64;

/// Longest packet that a HELLO tries, in bytes.
const MOST_HELLO_LEN: usize = 1 << 16;

/// Copies between an endpoint and the memory of its program.
pub trait ProgramMemory {
    /// Reads the buffer's bytes from `offset` on into `into`. Returns `false` if they cannot
    /// be read.
    fn fetch(&mut self, buffer: ProgramBuffer, offset: u64, into: &mut [u8]) -> bool;

    /// Writes `bytes` into the buffer from `offset` on. Returns `false` if they cannot be
    /// written.
    fn place(&mut self, buffer: ProgramBuffer, offset: u64, bytes: &[u8]) -> bool;
}

/// A link has no room for another packet now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the link is full")]
pub struct SinkFull;

/// Takes an endpoint's packets.
pub trait PacketSink {
    /// Takes a packet for a hardware address. The packet is the concatenation of its
    /// segments: headers, message bytes, and what follows.
    ///
    /// # Errors
    ///
    /// [`SinkFull`]; the endpoint offers the packet again.
    fn transmit(&mut self, to: Mac, segments: [&[u8]; 3]) -> Result<(), SinkFull>;
}

/// Where a received packet came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PacketOrigin {
    /// The sender's hardware address.
    pub mac: Mac,
    /// What lies between the sender and this endpoint.
    pub path: FlowPath,
}

/// A peer cannot be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The table of flows is full.
    #[error("too many peers")]
    TooManyFlows,
    /// That life of the peer has ended.
    #[error("that life of the peer has ended")]
    Ended,
}

/// Names an entry whose completion the program has not taken.
#[derive(Debug, Clone, Copy)]
enum CompleteEntry {
    Send(SendId),
    Receive(ReceiveId),
}

/// An endpoint.
#[derive(Debug)]
pub struct EndpointState {
    config: EndpointConfig,
    own: FlowId,
    flows: Entries<FlowKind, MessageFlow>,
    /// Flows by address and check. Two lives with one check exclude each other.
    by_check: BTreeMap<(Mac, u32), FlowId>,
    /// Flows that peers began.
    accepted: u32,
    budget: GrantBudget,
    tombstones: Tombstones,
    /// Flows with something to send, each once.
    busy: VecDeque<FlowId>,
    deadlines: BTreeSet<(Moment, u32)>,
    resets: VecDeque<(Mac, u32)>,

    matcher: Matcher,
    sends: Entries<SendKind, SendEntry>,
    receives: Entries<ReceiveKind, ReceiveEntry>,
    messages: Entries<MessageKind, MessageEntry>,
    /// Lists of sends: a flow's waiting and serving ones.
    send_links: Links,
    /// Lists of messages: a flow's pulling and finishing ones.
    message_links: Links,
    payload: PayloadPool,
    /// Completions in order. Each keeps its entry, so the tables bound them.
    complete: VecDeque<CompleteEntry>,
    counters: MessageCounters,
    /// The message bytes of the packet that is being built.
    scratch: Vec<u8>,
    /// The packets that an acknowledgement has freed.
    acknowledged: Vec<SentBody>,
}

impl EndpointState {
    /// Creates an endpoint without peers. Its first flow is the one to itself.
    #[must_use]
    pub fn new(mut config: EndpointConfig) -> Self {
        config.hello_len = config.hello_len.min(MOST_HELLO_LEN);
        let flows_most = config.flows.max(1);
        let units = config.units.max(flows_most.saturating_mul(FIRST_GRANT));
        let mut flows = Entries::new(flows_most);
        let own_lives = Lives {
            sender: config.incarnation,
            receiver: config.incarnation,
        };
        let own = MessageFlow::new(config.mac, FlowPath::Own, own_lives, config.packet_len);
        Self {
            own: flows.insert(own).unwrap_or(EntryId::from_bits(0)),
            flows,
            by_check: BTreeMap::new(),
            accepted: 0,
            budget: GrantBudget::new(units, flows_most),
            tombstones: Tombstones::new(config.tombstones),
            busy: VecDeque::new(),
            deadlines: BTreeSet::new(),
            resets: VecDeque::new(),
            matcher: Matcher::new(config.strategy, config.secret),
            sends: Entries::new(config.sends),
            receives: Entries::new(config.receives),
            // What was granted always has a place, and so has what is sent to oneself.
            messages: Entries::new(units.saturating_add(config.sends)),
            send_links: Links::default(),
            message_links: Links::default(),
            payload: PayloadPool::new(config.spare_blocks),
            complete: VecDeque::new(),
            counters: MessageCounters::default(),
            scratch: Vec::new(),
            acknowledged: Vec::new(),
            config,
        }
    }

    /// Returns the flow from this endpoint to itself.
    #[must_use]
    pub fn own_flow(&self) -> FlowId {
        self.own
    }

    /// Returns the flow to a life of a peer, and begins it if there is none. Nothing is
    /// sent.
    ///
    /// # Errors
    ///
    /// [`PeerError::TooManyFlows`]; [`PeerError::Ended`] if a flow of these lives has
    /// ended lately.
    pub fn connect(
        &mut self,
        now: Moment,
        peer: Mac,
        incarnation: u64,
        path: FlowPath,
    ) -> Result<FlowId, PeerError> {
        let lives = Lives {
            sender: self.config.incarnation,
            receiver: incarnation,
        };
        if (peer, incarnation) == (self.config.mac, self.config.incarnation) {
            return Ok(self.own);
        }
        if let Some(known) = self.by_check.get(&(peer, lives.check())) {
            return Ok(*known);
        }
        if self.tombstones.contains(incarnation, now) {
            return Err(PeerError::Ended);
        }
        self.open_flow(peer, path, lives).ok_or(PeerError::TooManyFlows)
    }

    fn open_flow(&mut self, peer: Mac, path: FlowPath, lives: Lives) -> Option<FlowId> {
        let packet_len = match path {
            FlowPath::Lossy => self.config.packet_len,
            _ => usize::MAX,
        };
        let Some(flow) = self.flows.insert(MessageFlow::new(peer, path, lives, packet_len)) else {
            self.counters.refused_flows += 1;
            return None;
        };
        self.by_check.insert((peer, lives.check()), flow);
        self.counters.flows_opened += 1;
        Some(flow)
    }

    /// Returns the address and the incarnation of a flow's peer, while the flow is known.
    #[must_use]
    pub fn peer(&self, flow: FlowId) -> Option<(Mac, u64)> {
        let flow = self.flows.get(flow)?;
        Some((flow.peer, flow.lives.receiver))
    }

    /// Returns the completion of the operation that ended first, and forgets the operation.
    pub fn next_completion(&mut self) -> Option<Completion> {
        while let Some(entry) = self.complete.pop_front() {
            let completion = match entry {
                CompleteEntry::Send(send) => self.sends.remove(send).and_then(|send| match send.stage {
                    entry::SendStage::Complete(completion) => Some(completion),
                    _ => None,
                }),
                CompleteEntry::Receive(receive) => {
                    self.receives
                        .remove(receive)
                        .and_then(|receive| match receive.stage {
                            entry::ReceiveStage::Complete(completion) => Some(completion),
                            _ => None,
                        })
                }
            };
            if completion.is_some() {
                return completion;
            }
        }
        None
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> MessageCounters {
        self.counters
    }

    /// Returns the number of unexpected messages and of posted receives.
    #[must_use]
    pub fn queue_depths(&self) -> (u32, u32) {
        (self.matcher.unexpected(), self.matcher.posted())
    }

    /// Returns `true` if nothing is kept for any operation: all tables are empty, all
    /// payload blocks free, and each packet is acknowledged.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_flow_idle = |flow: FlowId| {
            let flow = self.flows.get(flow);
            flow.is_none_or(|flow| flow.sent.is_empty() && flow.grants.outstanding() == 0)
        };
        self.sends.len() == 0
            && self.receives.len() == 0
            && self.messages.len() == 0
            && self.payload.spare_used() == 0
            && self.flows.ids().all(is_flow_idle)
    }

    /// Puts a flow into the list of flows with something to send.
    fn wake(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(id)
            && !flow.is_busy
            && flow.path != FlowPath::Own
        {
            flow.is_busy = true;
            self.busy.push_back(id);
        }
    }
}

/// The source under which messages of a flow are matched.
fn source(flow: FlowId) -> SourceId {
    SourceId(flow.to_bits())
}
