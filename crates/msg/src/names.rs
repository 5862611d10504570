//! The names of an endpoint's entries.

use crate::entries::EntryId;

/// Marks names of flows.
#[derive(Debug)]
pub enum FlowKind {}
/// Marks names of sends.
#[derive(Debug)]
pub enum SendKind {}
/// Marks names of receives.
#[derive(Debug)]
pub enum ReceiveKind {}
/// Marks names of messages that have arrived.
#[derive(Debug)]
pub(crate) enum MessageKind {}

/// The name of a flow. It names one pair of lives, and no later one.
pub type FlowId = EntryId<FlowKind>;
/// The name of a send.
pub type SendId = EntryId<SendKind>;
/// The name of a posted receive.
pub type ReceiveId = EntryId<ReceiveKind>;
/// The name of a message that has arrived.
pub(crate) type MessageId = EntryId<MessageKind>;
