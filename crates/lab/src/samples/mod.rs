//! Raw samples: what each side counted in each single measurement, kept as it is.

mod histogram;
mod store;
mod unfinished;
mod whole;

pub use histogram::{Counts, Recorder};
pub use store::{Store, StoreError, write_json};
pub use unfinished::{Unfinished, UnfinishedError};
pub use whole::{check_whole, write_whole};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::workload::{Cell, Factors};

/// Bytes of the largest file of each class: small, middle and large ones.
pub const SIZE_CLASSES: [u64; 3] = [4 << 10, 64 << 10, u64::MAX];

/// The class of a file of so many bytes.
pub(crate) fn size_class(bytes: u64) -> usize {
    SIZE_CLASSES.partition_point(|&largest| largest < bytes)
}

/// One measurement of one candidate on one workload in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Number of the round, from 0.
    pub round: u32,
    /// Place in the whole run, from 0.
    pub sequence: u32,
    /// Name of the candidate.
    pub candidate: String,
    /// Stable name of the cell.
    pub name: String,
    /// What the two sides did, and over what.
    pub cell: Cell,
    /// What that is of each factor: sizes in bytes, α in hundredths, all else in counts.
    #[serde(default)]
    pub factors: Factors,
    /// When it began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// How long it took, set-up and warm-up included, in nanoseconds.
    pub took_ns: u64,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[cfg(test)]
impl Sample {
    /// One of which a test says what matters to it.
    pub(crate) fn of_test(round: u32, candidate: &str, cell: Cell, outcome: Outcome) -> Sample {
        Sample {
            round,
            sequence: 0,
            candidate: candidate.into(),
            name: cell.name(),
            factors: cell.factors(),
            cell,
            began_unix_ms: 0,
            took_ns: 0,
            outcome,
        }
    }
}

#[cfg(test)]
impl Outcome {
    /// Both sides counted the same.
    pub(crate) fn of_both(side: Side) -> Outcome {
        Outcome::Measured {
            client: Box::new(side.clone()),
            server: Box::new(side),
        }
    }
}

/// What came of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Both sides went through it.
    Measured {
        /// What the connecting side counted.
        client: Box<Side>,
        /// What the accepting side counted, or what a process found that was alone.
        server: Box<Side>,
    },
    /// It went wrong.
    Failed {
        /// What went wrong.
        reason: String,
        /// What the two processes wrote, the last part of it.
        output: String,
    },
    /// The candidate cannot be had on this machine.
    Unavailable {
        /// What is missing, and what to do about it.
        reason: String,
    },
}

/// What one side counted between the end of its warm-up and the end of its span; where
/// several pairs of processes do the same at once, what all of them counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Messages: one way in a ping-pong, written or read in a stream; connections
    /// where those are counted.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Time they took, in nanoseconds.
    pub span_ns: u64,
    /// Processor time this side's process used for them.
    pub cpu: CpuUse,
    /// Bytes over everything, warm-up included: what one side sent is what the other
    /// received, or else the measurement failed.
    pub total_bytes: u64,
    /// Durations in nanoseconds: round trips, or connections from set-up to tear-down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub durations: Option<Counts>,
    /// The same of answers with files, by the class of the file's size ([`SIZE_CLASSES`]).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by_size: Option<Box<[Counts; SIZE_CLASSES.len()]>>,
    /// Processor time of what the side has running beside its process, such as its
    /// node's engine, in nanoseconds.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub engine_ns: u64,
    /// What the whole machine did in the same time. The first client of each server looks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine: Option<Box<Machine>>,
    /// Segments that the side's stack has sent again, warm-up included, if it says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmits: Option<u64>,
    /// What a loop got done that computes beside the traffic.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub computed: Option<Box<Computed>>,
    /// What a process that had no other side has found, by the part of the figures that it is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub values: BTreeMap<String, f64>,
}

/// Totals of the machine, which nobody counts by process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Interrupts of all kinds, the timers' among them.
    pub interrupts: u64,
    /// Context switches.
    pub switches: u64,
    /// Processor time in software interrupts, in nanoseconds, to a tick of the kernel's clock.
    pub softirq_ns: u64,
}

/// How far a computing loop came on a core, alone and beside the traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Computed {
    /// Turns in the best slice of time alone.
    pub alone: u64,
    /// Length of that slice, in nanoseconds.
    pub alone_ns: u64,
    /// Turns beside the traffic.
    pub beside: u64,
    /// Time they took, in nanoseconds.
    pub beside_ns: u64,
}

impl Computed {
    /// The share of the core that was left to the loop; no number without both.
    pub fn availability(&self) -> f64 {
        let rate = |turns: u64, ns: u64| turns as f64 / ns as f64;
        rate(self.beside, self.beside_ns) / rate(self.alone, self.alone_ns)
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Side {
    /// What was found, by part; `None` where nothing was.
    pub(crate) fn of_values(values: impl IntoIterator<Item = (&'static str, Option<f64>)>) -> Side {
        let found = values.into_iter();
        let found = found.filter_map(|(part, value)| Some((part.to_owned(), value?)));
        Side {
            values: found.collect(),
            ..Side::default()
        }
    }

    /// What several counted that did the same at once: sums, and the longest of their
    /// spans, which hardly differ.
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
            values: all.values.into_iter().chain(one.values).collect(),
        })
    }
}

/// Processor time and context switches of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUse {
    /// In the program, in nanoseconds.
    pub user_ns: u64,
    /// In the kernel on its behalf, in nanoseconds.
    pub system_ns: u64,
    /// Times it went to sleep.
    pub voluntary_switches: u64,
    /// Times the core was taken from it.
    pub involuntary_switches: u64,
}

impl CpuUse {
    /// In the program and in the kernel, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// What both used.
    pub fn and(&self, other: &Self) -> Self {
        Self {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
        }
    }

    /// What was used since `before`.
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
