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

    /// The tracepoint that marks the edge.
    pub const fn tracepoint(self) -> &'static str {
        match self {
            Self::SendEntered | Self::NextSend => "sys_enter_sendto",
            Self::Queued => "net_dev_queue",
            Self::TransmitStarted => "net_dev_start_xmit",
            Self::Looped => "netif_rx",
            Self::SoftirqEntered => "softirq_entry",
            Self::Received => "netif_receive_skb",
            Self::TcpProbed => "tcp_probe",
            Self::DataReady => "sk_data_ready",
            Self::Waking => "sched_waking",
            Self::Woken => "sched_wakeup",
            Self::SwitchedTo => "sched_switch",
            Self::Copied => "skb_copy_datagram_iovec",
            Self::ReceiveExited => "sys_exit_recvfrom",
        }
    }

    /// Returns `true` for an edge that a message to a waking receiver does not pass.
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::Waking | Self::Woken | Self::SwitchedTo)
    }
}

/// The part of the machine that runs a stage.
///
/// Over loopback and veth the softirq, and the search for a thread to wake, run on the sender's
/// processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum KernelActor {
    /// The sender's thread, within `sendto`.
    Sender,
    /// The softirq that receives the frame.
    Softirq,
    /// The scheduler, from the choice of a thread to its first instruction.
    Scheduler,
    /// The receiver's thread, within `recvfrom`.
    Receiver,
    /// The program, between its calls.
    Program,
}

impl KernelActor {
    /// All actors, in the order of a message's way.
    pub const ALL: [Self; 5] = [
        Self::Sender,
        Self::Softirq,
        Self::Scheduler,
        Self::Receiver,
        Self::Program,
    ];

    /// The name that reports print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Softirq => "softirq",
            Self::Scheduler => "scheduler",
            Self::Receiver => "receiver",
            Self::Program => "program",
        }
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

    /// The part of the machine that runs it.
    pub const fn actor(self) -> KernelActor {
        match self {
            Self::Send | Self::Queue | Self::Device => KernelActor::Sender,
            Self::Softirq | Self::Backlog | Self::Ip | Self::Tcp => KernelActor::Softirq,
            Self::Notify | Self::Wake | Self::Turn => KernelActor::Scheduler,
            Self::Resume | Self::Busy | Self::CopyOut => KernelActor::Receiver,
            Self::Program => KernelActor::Program,
        }
    }

    /// What happens in it, for people.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Send => "the call, sockets, TCP and IP",
            Self::Queue => "the device's queue",
            Self::Device => "the device",
            Self::Softirq => "until the softirq begins",
            Self::Backlog => "until the softirq takes the frame",
            Self::Ip => "IP, finding the connection",
            Self::Tcp => "TCP, up to the socket's queue",
            Self::Notify => "finding a thread to wake",
            Self::Wake => "making it runnable",
            Self::Turn => "until it runs",
            Self::Resume => "until it copies",
            Self::Busy => "until a thread that was awake copies",
            Self::CopyOut => "the copy, leaving the call",
            Self::Program => "between the calls",
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
    fn actors_follow_one_another_along_the_way() {
        let actors: Vec<_> = KernelStage::ALL.iter().map(|stage| stage.actor()).collect();
        assert!(actors.is_sorted(), "{actors:?}");
    }

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
