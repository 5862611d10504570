//! What a figure is: its name, its unit, which way it is better, and how it is read.

use serde::{Deserialize, Serialize};

/// What a figure measures; decides its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quantity {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Time,
    /// Bits a second.
    #[serde(rename = "bit/s")]
    Throughput,
    /// Events a second.
    #[serde(rename = "1/s")]
    Rate,
    /// Processor seconds for 1000 messages or connections.
    #[serde(rename = "s/1000")]
    CpuPerThousand,
    /// Processor seconds for 10⁹ bytes.
    #[serde(rename = "s/GB")]
    CpuPerGigabyte,
    /// Of a core that is used: 1 is all of it.
    #[serde(rename = "cores")]
    Share,
    /// Events a second that traffic causes.
    #[serde(rename = "interrupts/s")]
    Interrupts,
    /// Events for each message or connection.
    #[serde(rename = "1/message")]
    PerMessage,
    /// Of a core that is left to others: 1 is all of it.
    #[serde(rename = "share")]
    Availability,
    /// Protocol control blocks that a look-up examines.
    #[serde(rename = "PCBs")]
    Pcbs,
    /// Of look-ups that a cache answers: 1 is all of them.
    #[serde(rename = "hits")]
    Hits,
}

/// Which way a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// Whether a figure says something by itself, or beside another candidate's. A figure
/// that does both is worth both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// As a ratio to another candidate's.
    Compared,
    /// In its unit: what it would be compared with may well be nothing at all.
    Plain,
    /// Either way.
    Both,
}

impl Quantity {
    /// Which way it is better.
    pub fn better(self) -> Better {
        match self {
            Self::Throughput | Self::Rate | Self::Availability | Self::Hits => Better::Higher,
            Self::Time
            | Self::CpuPerThousand
            | Self::CpuPerGigabyte
            | Self::Share
            | Self::PerMessage
            | Self::Interrupts
            | Self::Pcbs => Better::Lower,
        }
    }

    /// What a figure is divided by where it stands for itself, and what its name gets
    /// then: times are in milliseconds there.
    pub fn plain_unit(self) -> (f64, &'static str) {
        match self {
            Self::Time => (1e6, "_ms"),
            _ => (1.0, ""),
        }
    }
}

/// One figure of one measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Stable name, such as `latency_64B` or `cpu_server_stream_1K`.
    pub name: String,
    /// Which of the workload's figures it is, such as `p99` or `cpu_server`; empty for the
    /// main one. The same for all workloads of a kind: a series over a factor has it in common.
    pub part: &'static str,
    /// For people, within its workload: `one way, p50`.
    pub label: &'static str,
    /// What it measures.
    pub quantity: Quantity,
    /// How it is read.
    pub reading: Reading,
    /// Whether it is the workload's main figure, which has the workload's name.
    pub main: bool,
    /// Whether it is left out of tables for people.
    pub detail: bool,
    /// The figure; no number if it could not be made.
    pub value: f64,
}

impl Metric {
    pub(super) fn read_as(self, reading: Reading) -> Self {
        Self { reading, ..self }
    }
}
