//! The counts of one side of a measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toehold_trace::kernel::KernelBlocks;

use super::histogram::Counts;

/// Bytes of the largest file of each class: small, middle and large ones.
pub const SIZE_CLASSES: [u64; 3] = [4 << 10, 64 << 10, u64::MAX];

/// The class of a file of this many bytes.
pub(crate) fn size_class(bytes: u64) -> usize {
    SIZE_CLASSES.partition_point(|&largest| largest < bytes)
}

/// The counts of one side between the end of its warm-up and the end of its span. If several pairs
/// of processes run at the same time, the counts of all of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Messages: one way in a ping-pong, written or read in a stream. For workloads about
    /// connections, their number.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Duration of these messages, in nanoseconds.
    pub span_ns: u64,
    /// Processor time of this side's process for them.
    pub cpu: CpuUse,
    /// Bytes over the whole measurement, including warm-up. The bytes that one side sent must equal
    /// those that the other received, or the measurement fails.
    pub total_bytes: u64,
    /// Durations in nanoseconds: round trips, or connections from set-up to tear-down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub durations: Option<Counts>,
    /// Durations of answers with files, by the class of the file's size ([`SIZE_CLASSES`]).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by_size: Option<Box<[Counts; SIZE_CLASSES.len()]>>,
    /// Processor time of the side's other processes, such as its node's engine, in nanoseconds.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub engine_ns: u64,
    /// The activity of the whole machine in the same time. The first client of each server reads
    /// it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine: Option<Box<Machine>>,
    /// Segments that the side's stack has retransmitted, including warm-up, if it reports them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmits: Option<u64>,
    /// The progress of a computing loop beside the traffic.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub computed: Option<Box<Computed>>,
    /// The emulated disks of a deployment: on the server's side.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub disks: Vec<DiskUse>,
    /// The tiers of a site, and its clients: on the server's side.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tiers: Vec<TierUse>,
    /// The blocks of a ping-pong that was followed through the kernel, and the trace's clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub followed: Option<Box<Followed>>,
    /// The results of a process without another side, by their part of the figures.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub values: BTreeMap<String, f64>,
}

/// What an emulated disk did in a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Reads and writes.
    pub requests: u64,
    /// Requests that begin where the one before ended.
    pub sequential: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Bytes of writes.
    pub written_bytes: u64,
    /// Nanoseconds from arrival to begin by the law, summed over requests.
    pub waited_ns: u64,
    /// Nanoseconds from begin to end by the law, summed over requests.
    pub served_ns: u64,
    /// Nanoseconds of service, summed over heads.
    pub busy_ns: u64,
    /// The duration of the count, in nanoseconds.
    pub span_ns: u64,
    /// Number of heads.
    pub heads: u32,
    /// Lateness by the block layer's count, as a share of the mean service.
    pub late_share: Option<f64>,
}

impl DiskUse {
    /// The share of the time in which its heads are busy; `None` without a span.
    pub fn utilization(&self) -> Option<f64> {
        let span_ns = self.span_ns as f64 * f64::from(self.heads.max(1));
        (span_ns > 0.0).then(|| self.busy_ns as f64 / span_ns)
    }
}

/// What a tier of a site spent in a measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierUse {
    /// The name of the tier, or `clients`.
    pub name: String,
    /// Processor time of its programs, in nanoseconds.
    pub user_ns: u64,
    /// Processor time of the kernel for them, in nanoseconds.
    pub system_ns: u64,
    /// Processor time of its node's engine, in nanoseconds.
    pub engine_ns: u64,
    /// Bytes of files in the page cache that its programs read first.
    pub cached_bytes: u64,
}

impl TierUse {
    /// All of its processor time, in nanoseconds.
    pub fn processor_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.engine_ns
    }
}

/// A ping-pong that was followed through the kernel, as it was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// The clock of the trace, for people.
    pub clock: String,
    /// Round trips and matched messages, block by block.
    #[serde(flatten)]
    pub blocks: KernelBlocks,
}

/// Totals of the machine, which the kernel does not count by process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Interrupts of all kinds, including the timers'.
    pub interrupts: u64,
    /// Context switches.
    pub switches: u64,
    /// Processor time in software interrupts, in nanoseconds, to a tick of the kernel's clock.
    pub softirq_ns: u64,
}

/// The progress of a computing loop on a core, alone and beside the traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Computed {
    /// Turns in the best slice of time alone.
    pub alone: u64,
    /// Length of that slice, in nanoseconds.
    pub alone_ns: u64,
    /// Turns beside the traffic.
    pub beside: u64,
    /// Duration of these turns, in nanoseconds.
    pub beside_ns: u64,
}

impl Computed {
    /// The share of the core that was left to the loop; not a number without both.
    pub fn availability(&self) -> f64 {
        let rate = |turns: u64, ns: u64| turns as f64 / ns as f64;
        rate(self.beside, self.beside_ns) / rate(self.alone, self.alone_ns)
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Side {
    /// The results by part; `None` without any.
    pub(crate) fn of_values(values: impl IntoIterator<Item = (&'static str, Option<f64>)>) -> Side {
        let found = values.into_iter();
        let found = found.filter_map(|(part, value)| Some((part.to_owned(), value?)));
        Side {
            values: found.collect(),
            ..Side::default()
        }
    }

    /// The counts of several sides that ran at the same time: sums, and the longest of their spans,
    /// which hardly differ.
    pub fn together(sides: impl IntoIterator<Item = Side>) -> Side {
        sides.into_iter().fold(Side::default(), |all, one| Side {
            messages: all.messages + one.messages,
            bytes: all.bytes + one.bytes,
            span_ns: all.span_ns.max(one.span_ns),
            cpu: all.cpu.and(&one.cpu),
            total_bytes: all.total_bytes + one.total_bytes,
            durations: match (all.durations, one.durations) {
                (Some(all), Some(one)) => Some(all.and(&one)),
                (all, one) => all.or(one),
            },
            by_size: match (all.by_size, one.by_size) {
                (Some(all), Some(one)) => {
                    Some(Box::new(std::array::from_fn(|class| all[class].and(&one[class]))))
                }
                (all, one) => all.or(one),
            },
            engine_ns: all.engine_ns + one.engine_ns,
            machine: all.machine.or(one.machine),
            retransmits: all
                .retransmits
                .into_iter()
                .chain(one.retransmits)
                .reduce(|one, other| one + other),
            computed: all.computed.or(one.computed),
            disks: all.disks.into_iter().chain(one.disks).collect(),
            tiers: all.tiers.into_iter().chain(one.tiers).collect(),
            followed: all.followed.or(one.followed),
            values: all.values.into_iter().chain(one.values).collect(),
        })
    }
}

/// Processor time and context switches of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Time in the program, in nanoseconds.
    pub user_ns: u64,
    /// Time in the kernel on its behalf, in nanoseconds.
    pub system_ns: u64,
    /// Number of times it went to sleep.
    pub voluntary_switches: u64,
    /// Number of times the core was taken from it.
    pub involuntary_switches: u64,
}

impl CpuUse {
    /// Time in the program and in the kernel, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// The use of both.
    pub fn and(&self, other: &Self) -> Self {
        Self {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
        }
    }

    /// The use since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(before.involuntary_switches),
        }
    }
}
