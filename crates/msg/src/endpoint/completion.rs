//! What a program learns of its operations.

use crate::names::FlowId;

/// The operation that a completion ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompletedOperation {
    /// A send.
    Send,
    /// A receive.
    Receive,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CompletionError {
    /// The buffer has the first bytes of a longer message.
    #[error("the message is longer than the buffer")]
    Truncated,
    /// The program cancelled the receive.
    #[error("cancelled")]
    Cancelled,
    /// The peer's life has ended, or does not know this one.
    #[error("the peer has gone")]
    PeerGone,
    /// The peer has not answered for too long.
    #[error("the peer does not answer")]
    PeerSilent,
    /// The peer has closed, or this endpoint has closed the flow.
    #[error("the flow is closed")]
    Closed,
    /// The program's memory could not be read or written.
    #[error("the buffer cannot be accessed")]
    MemoryFault,
}

/// The end of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The operation.
    pub operation: CompletedOperation,
    /// The word that the program gave with the operation.
    pub context: u64,
    /// Whether the operation succeeded.
    pub result: Result<(), CompletionError>,
    /// Length of the message in bytes; 0 if a receive got none.
    pub len: u64,
    /// Bytes of the message that are in the receive's buffer; for a send its length.
    pub placed: u64,
    /// The message's tag; 0 if it has none.
    pub tag: u64,
    /// The flow of the message. For a receive without a message, `None`.
    pub flow: Option<FlowId>,
    /// The sender's eight bytes, if it gave some.
    pub data: Option<u64>,
}
