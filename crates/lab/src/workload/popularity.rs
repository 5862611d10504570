//! The files that clients of a web server request, and their popularity.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The source of a web server's files and their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trace {
    /// Synthetic files, with some published figures of the World Cup's.
    Synthetic,
    /// The 1998 World Cup's log, in the file [`crate::Settings::trace`].
    WorldCup,
}

impl Trace {
    /// The trace's form in names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Synthetic => "synthetic",
            Self::WorldCup => "world-cup",
        }
    }

    /// Title for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Synthetic => "a synthetic trace",
            Self::WorldCup => "the World Cup trace",
        }
    }
}

/// The exponent of Zipf's law, 0 to 2, in hundredths. The file of rank i is requested in proportion
/// to i to the power of −α. Its text form is a number, such as `0.75`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Alpha(u8);

impl Alpha {
    /// The largest exponent, in hundredths.
    const MOST: u8 = 200;

    /// 0.9, a common exponent of web sites.
    pub(super) const NINE_TENTHS: Self = Self(90);

    /// Hundredths.
    pub const fn hundredths(self) -> u8 {
        self.0
    }
}

/// The number is not a valid exponent.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} is not a valid α: it is 0 to 2, with at most two decimals")]
pub struct AlphaError(f64);

impl TryFrom<f64> for Alpha {
    type Error = AlphaError;

    fn try_from(alpha: f64) -> Result<Self, AlphaError> {
        let is_meant = |hundredths: &u8| (f64::from(*hundredths) / 100.0 - alpha).abs() < 1e-9;
        (0..=Self::MOST).find(is_meant).map(Self).ok_or(AlphaError(alpha))
    }
}

impl From<Alpha> for f64 {
    fn from(alpha: Alpha) -> f64 {
        f64::from(alpha.0) / 100.0
    }
}

impl fmt::Display for Alpha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f64::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponent_round_trips() {
        for (number, written) in [(0.0, "0"), (0.25, "0.25"), (0.9, "0.9"), (1.0, "1"), (2.0, "2")] {
            let alpha = Alpha::try_from(number).unwrap();
            assert_eq!(alpha.to_string(), written);
            let text = serde_json::to_string(&alpha).unwrap();
            assert_eq!(serde_json::from_str::<Alpha>(&text).unwrap(), alpha);
        }
        assert_eq!(serde_json::from_str::<Alpha>("1").unwrap().hundredths(), 100);
        for number in [-0.01, 2.01, 0.125, f64::NAN, f64::INFINITY] {
            assert!(Alpha::try_from(number).is_err(), "{number}");
        }
    }
}
