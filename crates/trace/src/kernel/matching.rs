//! Which events belong to one message.

use super::event::{KernelEvent, KernelEventKind as Kind};
use super::stages::{KernelEdge, KernelStage};
use serde::{Deserialize, Serialize};

/// Bytes of headers that a frame with a message has at least: IP and TCP without options.
const LEAST_HEADERS: u32 = 40;

/// A message's way through the kernel: the ticks at each edge that it passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "SavedMessage", from = "SavedMessage")]
pub struct KernelMessage {
    /// The sender, as an index of the matcher's threads.
    pub sender: usize,
    ticks: [Option<u64>; KernelEdge::COUNT],
}

impl KernelMessage {
    /// A message by its ticks at each edge.
    pub fn of(sender: usize, ticks: [Option<u64>; KernelEdge::COUNT]) -> Self {
        Self { sender, ticks }
    }

    /// The ticks at an edge; `None` if the message did not pass it.
    pub fn at(&self, edge: KernelEdge) -> Option<u64> {
        self.ticks[edge.index()]
    }

    /// The time of each stage in ticks, 0 for a stage that did not happen.
    ///
    /// Each stage lasts until the next edge that was passed. So the stages add up to
    /// [`KernelMessage::total_ticks`].
    pub fn stage_ticks(&self) -> [u64; KernelStage::COUNT] {
        let mut stages = [0_u64; KernelStage::COUNT];
        let sleeps = self.at(KernelEdge::Waking).is_some();
        let passed = KernelEdge::ALL
            .iter()
            .filter_map(|edge| Some((*edge, self.at(*edge)?)));
        let mut before: Option<(KernelEdge, u64)> = None;
        for (edge, ticks) in passed {
            if let Some((from, began)) = before
                && let Some(stage) = KernelStage::from_edge(from, sleeps)
            {
                stages[stage.index()] += ticks.saturating_sub(began);
            }
            before = Some((edge, ticks));
        }
        stages
    }

    /// From the entry of the send to the entry of the answer's send, in ticks.
    pub fn total_ticks(&self) -> u64 {
        let ticks = |edge| self.at(edge).unwrap_or(0);
        ticks(KernelEdge::NextSend).saturating_sub(ticks(KernelEdge::SendEntered))
    }

    /// The first edge that is missing.
    fn missing(&self) -> Option<KernelEdge> {
        let mut edges = KernelEdge::ALL.into_iter();
        edges.find(|edge| !edge.is_optional() && self.at(*edge).is_none())
    }

    fn is_ordered(&self) -> bool {
        self.ticks.iter().flatten().is_sorted()
    }
}

/// A message as it is saved: the sender, the ticks of the first edge, and those from each passed
/// edge to the next. Whole ticks would take three times the room.
#[derive(Serialize, Deserialize)]
struct SavedMessage(usize, u64, [Option<i64>; KernelEdge::COUNT]);

impl From<KernelMessage> for SavedMessage {
    fn from(message: KernelMessage) -> Self {
        let first = message.ticks.iter().flatten().next().copied().unwrap_or(0);
        let mut before = first;
        let steps = message.ticks.map(|ticks| {
            let ticks = ticks?;
            let step = ticks.wrapping_sub(before) as i64;
            before = ticks;
            Some(step)
        });
        Self(message.sender, first, steps)
    }
}

impl From<SavedMessage> for KernelMessage {
    fn from(SavedMessage(sender, first, steps): SavedMessage) -> Self {
        let mut at = first;
        let ticks = steps.map(|step| {
            at = at.wrapping_add(step? as u64);
            Some(at)
        });
        Self { sender, ticks }
    }
}

/// Messages that were left out, by the reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelMismatches {
    /// An edge was missing: the first one, by its index. Another thread may have done the work.
    pub missing: [u64; KernelEdge::COUNT],
    /// The edges were not in order, so the processors' clocks differ or events are wrong.
    pub disordered: u64,
    /// The segment, or what the receiver got, had another length than the messages.
    pub other_length: u64,
}

impl KernelMismatches {
    /// All messages that were left out.
    pub fn total(&self) -> u64 {
        let missing: u64 = self.missing.iter().sum();
        missing + self.disordered + self.other_length
    }

    /// Adds the counts of another block.
    pub fn join(&mut self, other: &Self) {
        let counts = self.missing.iter_mut().zip(other.missing);
        counts.for_each(|(count, more)| *count += more);
        self.disordered += other.disordered;
        self.other_length += other.other_length;
    }
}

/// Matches the events of a ping-pong, in the order of their ticks.
///
/// One message is on its way at any time. So memory is that of the messages found.
#[derive(Debug, Clone)]
pub struct KernelMatcher {
    threads: [u32; 2],
    bytes: u32,
    open: Option<OpenMessage>,
    found: Vec<KernelMessage>,
    mismatches: KernelMismatches,
}

impl KernelMatcher {
    /// A matcher for two threads and messages of one length, in bytes.
    pub fn new(threads: [u32; 2], bytes: u32) -> Self {
        Self {
            threads,
            bytes,
            open: None,
            found: Vec::new(),
            mismatches: KernelMismatches::default(),
        }
    }

    /// Takes the next event.
    pub fn add(&mut self, event: &KernelEvent) {
        if event.kind != Kind::SendEntered {
            if let Some(open) = &mut self.open {
                open.note(event, self.bytes);
            }
            return;
        }
        let Some(sender) = self.threads.iter().position(|thread| *thread == event.thread) else {
            return;
        };
        if let Some(mut open) = self.open.take() {
            if open.receiver == event.thread {
                open.set(KernelEdge::NextSend, event.ticks);
            }
            self.finish(&open);
        }
        let mut open = OpenMessage::new(sender, self.threads);
        open.set(KernelEdge::SendEntered, event.ticks);
        self.open = Some(open);
    }

    /// The messages found, and the counts of the others. The last message has no answer and counts
    /// as neither.
    pub fn finished(self) -> (Vec<KernelMessage>, KernelMismatches) {
        (self.found, self.mismatches)
    }

    fn finish(&mut self, open: &OpenMessage) {
        let message = open.message;
        if open.has_other_length {
            self.mismatches.other_length += 1;
        } else if let Some(edge) = message.missing() {
            self.mismatches.missing[edge.index()] += 1;
        } else if !message.is_ordered() {
            self.mismatches.disordered += 1;
        } else {
            self.found.push(message);
        }
    }
}

/// A message on its way.
#[derive(Debug, Clone)]
struct OpenMessage {
    message: KernelMessage,
    sender: u32,
    receiver: u32,
    skb: Option<u64>,
    /// The processor of the backlog.
    cpu: u16,
    has_other_length: bool,
}

impl OpenMessage {
    fn new(sender: usize, threads: [u32; 2]) -> Self {
        Self {
            message: KernelMessage {
                sender,
                ticks: [None; KernelEdge::COUNT],
            },
            sender: threads[sender],
            receiver: threads[1 - sender],
            skb: None,
            cpu: 0,
            has_other_length: false,
        }
    }

    fn set(&mut self, edge: KernelEdge, ticks: u64) {
        self.message.ticks[edge.index()] = Some(ticks);
    }

    /// Sets an edge that was not passed yet, if the edge before was.
    fn pass(&mut self, edge: KernelEdge, behind: KernelEdge, ticks: u64) -> bool {
        let is_next = self.message.at(behind).is_some() && self.message.at(edge).is_none();
        if is_next {
            self.set(edge, ticks);
        }
        is_next
    }

    fn note(&mut self, event: &KernelEvent, bytes: u32) {
        use KernelEdge as Edge;
        let ticks = event.ticks;
        let is_woken = self.message.at(Edge::Woken).is_some();
        let is_copied = self.message.at(Edge::Copied).is_some();
        let is_own = |skb: u64| self.skb == Some(skb);
        match event.kind {
            Kind::Queued { skb, len } => {
                let is_data = event.thread == self.sender && len >= bytes.saturating_add(LEAST_HEADERS);
                if is_data && self.pass(Edge::Queued, Edge::SendEntered, ticks) {
                    self.skb = Some(skb);
                }
            }
            Kind::TransmitStarted { skb } if is_own(skb) => {
                self.pass(Edge::TransmitStarted, Edge::Queued, ticks);
            }
            Kind::Looped { skb } if is_own(skb) => {
                let is_next = self.pass(Edge::Looped, Edge::TransmitStarted, ticks);
                if is_next {
                    self.cpu = event.cpu;
                }
            }
            Kind::SoftirqEntered if event.cpu == self.cpu => {
                self.pass(Edge::SoftirqEntered, Edge::Looped, ticks);
            }
            Kind::Received { skb } if is_own(skb) => {
                self.pass(Edge::Received, Edge::SoftirqEntered, ticks);
            }
            Kind::TcpProbed { skb, bytes: found } if is_own(skb) => {
                let is_next = self.pass(Edge::TcpProbed, Edge::Received, ticks);
                if is_next {
                    self.has_other_length |= found != bytes;
                    self.cpu = event.cpu;
                }
            }
            Kind::DataReady if event.cpu == self.cpu => {
                self.pass(Edge::DataReady, Edge::TcpProbed, ticks);
            }
            Kind::Waking { thread } if thread == self.receiver && !is_copied => {
                self.pass(Edge::Waking, Edge::DataReady, ticks);
            }
            Kind::Woken { thread } if thread == self.receiver && !is_copied => {
                self.pass(Edge::Woken, Edge::Waking, ticks);
            }
            // A receiver that loses its processor again has its last turn counted.
            Kind::SwitchedTo { thread } if thread == self.receiver && is_woken && !is_copied => {
                self.set(Edge::SwitchedTo, ticks);
            }
            Kind::Copied { skb } if is_own(skb) => {
                self.pass(Edge::Copied, Edge::DataReady, ticks);
            }
            Kind::ReceiveExited { returned } if event.thread == self.receiver => {
                let is_next = self.pass(Edge::ReceiveExited, Edge::Copied, ticks);
                if is_next {
                    self.has_other_length |= returned != i64::from(bytes);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
