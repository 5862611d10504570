//! The messages on a control socket: one JSON object a packet.
//!
//! A client asks, the server answers, in turns. An answer that is longer than a packet comes as
//! [`Answer::InMemory`] with a sealed memory file that holds it. So the server keeps little for a
//! client that does not read.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::host::{CaptureRequest, CaptureSummary, Refusal};
use super::status::{Counter, NodeStatus, SocketStatus};
use crate::callers::Forwarded;
use crate::direct::BellsOf;
use crate::fabric::{NodeRecord, Right};
use crate::placement::Placement;

/// Version of these messages and of the memory that processes of a node share.
pub const VERSION: u32 = 20;

/// The build that a process and its node's engine must have in common: they
/// share memory, whose layout belongs to it.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");

/// Bytes of a packet, at most.
pub(super) const MAX_PACKET: usize = 8 << 10;

/// Descriptors that come with a packet, at most. They suffice for a node with as many shards as
/// there can be.
pub const MAX_DESCRIPTORS: usize = 128;

/// Holders made by one request, at most.
pub const MAX_HOLDERS: u16 = 32;

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    /// To be a process of the node, until it hangs up.
    Attach { version: u32, build: String },
    /// To be a process of the node, with all that the process which this one was forked from has of
    /// that life of the node.
    TakeOver { life: u64 },
    /// To get the descriptors of a peer of one of the shards.
    Peer { shard: u8, slot: u16, generation: u16 },
    /// To get the descriptors of a bank of direct connections.
    Bank { slot: u16, generation: u32 },
    /// To get the descriptors of a set of bells.
    Bells { which: BellsOf },
    /// To ring a waiter on a bell of a set.
    Ring { which: BellsOf, waiter: u16 },
    /// Holders for connections and listeners.
    Holders { count: u16 },
    /// To learn which of the holders the descriptor that comes along is.
    Identify,
    /// To keep the descriptor that comes along, a holder's, until the next request.
    Entrust,
    /// To get the holder that was entrusted, with a descriptor of its own, if no process has a copy
    /// of the former one any more.
    Inherit,
    /// To have the kernel beside the node leave a port to it, for the listener that a holder will
    /// stand for.
    TakePort {
        holder: u32,
        address: SocketAddr,
        only_ipv6: bool,
    },
    /// To give the kernel a port back.
    ReleasePort { holder: u32 },
    /// To carry the bytes between the connection that a holder stands for, and its descriptor.
    Relay { shard: u8, holder: u32 },
    /// To have the kernel signal the owner of a holder's connection when urgent data are announced.
    /// The owner is that of the first of the two Unix sockets that come along.
    Own { shard: u8, holder: u32 },
    /// To forward peers that connect to a holder's listener to the one of the kernel's that comes
    /// along. The table that comes with it gets their addresses.
    Forward { holder: u32, which: Forwarded },
    /// To last as long as the descriptor that comes along has another end, of a pair of Unix
    /// sockets. The node lets in clients that come by it. `inode` is the other end's, by which it
    /// is known in `/proc`.
    Keep { inode: u64 },
    /// To last as long as the process that asks lives.
    KeepForLife,
    /// To get the record of a node of the fabric, or of all of them.
    Names { node: Option<String> },
    /// To get the node's status.
    Status,
    /// To list the node's sockets.
    Sockets,
    /// To get the node's counters.
    Counters,
    /// To change the threads that run the stack.
    SetPlacement { placement: Placement },
    /// To record frames in the file that comes along, until the client says stop or hangs up.
    StartCapture { settings: CaptureRequest },
    /// To end the client's recording; again, until the file is complete.
    StopCapture,
    /// To end the node.
    Down,
}

impl Request {
    /// The right that a client must have to ask this.
    pub(super) fn right(&self) -> Right {
        match self {
            Request::Status | Request::Sockets | Request::Counters | Request::Names { .. } => Right::Read,
            Request::SetPlacement { .. }
            | Request::StartCapture { .. }
            | Request::StopCapture
            | Request::Down => Right::Operate,
            Request::Attach { .. }
            | Request::TakeOver { .. }
            | Request::Peer { .. }
            | Request::Bank { .. }
            | Request::Bells { .. }
            | Request::Ring { .. }
            | Request::Holders { .. }
            | Request::Identify
            | Request::Entrust
            | Request::Inherit
            | Request::TakePort { .. }
            | Request::ReleasePort { .. }
            | Request::Relay { .. }
            | Request::Own { .. }
            | Request::Forward { .. }
            | Request::Keep { .. }
            | Request::KeepForLife => Right::Attach,
        }
    }
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The request is refused.
    Refused(Refusal),
    /// The process has attached. The descriptors come along, and behind them the door, and a
    /// descriptor that is readable as long as something is to be closed.
    Attached {
        process: u16,
        description: serde_json::Value,
    },
    /// The process has taken over, and has this number.
    TakenOver(u16),
    /// The descriptors come along; without any, the peer has left.
    Descriptors,
    /// The holders' numbers, in order; where they were asked for, the descriptors come along.
    Holders(Vec<u32>),
    /// The port that was taken.
    Port(u16),
    /// The kernel does not leave the port to the node, for this error of the system's.
    NoPort(i32),
    Status(Box<NodeStatus>),
    Sockets(Vec<SocketStatus>),
    Counters(Vec<Counter>),
    /// The records that were asked for, of nodes that run.
    Names(Vec<NodeRecord>),
    Captured(CaptureSummary),
    /// The request is done, or, with `Down`, has begun.
    Done,
    /// The answer is in the memory file that comes along.
    InMemory {
        bytes: u64,
    },
}
