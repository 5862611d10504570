//! Which tracepoints are recorded, and in which block of round trips.

use serde::{Deserialize, Serialize};

/// A tracepoint, and what the kernel's filter keeps of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tracepoint {
    /// The tracepoint's folder in `events/`.
    pub(super) folder: &'static str,
    threads: ThreadField,
}

/// The number by which a tracepoint's events are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadField {
    /// The thread that runs.
    Running,
    /// The thread that runs, and the softirq `NET_RX`.
    RunningNetRx,
    /// The thread that is woken.
    Woken,
    /// The thread that goes on.
    Next,
}

impl Tracepoint {
    const fn new(folder: &'static str, threads: ThreadField) -> Self {
        Self { folder, threads }
    }

    /// The text of its filter, so that only two threads fill the buffers.
    pub(super) fn filter(&self, threads: [u32; 2]) -> String {
        let [a, b] = threads;
        let of = |field: &str| format!("{field} == {a} || {field} == {b}");
        match self.threads {
            ThreadField::Running => of("common_pid"),
            ThreadField::RunningNetRx => format!("vec == 3 && ({})", of("common_pid")),
            ThreadField::Woken => of("pid"),
            ThreadField::Next => of("next_pid"),
        }
    }
}

/// The tracepoints of the layout, in the order of a message's way.
pub(super) const TRACEPOINTS: [Tracepoint; 13] = [
    Tracepoint::new("syscalls/sys_enter_sendto", ThreadField::Running),
    Tracepoint::new("net/net_dev_queue", ThreadField::Running),
    Tracepoint::new("net/net_dev_start_xmit", ThreadField::Running),
    Tracepoint::new("net/netif_rx", ThreadField::Running),
    Tracepoint::new("irq/softirq_entry", ThreadField::RunningNetRx),
    Tracepoint::new("net/netif_receive_skb", ThreadField::Running),
    Tracepoint::new("tcp/tcp_probe", ThreadField::Running),
    Tracepoint::new("sock/sk_data_ready", ThreadField::Running),
    Tracepoint::new("sched/sched_waking", ThreadField::Woken),
    Tracepoint::new("sched/sched_wakeup", ThreadField::Woken),
    Tracepoint::new("sched/sched_switch", ThreadField::Next),
    Tracepoint::new("skb/skb_copy_datagram_iovec", ThreadField::Running),
    Tracepoint::new("syscalls/sys_exit_recvfrom", ThreadField::Running),
];

/// What a block of round trips is for. No block has two uses, so no figure checks itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelBlockUse {
    /// No tracepoint. Its round trips are what the stages must add up to.
    Untraced,
    /// All tracepoints. The times of stages are taken from it.
    Counted,
    /// All tracepoints. Only their cost is taken from it.
    Single,
    /// All tracepoints, each recorded twice. Only their cost is taken from it.
    Double,
}

const ROUND: [KernelBlockUse; 8] = {
    use KernelBlockUse::{Counted, Double, Single, Untraced};
    [
        Untraced, Single, Double, Counted, Untraced, Counted, Double, Single,
    ]
};

impl KernelBlockUse {
    /// Blocks of a round.
    pub const BLOCKS_OF_ROUND: u32 = ROUND.len() as u32;

    /// The use of a block. Each round is mirrored, so a steady change of the machine meets all uses.
    pub fn of(block: u32) -> Self {
        ROUND[(block % Self::BLOCKS_OF_ROUND) as usize]
    }

    /// How often each event is recorded.
    pub const fn recordings(self) -> usize {
        match self {
            Self::Untraced => 0,
            Self::Counted | Self::Single => 1,
            Self::Double => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use KernelBlockUse::*;

    #[test]
    fn uses_with_tracepoints_have_one_mean_place() {
        for wanted in [Counted, Single, Double] {
            let places = (0..KernelBlockUse::BLOCKS_OF_ROUND).filter(|at| KernelBlockUse::of(*at) == wanted);
            assert_eq!(places.sum::<u32>(), KernelBlockUse::BLOCKS_OF_ROUND, "{wanted:?}");
        }
    }
}
