//! Commands about running nodes, with a file for each. This file has the shared parts.

mod access;
mod bridge_args;
pub(crate) mod bridge_engine;
pub(crate) mod capture;
pub(crate) mod device;
pub(crate) mod down;
pub(crate) mod engine;
pub(crate) mod placement;
pub(crate) mod ps;
pub(crate) mod run;
mod settings;
pub(crate) mod sockets;
pub(crate) mod stat;
pub(crate) mod table;
mod udp_hosts;
mod unaccelerated;
pub(crate) mod up;
pub(crate) mod uplink;
mod uplink_status;

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use toehold_node::control::Connection;
use toehold_node::fabric::{self, Fabric};

/// The fabric, for every command.
#[derive(Debug, clap::Args)]
struct Within {
    /// The fabric: a name, or a directory with a `/` in it
    #[arg(long, value_name = "FABRIC", env = fabric::VARIABLE, default_value = fabric::DEFAULT)]
    fabric: String,
}

impl Within {
    fn existing(&self) -> Result<Fabric> {
        Ok(Fabric::existing(&self.fabric)?)
    }

    fn connect(&self, node: &str) -> Result<Connection> {
        Ok(Connection::open(&self.existing()?, node)?)
    }
}

/// A span as people write one, for the command line.
pub(crate) fn span(text: &str) -> Result<Duration> {
    humantime::parse_duration(text).with_context(|| format!("{text:?} is not a time such as 10s or 500ms"))
}

/// Parses a duration that is not zero.
fn positive_span(text: &str) -> Result<Duration> {
    let span = span(text)?;
    let positive = (!span.is_zero()).then_some(span);
    positive.ok_or_else(|| anyhow!("the time must be more than 0, such as 1s"))
}

/// Formats a duration in the one or two units that matter.
fn short(span: Duration) -> String {
    let seconds = Duration::from_secs(span.as_secs());
    let text = humantime::format_duration(seconds).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Formats an address with its network's prefix, if there is one.
fn address(network: impl Into<ipnet::IpNet>) -> String {
    let network = network.into();
    if network.addr().is_unspecified() {
        return "-".to_owned();
    }
    network.to_string()
}

/// Formats a number of bytes in the largest suitable unit.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(4);
    if unit == 0 {
        return format!("{bytes} B");
    }
    let value = bytes as f64 / f64::from(1 << 10).powi(unit as i32);
    format!("{value:.1} {}", units[unit as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_bytes_are_formatted_short() {
        assert_eq!(short(Duration::from_millis(90_061_500)), "1day 1h");
        assert_eq!(short(Duration::from_millis(500)), "0s");
        assert_eq!(
            [0, 1023, 1536, 128 << 20, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1.5 KiB", "128.0 MiB", "16777216.0 TiB"]
        );
        assert!(positive_span("0s").is_err());
    }
}
