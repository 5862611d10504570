//! The kernel's layout of a message's time over TCP, from its tracepoints.
//!
//! Two threads exchange messages of one length over one connection, by `sendto` and `recvfrom`. The
//! kernel's tracepoints divide each message's way into stages ([`KernelStage`]). The way may be
//! loopback or a pair of veth devices.
//!
//! | step | item |
//! | --- | --- |
//! | the files of the tracepoints | [`tracefs`] |
//! | a line of the kernel's text as an event | [`parse_line`] |
//! | which events belong to one message | [`KernelMatcher`] |
//! | how often each event is recorded in which block | [`KernelBlockUse`] |
//! | running the blocks | [`measure_kernel`] |
//! | times, and whether they add up | [`KernelAccount`] |
//!
//! # What this layout cannot see
//!
//! [`BLIND_SPOTS`] lists it in the words of a report.

mod account;
mod blocks;
mod event;
mod matching;
mod measure;
mod stages;
pub mod tracefs;

pub use account::{KernelAccount, KernelAccountError, KernelStageTime, KernelVerdict, MOST_KERNEL_ERROR};
pub use blocks::KernelBlockUse;
pub use event::{KernelEvent, KernelEventKind, TraceLine, parse_line};
pub use matching::{KernelMatcher, KernelMessage, KernelMismatches};
pub use measure::{KernelBlock, KernelBlocks, KernelPingPong, KernelPlan, MOST_TRIPS, measure_kernel};
pub use stages::{KernelActor, KernelEdge, KernelStage};

/// What the kernel's layout cannot see, one sentence each.
pub const BLIND_SPOTS: [&str; 8] = [
    "The processor's way into and out of a system call counts as the program's time.",
    "The socket layer, TCP and IP of a sender are one stage, for no tracepoint divides them.",
    "The stage that wakes a thread hides interrupts between processors, idle states and a hypervisor.",
    "Acknowledgements and other work of the kernel beside the message are inside the stages.",
    "A message that another thread receives for the kernel (ksoftirqd) is left out and counted.",
    "Messages by other calls than sendto and recvfrom are not seen.",
    "A call is slower while any call is traced. That part does not double, and stays in the stages.",
    "A second recording finds the code of the first one in caches. On a busy machine the first costs more.",
];
