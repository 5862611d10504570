//! What a paper says about what is measured.

use serde::{Deserialize, Serialize};

/// A figure of a paper, and what the paper says about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Paper {
    /// Where it is: `section 4.1.1, figure 3`.
    pub section: String,
    /// What it says, in numbers or as a trend.
    #[serde(default)]
    pub says: Vec<Said>,
}

/// One thing that a paper says: in its own words, and in ours as far as it can be put beside
/// a figure of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Said {
    /// In the paper's terms: `8.9 µs against 10.37 µs, 14.2 % less`.
    pub text: String,
    /// What of ours stands beside it: a ratio, such as `latency_1B/adaptive/kernel-veth`, or a
    /// candidate's figure, such as `stream_64K/adaptive`. None beside a trend that cannot be put so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub figure: Option<String>,
    /// Of a trend, the figure that that one is less or more than.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub than: Option<String>,
    /// Which of both it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub is: Option<Trend>,
    /// The paper's value of that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
    /// Its unit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<PaperUnit>,
}

/// What becomes of a figure elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trend {
    /// It is less there.
    Less,
    /// It is more there.
    More,
}

impl Trend {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Less => "less",
            Self::More => "more",
        }
    }
}

/// Units that papers' values have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PaperUnit {
    /// Candidate's divided by the baseline's: 0.858 is 14.2 % less.
    #[serde(rename = "ratio")]
    Ratio,
    /// Microseconds.
    #[serde(rename = "µs")]
    Microseconds,
    /// 10⁹ bits a second.
    #[serde(rename = "Gb/s")]
    Gigabits,
    /// Of a core, or of all cores if the text says so: 0.35 is 35 %.
    #[serde(rename = "cores")]
    Cores,
    /// Events a second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Protocol control blocks.
    #[serde(rename = "PCBs")]
    Pcbs,
    /// Of look-ups that a cache answers: 1.5 is 1.5 %.
    #[serde(rename = "%")]
    Percent,
}
