//! The stages of a message in the kernel, and the tracepoints between them.

use std::fmt;

/// A point of a message's way, in order. Each is a tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum KernelEdge {
    /// The sender enters `sendto`.
    SendEntered,
    /// IP gives the frame to the device's queue.
    Queued,
    /// The device takes the frame.
    TransmitStarted,
    /// The frame is in the receiving processor's backlog.
    Looped,
    /// The softirq that empties the backlog begins.
    SoftirqEntered,
    /// The frame is given to IP.
    Received,
    /// TCP has found the connection.
    TcpProbed,
    /// The bytes are in the socket's queue.
    DataReady,
    /// The receiver is about to be woken.
    Waking,
    /// The receiver is runnable.
    Woken,
    /// The receiver runs.
    SwitchedTo,
    /// Bytes are copied to the program.
    Copied,
    /// The receiver leaves `recvfrom`.
    ReceiveExited,
    /// The receiver enters `sendto` with its answer.
    NextSend,
}

impl KernelEdge {
    /// The number of edges.
    pub const COUNT: usize = 14;

    /// All edges, in the order of a message's way.
    pub const ALL: [Self; Self::COUNT] = [
        Self::SendEntered,
        Self::Queued,
        Self::TransmitStarted,
        Self::Looped,
        Self::SoftirqEntered,
        Self::Received,
        Self::TcpProbed,
        Self::DataReady,
        Self::Waking,
        Self::Woken,
        Self::SwitchedTo,
        Self::Copied,
        Self::ReceiveExited,
        Self::NextSend,
    ];

    /// The edge's place in [`KernelEdge::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns `true` for an edge that a message to a waking receiver does not pass.
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::Waking | Self::Woken | Self::SwitchedTo)
    }
}

/// A part of a message's time in the kernel or in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum KernelStage {
    /// The call, the socket layer, TCP and IP of the sender.
    Send,
    /// The device's queue.
    Queue,
    /// The device, up to the receiving side's backlog.
    Device,
    /// Until the softirq begins.
    Softirq,
    /// Until the softirq takes the frame.
    Backlog,
    /// IP, and finding the connection.
    Ip,
    /// TCP, up to the socket's queue.
    Tcp,
    /// From the queue to the choice of a thread.
    Notify,
    /// Making the thread runnable.
    Wake,
    /// Until the thread runs.
    Turn,
    /// From the thread's first instruction to the copy.
    Resume,
    /// From the socket's queue to the copy, if the receiver did not sleep.
    Busy,
    /// The copy, and the way out of the call.
    CopyOut,
    /// The program's own time until its next send.
    Program,
}

impl KernelStage {
    /// The number of stages.
    pub const COUNT: usize = 14;

    /// All stages, in the order of a message's way.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Send,
        Self::Queue,
        Self::Device,
        Self::Softirq,
        Self::Backlog,
        Self::Ip,
        Self::Tcp,
        Self::Notify,
        Self::Wake,
        Self::Turn,
        Self::Resume,
        Self::Busy,
        Self::CopyOut,
        Self::Program,
    ];

    /// The stage's place in [`KernelStage::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name that reports print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "kernel.send",
            Self::Queue => "kernel.queue",
            Self::Device => "kernel.device",
            Self::Softirq => "kernel.softirq",
            Self::Backlog => "kernel.backlog",
            Self::Ip => "kernel.ip",
            Self::Tcp => "kernel.tcp",
            Self::Notify => "kernel.notify",
            Self::Wake => "kernel.wake",
            Self::Turn => "kernel.turn",
            Self::Resume => "kernel.resume",
            Self::Busy => "kernel.busy",
            Self::CopyOut => "kernel.copy.out",
            Self::Program => "program",
        }
    }

    /// The stage that begins at an edge. `sleeps` tells whether the receiver was woken.
    pub(super) const fn from_edge(edge: KernelEdge, sleeps: bool) -> Option<Self> {
        Some(match edge {
            KernelEdge::SendEntered => Self::Send,
            KernelEdge::Queued => Self::Queue,
            KernelEdge::TransmitStarted => Self::Device,
            KernelEdge::Looped => Self::Softirq,
            KernelEdge::SoftirqEntered => Self::Backlog,
            KernelEdge::Received => Self::Ip,
            KernelEdge::TcpProbed => Self::Tcp,
            KernelEdge::DataReady if sleeps => Self::Notify,
            KernelEdge::DataReady => Self::Busy,
            KernelEdge::Waking => Self::Wake,
            KernelEdge::Woken => Self::Turn,
            KernelEdge::SwitchedTo => Self::Resume,
            KernelEdge::Copied => Self::CopyOut,
            KernelEdge::ReceiveExited => Self::Program,
            KernelEdge::NextSend => return None,
        })
    }
}

impl fmt::Display for KernelStage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_of_each_stage_and_edge_is_its_place() {
        for (place, stage) in KernelStage::ALL.iter().enumerate() {
            assert_eq!(stage.index(), place);
        }
        for (place, edge) in KernelEdge::ALL.iter().enumerate() {
            assert_eq!(edge.index(), place);
        }
    }
}
