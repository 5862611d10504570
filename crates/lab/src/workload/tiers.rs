//! Workloads of deployments: requests of a site's clients, and sequential access to a file.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::kind::Workload;
use super::popularity::Alpha;
use super::quantity::{Metric, Quantity, Reading};
use crate::samples::DiskUse;
use crate::samples::{Side, TierUse};

/// The text form of the World Cup's content.
const WORLD_CUP: &str = "world-cup";

/// The highest number of a class of content.
const LAST_CLASS: u8 = 4;

/// The files that a site's clients ask for. Its text form is `class0` to `class4`, or `world-cup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SiteContent {
    /// Files of a class, 0 to 4, whose popularity follows Zipf's law.
    Class(u8),
    /// Files and requests of the World Cup's log in [`crate::Settings::trace`].
    WorldCup,
}

/// The exponent of popularity without one in the plan.
pub(super) fn usual_alpha() -> Alpha {
    Alpha::NINE_TENTHS
}

impl TryFrom<String> for SiteContent {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == WORLD_CUP {
            return Ok(Self::WorldCup);
        }
        let number = text.strip_prefix("class").and_then(|number| number.parse().ok());
        let known = number.filter(|&number| number <= LAST_CLASS);
        known.map(Self::Class).ok_or_else(|| {
            format!("there is no content `{text}`; there are class0 to class{LAST_CLASS}, and {WORLD_CUP}")
        })
    }
}

impl From<SiteContent> for String {
    fn from(content: SiteContent) -> String {
        match content {
            SiteContent::Class(class) => format!("class{class}"),
            SiteContent::WorldCup => WORLD_CUP.to_owned(),
        }
    }
}

/// What a site's caches hold when the count begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteStart {
    /// What as many requests as are counted have left in them.
    #[default]
    Warm,
    /// Nothing.
    Cold,
}

/// Bytes of a file, 1 KB to 1 GB. Its text form is a number with K, M or G behind it: `160M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileSize(u64);

impl FileSize {
    /// Least and most bytes.
    const LEAST: u64 = 1 << 10;
    const MOST: u64 = 1 << 30;

    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl TryFrom<String> for FileSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = toehold_node::settings::parse_bytes(&text);
        let fits = bytes.filter(|bytes| (Self::LEAST..=Self::MOST).contains(bytes));
        fits.map(Self)
            .ok_or_else(|| format!("`{text}` is no size of a file: write 1K to 1G, such as 160M"))
    }
}

impl From<FileSize> for String {
    fn from(size: FileSize) -> String {
        size.to_string()
    }
}

impl fmt::Display for FileSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
        let whole = units.iter().find(|(unit, _)| self.0.is_multiple_of(*unit));
        match whole {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Workload {
    /// Whether its candidates are deployments.
    pub fn is_of_deployments(&self) -> bool {
        self.is_of_sites() || self.is_of_files()
    }

    /// Whether clients ask a site.
    pub fn is_of_sites(&self) -> bool {
        matches!(self, Self::Site { .. })
    }

    /// Whether the span of measurements bounds it. A number of requests, or the size of a file, bounds
    /// others.
    pub fn has_span(&self) -> bool {
        !matches!(self, Self::Site { requests: 1.., .. }) && !self.is_of_files()
    }

    /// Whether it is access to a file.
    pub fn is_of_files(&self) -> bool {
        matches!(self, Self::FileRead { .. } | Self::FileWrite { .. })
    }

    /// The name of a workload of deployments: `site_class1_zipf0.9_16c`, with `_s8` at another scale
    /// than 1 and `_cold` with empty caches, `fileread_160M_64K`, with `_cached`, or
    /// `filewrite_160M_64K`. `None` for any other workload.
    pub(super) fn name_of_deployments(&self) -> Option<String> {
        match self {
            Self::Site {
                content,
                alpha,
                clients,
                scale,
                start,
                ..
            } => {
                let content = match content {
                    SiteContent::Class(class) => format!("class{class}_zipf{alpha}"),
                    SiteContent::WorldCup => WORLD_CUP.to_owned(),
                };
                let mut name = format!("site_{content}_{clients}c");
                if *scale != 1 {
                    name.push_str(&format!("_s{scale}"));
                }
                if *start == SiteStart::Cold {
                    name.push_str("_cold");
                }
                Some(name)
            }
            Self::FileRead { size, buffer, cached } => {
                let cached = if *cached { "_cached" } else { "" };
                Some(format!("fileread_{size}_{buffer}{cached}"))
            }
            Self::FileWrite { size, buffer } => Some(format!("filewrite_{size}_{buffer}")),
            _ => None,
        }
    }

    /// The title of a workload of deployments, for people.
    pub(super) fn title_of_deployments(&self) -> Option<String> {
        match self {
            Self::Site {
                content,
                alpha,
                clients,
                scale,
                start,
                ..
            } => {
                let several = if *clients == 1 { "" } else { "s" };
                let content = match content {
                    SiteContent::Class(class) => format!("class {class}, α {alpha}"),
                    SiteContent::WorldCup => "the World Cup trace".to_owned(),
                };
                let mut title = format!("{content}, {clients} client{several}");
                if *scale != 1 {
                    title.push_str(&format!(", scale {scale}"));
                }
                if *start == SiteStart::Cold {
                    title.push_str(", cold");
                }
                Some(title)
            }
            Self::FileRead { size, buffer, cached } => {
                let cached = if *cached { ", cached" } else { "" };
                Some(format!("read {size} by {buffer}{cached}"))
            }
            Self::FileWrite { size, buffer } => Some(format!("write {size} by {buffer}")),
            _ => None,
        }
    }

    /// The figures of a site. Processor time is that of a tier's programs and of its node's engine.
    pub(super) fn site(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let quantile = |share| {
            let found = client
                .durations
                .as_ref()
                .and_then(|counts| counts.quantile_ns(share));
            found.map_or(f64::NAN, |duration| duration as f64)
        };
        let mean = client.durations.as_ref().and_then(|counts| counts.mean_ns());
        let seconds = client.span_ns as f64 / 1e9;
        let of_tier = |role: &str| server.tiers.iter().find(|tier| tier.name == role);
        let cpu = |tier: Option<&TierUse>| {
            tier.map_or(f64::NAN, |tier| {
                tier.processor_ns() as f64 / 1e6 / client.messages as f64
            })
        };
        let share = |name: &str| server.values.get(name).copied().unwrap_or(f64::NAN);
        let time = |what, label, value| self.other(what, label, Quantity::Time, value);
        let per_thousand =
            |what, label, role| self.other(what, label, Quantity::CpuPerThousand, cpu(of_tier(role)));
        vec![
            self.main("requests", Quantity::Rate, client.messages as f64 / seconds),
            time("mean", "response, mean", mean.unwrap_or(f64::NAN)),
            time("p50", "response, p50", quantile(0.5)),
            time("p99", "response, p99", quantile(0.99)),
            self.other(
                "throughput",
                "throughput",
                Quantity::Throughput,
                client.bytes as f64 * 8.0 / seconds,
            ),
            self.other("hits", "hits of the proxy", Quantity::Hits, share("hits"))
                .read_as(Reading::Both),
            self.other(
                "disk",
                "disk, busy",
                Quantity::Utilization,
                busiest(&server.disks),
            )
            .read_as(Reading::Plain),
            self.other(
                "late",
                "disk, lateness",
                Quantity::Utilization,
                latest(&server.disks),
            )
            .read_as(Reading::Plain),
            per_thousand("cpu_proxy", "CPU, proxy", "proxy"),
            per_thousand("cpu_web", "CPU, web", "web"),
            per_thousand("cpu_clients", "CPU, clients", "clients"),
        ]
    }

    /// The bandwidth of a file.
    pub(super) fn file(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let rate = client.bytes as f64 / (client.span_ns as f64 / 1e9);
        let seconds = client.cpu.total_ns() as f64 / 1e9;
        let mut metrics = vec![
            self.main("bandwidth", Quantity::FileBandwidth, rate)
                .read_as(Reading::Both),
            self.other(
                "cpu",
                "CPU",
                Quantity::CpuPerGigabyte,
                seconds / (client.bytes as f64 / 1e9),
            ),
            self.other(
                "disk",
                "disk, busy",
                Quantity::Utilization,
                busiest(&server.disks),
            )
            .read_as(Reading::Plain),
        ];
        // Writes wait before they reach the disk: their lateness says nothing about it.
        if let Self::FileRead { .. } = self {
            let late = latest(&server.disks);
            let late = self.other("late", "disk, lateness", Quantity::Utilization, late);
            metrics.push(late.read_as(Reading::Plain));
        }
        metrics
    }
}

/// The utilization of the busiest disk.
fn busiest(disks: &[DiskUse]) -> f64 {
    disks
        .iter()
        .filter_map(DiskUse::utilization)
        .fold(f64::NAN, f64::max)
}

/// The lateness of the latest disk, as a share of its mean service.
fn latest(disks: &[DiskUse]) -> f64 {
    disks
        .iter()
        .filter_map(|disk| disk.late_share)
        .fold(f64::NAN, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Counts;
    use crate::workload::Cell;

    fn cell(text: &str) -> Cell {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn site(more: &str) -> Cell {
        cell(&format!(
            r#"{{"kind": "site", "content": "class1", "alpha": 0.9, "clients": 16, "scale": 1{more}}}"#
        ))
    }

    #[test]
    fn names_of_sites_and_files_are_stable() {
        assert_eq!(site("").name(), "site_class1_zipf0.9_16c");
        assert_eq!(
            site(r#", "start": "cold", "requests": 20000"#).name(),
            "site_class1_zipf0.9_16c_cold"
        );
        let cup = r#"{"kind": "site", "content": "world-cup", "clients": 4, "scale": 1}"#;
        assert_eq!(cell(cup).name(), "site_world-cup_4c");
        let read = r#"{"kind": "file-read", "size": "16M", "buffer": "64K", "cached": true}"#;
        assert_eq!(cell(read).name(), "fileread_16M_64K_cached");
        let write = r#"{"kind": "file-write", "size": "16M", "buffer": "4K"}"#;
        assert_eq!(cell(write).name(), "filewrite_16M_4K");
        for (text, name) in [("160M", "160M"), ("1024K", "1M"), ("1G", "1G"), ("1500", "1500B")] {
            assert_eq!(FileSize::try_from(text.to_owned()).unwrap().to_string(), name);
        }
        for text in ["1", "2G", "many", ""] {
            assert!(FileSize::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_content_is_refused_with_the_choice() {
        for text in ["class5", "class", "world", "class-1", "class256"] {
            let said = SiteContent::try_from(text.to_owned()).unwrap_err();
            assert!(said.contains("class0 to class4"), "{said}");
        }
    }

    #[test]
    fn figures_of_a_site_come_from_clients_and_tiers() {
        let client = Side {
            messages: 2000,
            bytes: 1_000_000,
            span_ns: 2_000_000_000,
            durations: Some(Counts(vec![(1000, 1), (3000, 3)])),
            ..Side::default()
        };
        let proxy = TierUse {
            name: "proxy".into(),
            user_ns: 10_000_000,
            system_ns: 20_000_000,
            engine_ns: 10_000_000,
            ..TierUse::default()
        };
        let server = Side {
            tiers: vec![proxy],
            ..Side::of_values([("hits", Some(0.75))])
        };
        let metrics = site("").metrics(&client, &server);
        let value = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap().value;
        assert_eq!(value("site_class1_zipf0.9_16c"), 1000.0);
        assert_eq!(value("site_mean_class1_zipf0.9_16c"), 2500.0);
        assert_eq!(value("hits_site_class1_zipf0.9_16c"), 0.75);
        // 40 ms for 2000 requests.
        assert_eq!(value("cpu_proxy_site_class1_zipf0.9_16c"), 0.02);
        assert!(value("cpu_web_site_class1_zipf0.9_16c").is_nan());
    }

    #[test]
    fn bandwidth_of_a_file_is_bytes_a_second() {
        let read = cell(r#"{"kind": "file-read", "size": "16M", "buffer": "64K"}"#);
        let side = Side {
            bytes: 70_000_000,
            span_ns: 2_000_000_000,
            ..Side::default()
        };
        assert_eq!(read.metrics(&side, &Side::default())[0].value, 35_000_000.0);
    }
}
