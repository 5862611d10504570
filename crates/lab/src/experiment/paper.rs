//! Statements of papers about measured figures.

use serde::{Deserialize, Serialize};

/// A figure of a paper, with the paper's statements about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Paper {
    /// The figure's place in the paper: `section 4.1.1, figure 3`.
    pub section: String,
    /// The statements, as numbers or trends.
    #[serde(default)]
    pub says: Vec<Said>,
}

/// One statement of a paper: in its own words, and as a comparison with a measured figure if
/// possible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Said {
    /// In the paper's terms: `8.9 µs against 10.37 µs, 14.2 % less`.
    pub text: String,
    /// The measured figure that corresponds: a ratio, such as `latency_1B/adaptive/kernel-veth`, or
    /// a candidate's figure, such as `stream_64K/adaptive`. `None` for a trend without a
    /// corresponding figure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub figure: Option<String>,
    /// For a trend, the figure that `figure` is compared with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub than: Option<String>,
    /// For a trend, its direction.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub is: Option<Trend>,
    /// The paper's value of the figure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
    /// The unit of the value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<PaperUnit>,
}

/// The direction of a trend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trend {
    /// The figure is less than the other.
    Less,
    /// The figure is more than the other.
    More,
}

impl Trend {
    /// The direction as a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Less => "less",
            Self::More => "more",
        }
    }
}

/// Units of papers' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PaperUnit {
    /// The candidate's figure divided by the baseline's: 0.858 is 14.2 % less.
    #[serde(rename = "ratio")]
    Ratio,
    /// Microseconds.
    #[serde(rename = "µs")]
    Microseconds,
    /// 10⁹ bits a second.
    #[serde(rename = "Gb/s")]
    Gigabits,
    /// Millions of bytes a second.
    #[serde(rename = "MB/s")]
    Megabytes,
    /// Share of a core, or of all cores if the text says so: 0.35 is 35 %.
    #[serde(rename = "cores")]
    Cores,
    /// Events a second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Protocol control blocks.
    #[serde(rename = "PCBs")]
    Pcbs,
    /// Share of look-ups that a cache answers: 1.5 is 1.5 %.
    #[serde(rename = "%")]
    Percent,
}
