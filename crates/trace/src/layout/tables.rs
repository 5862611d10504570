//! The stages of each kind of path, in order.

use crate::stage::Stage::{self, *};

/// The protocol that carries the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A tagged message over RMPP.
    Message,
    /// Bytes of a TCP connection.
    Tcp,
    /// Bytes of a direct connection, which has no engine on its path.
    Direct,
}

/// The stages of a kind of path, apart from its hops.
pub(super) struct StageTable {
    /// Stages of the sender, in order.
    pub(super) sender: &'static [Stage],
    /// Stages of the receiver, in order.
    pub(super) receiver: &'static [Stage],
    /// Stages that an engine may run.
    pub(super) movable: &'static [Stage],
    /// Stages that nothing on the path waits for if an engine runs them.
    pub(super) beside_on_engine: &'static [Stage],
    /// Stages that nothing on the path waits for unless the receiver sleeps.
    pub(super) beside_while_looking: &'static [Stage],
    /// The way between the two ends.
    pub(super) crossing: Stage,
}

pub(super) const fn table(kind: PathKind) -> &'static StageTable {
    match kind {
        PathKind::Message => &MESSAGE,
        PathKind::Tcp => &TCP,
        PathKind::Direct => &DIRECT,
    }
}

static MESSAGE: StageTable = StageTable {
    sender: &[MpiSend, CallSend, RmppSend, Fetch, LinkSend],
    receiver: &[
        LinkReceive,
        RmppReceive,
        Match,
        Place,
        Event,
        Ack,
        CallReceive,
        MpiReceive,
    ],
    movable: &[
        RmppSend,
        Fetch,
        LinkSend,
        LinkReceive,
        RmppReceive,
        Match,
        Place,
        Event,
        Ack,
    ],
    beside_on_engine: &[Ack],
    beside_while_looking: &[],
    crossing: Wire,
};

static TCP: StageTable = StageTable {
    sender: &[Program, CallSend, CopyIn, TcpSend, LinkSend],
    receiver: &[LinkReceive, TcpReceive, Ack, CopyOut, CallReceive],
    movable: &[TcpSend, LinkSend, LinkReceive, TcpReceive, Ack],
    beside_on_engine: &[Ack],
    beside_while_looking: &[],
    crossing: Wire,
};

static DIRECT: StageTable = StageTable {
    sender: &[Program, CallSend, CopyIn, Publish, Notify],
    receiver: &[Look, CopyOut, CallReceive],
    movable: &[],
    beside_on_engine: &[],
    beside_while_looking: &[Notify],
    crossing: Line,
};
