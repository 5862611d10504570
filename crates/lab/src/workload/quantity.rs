//! The properties of a figure: its name, its unit, its better direction, and its reading.

use serde::{Deserialize, Serialize};

/// The measured quantity; determines the unit.
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
    /// The used share of a core: 1 is all of it.
    #[serde(rename = "cores")]
    Share,
    /// Events a second caused by traffic.
    #[serde(rename = "interrupts/s")]
    Interrupts,
    /// Events for each message or connection.
    #[serde(rename = "1/message")]
    PerMessage,
    /// The share of a core left to others: 1 is all of it.
    #[serde(rename = "share")]
    Availability,
    /// Protocol control blocks that a look-up examines.
    #[serde(rename = "PCBs")]
    Pcbs,
    /// The share of the time in which something is busy, or a share of its service: 1 is all of it.
    #[serde(rename = "utilization")]
    Utilization,
    /// Bytes a second of a file.
    #[serde(rename = "B/s")]
    FileBandwidth,
    /// The share of look-ups or requests answered by a cache: 1 is all of them.
    #[serde(rename = "hits")]
    Hits,
}

/// The better direction of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// Whether a figure is meaningful by itself, or compared with another candidate's, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// As a ratio to another candidate's.
    Compared,
    /// In its unit: the baseline may well be zero.
    Plain,
    /// Either way.
    Both,
}

impl Quantity {
    /// The better direction.
    pub fn better(self) -> Better {
        match self {
            Self::Throughput | Self::Rate | Self::Availability | Self::Hits | Self::FileBandwidth => {
                Better::Higher
            }
            Self::Time
            | Self::CpuPerThousand
            | Self::CpuPerGigabyte
            | Self::Share
            | Self::PerMessage
            | Self::Interrupts
            | Self::Utilization
            | Self::Pcbs => Better::Lower,
        }
    }

    /// The divisor of a figure that needs no comparison, and the suffix of its name. Times are in
    /// milliseconds, and bandwidths of files in megabytes a second.
    pub fn plain_unit(self) -> (f64, &'static str) {
        match self {
            Self::Time => (1e6, "_ms"),
            Self::FileBandwidth => (1e6, "_MBps"),
            _ => (1.0, ""),
        }
    }
}

/// One figure of one measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Stable name, such as `latency_64B` or `cpu_server_stream_1K`.
    pub name: String,
    /// The part of the workload's figures, such as `p99` or `cpu_server`; empty for the main one.
    /// It is the same for all workloads of a kind, so that it identifies a series over a factor.
    pub part: &'static str,
    /// Label for people, within its workload: `one way, p50`.
    pub label: &'static str,
    /// The measured quantity.
    pub quantity: Quantity,
    /// How it is read.
    pub reading: Reading,
    /// Whether it is the workload's main figure, which has the workload's name.
    pub main: bool,
    /// Whether tables for people leave it out.
    pub detail: bool,
    /// The figure; not a number if it could not be computed.
    pub value: f64,
}

impl Metric {
    pub(super) fn read_as(self, reading: Reading) -> Self {
        Self { reading, ..self }
    }
}
