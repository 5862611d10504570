//! The entries of an endpoint's tables.

use super::completion::{Completion, CompletionError};
use crate::matching::{Selector, TagEnvelope};
use crate::names::{FlowId, ReceiveId, SendId};
use crate::payload::StoredBytes;

/// A place in a program's memory. The endpoint only passes it on to [`ProgramMemory`].
///
/// [`ProgramMemory`]: super::ProgramMemory
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ProgramBuffer {
    /// The address, or any other name that the program gives.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Bytes of a message that are in its own entry.
pub(crate) const SHORT_LEN: usize = 64;

/// Where the bytes of a send are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SendBytes {
    /// In the program's memory, until the send is complete.
    Program(ProgramBuffer),
    /// In the entry.
    Short([u8; SHORT_LEN]),
    /// In spare payload blocks.
    Stored(StoredBytes),
}

/// How far a send has come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SendStage {
    /// The send waits in its flow. Bytes before the offset are sent.
    Waiting { offset: u32 },
    /// All of the send's bytes are sent.
    Sent,
    /// The send is offered. The peer has asked for the bytes before `asked`; those before `served`
    /// are sent.
    Offered { sink: u64, served: u64, asked: u64 },
    /// The send's message waits unexpected at this endpoint itself.
    Own,
    /// The send is complete, and the program has not taken that.
    Complete(Completion),
}

/// A send, from its call until its completion is taken.
#[derive(Debug)]
pub(crate) struct SendEntry {
    pub(crate) flow: FlowId,
    pub(crate) tag: u64,
    pub(crate) is_tagged: bool,
    pub(crate) data: Option<u64>,
    pub(crate) context: u64,
    pub(crate) bytes: SendBytes,
    pub(crate) len: u64,
    /// Whether the program is told of the completion.
    pub(crate) is_reported: bool,
    /// Whether the peer is asked to tell of the placement.
    pub(crate) wants_delivery: bool,
    /// Whether the peer's DONE is awaited.
    pub(crate) wants_answer: bool,
    /// Unacknowledged packets that are built from this entry.
    pub(crate) unacknowledged: u32,
    pub(crate) stage: SendStage,
}

/// How far a receive has come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReceiveStage {
    /// The receive is posted and has no message.
    Posted,
    /// The receive's message is being placed.
    Placing,
    /// The receive is complete, and the program has not taken that.
    Complete(Completion),
}

/// A receive, from its call until its completion is taken.
#[derive(Debug)]
pub(crate) struct ReceiveEntry {
    pub(crate) selector: Selector,
    pub(crate) buffer: ProgramBuffer,
    pub(crate) context: u64,
    pub(crate) stage: ReceiveStage,
}

/// Where the bytes of a message are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MessageBytes {
    /// Nowhere yet, or placed already.
    None,
    /// In the entry.
    Short([u8; SHORT_LEN]),
    /// In payload blocks of the flow.
    Stored(StoredBytes),
    /// With the sender. Bytes before `pulled` are asked for.
    Offered { token: u64, pulled: u64 },
    /// With a send of this endpoint.
    Own(SendId),
}

/// How far a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageStage {
    /// In the queue of unexpected messages.
    Unexpected,
    /// Taken out of that queue by a claim.
    Claimed,
    /// The message has a receive.
    Matched(ReceiveId),
    /// The message's receive is complete, or it has none. Its flow has a DONE to send.
    Finishing { token: u64, is_delivery: bool },
    /// The program discarded it before all of it arrived.
    Dropped,
}

/// A message, from its arrival until its memory is free.
#[derive(Debug)]
pub(crate) struct MessageEntry {
    pub(crate) flow: FlowId,
    pub(crate) envelope: TagEnvelope,
    pub(crate) data: Option<u64>,
    pub(crate) len: u64,
    /// Bytes that have arrived.
    pub(crate) arrived: u64,
    /// Bytes of those that are placed in the receive's buffer.
    pub(crate) placed: u64,
    /// Units of the flow's grant that come back with this entry.
    pub(crate) units: u32,
    pub(crate) bytes: MessageBytes,
    pub(crate) stage: MessageStage,
    /// The number under which the sender wants to hear of the placement.
    pub(crate) delivery: Option<u32>,
    /// Why the receive will fail although the message goes on.
    pub(crate) fault: Option<CompletionError>,
    /// Whether the entry is in its flow's list of offers with ranges to ask for.
    pub(crate) is_pulling: bool,
}
