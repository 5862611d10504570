//! What is said on a control socket: one JSON object a packet.
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

/// Version of these messages and of what processes of a node share.
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

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    /// To be a process of the node, until it hangs up.
    Attach { version: u32, build: String },
    /// To be a process of the node, with all that the process which this one was forked from has of
    /// that life of the node.
    TakeOver { life: u64 },
    /// The descriptors of a peer of one of the shards.
    Peer { shard: u8, slot: u16, generation: u16 },
    /// The descriptors of a bank of direct connections.
    Bank { slot: u16, generation: u32 },
    /// The descriptors of a set of bells.
    Bells { which: BellsOf },
    /// To ring a waiter on a bell of a set.
    Ring { which: BellsOf, waiter: u16 },
    /// Holders for connections and listeners.
    Holders { count: u16 },
    /// Which of the holders the descriptor that comes along is.
    Identify,
    /// To keep the descriptor that comes along, a holder's, until the next request.
    Entrust,
    /// The holder that was entrusted, with a descriptor of its own, if no process has a
    /// copy of the former one any more.
    Inherit,
    /// That the kernel beside the node leaves a port to it, for the listener that a holder
    /// will stand for.
    TakePort {
        holder: u32,
        address: SocketAddr,
        only_ipv6: bool,
    },
    /// That the kernel may have it again.
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
    /// The record of a node of the fabric, or of all of them.
    Names { node: Option<String> },
    /// How the node is.
    Status,
    /// To list the node's sockets.
    Sockets,
    /// What it counts.
    Counters,
    /// Which threads are to run the stack.
    SetPlacement { placement: Placement },
    /// To record frames in the file that comes along, until it says stop or hangs up.
    StartCapture { settings: CaptureRequest },
    /// To end its recording; again, until the file is complete.
    StopCapture,
    /// To end the node.
    Down,
}

impl Request {
    /// What a client must be allowed to, so that it may ask this.
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

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// No, because.
    Refused(Refusal),
    /// The descriptors come along, and behind them the door, and what is readable as long as something
    /// is to be closed.
    Attached {
        process: u16,
        description: serde_json::Value,
    },
    /// The number of the process.
    TakenOver(u16),
    /// The descriptors come along; without any, the peer has left.
    Descriptors,
    /// Their numbers, in order; where they were asked for, the descriptors come along.
    Holders(Vec<u32>),
    /// The port that was taken.
    Port(u16),
    /// Why the kernel does not leave the port to the node, as the system says it.
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
