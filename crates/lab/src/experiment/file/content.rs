//! The contents of a plan file, before they are checked, and the places of mistakes.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

use crate::experiment::{Said, StopRule, Wanted};
use crate::settings::Settings;

/// Values by the name of their factor or field.
pub(super) type Values = BTreeMap<String, Spanned<Value>>;

/// Names of candidates.
pub(super) type Names = Spanned<Vec<Spanned<String>>>;

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}:{line}: {reason}")]
pub struct PlanFileError {
    /// The file.
    pub origin: String,
    /// The line, from 1.
    pub line: usize,
    /// The mistake, and what to do about it.
    pub reason: String,
}

/// The contents of the file, before they are checked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Content {
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    pub(super) about: Option<String>,
    pub(super) candidates: Names,
    #[serde(default)]
    pub(super) deployment: BTreeMap<String, Spanned<toml::Table>>,
    #[serde(default)]
    pub(super) compare: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) show: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) factors: Values,
    pub(super) workload: Vec<Spanned<Values>>,
    pub(super) measure: Option<Spanned<Measure>>,
    #[serde(default)]
    pub(super) quick: Quick,
    pub(super) paper: Option<PaperTable>,
    #[serde(default)]
    pub(super) wanted: Vec<Wanted>,
}

/// How, and how often, measurements are taken.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Measure {
    pub(super) rounds: Option<u32>,
    pub(super) most_rounds: Option<u32>,
    pub(super) half_width: Option<f64>,
    pub(super) warm_up_ms: Option<u64>,
    pub(super) span_ms: Option<u64>,
    pub(super) patience_ms: Option<u64>,
    pub(super) congestion: Option<String>,
}

/// The differences of the short form.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Quick {
    pub(super) candidates: Option<Names>,
    #[serde(default)]
    pub(super) factors: Values,
    pub(super) measure: Option<Spanned<Measure>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct PaperTable {
    pub(super) section: String,
    #[serde(default)]
    pub(super) says: Vec<Spanned<Said>>,
}

/// Maps places in the file to lines.
pub(crate) struct Reader<'a> {
    pub(crate) origin: &'a str,
    pub(crate) text: &'a str,
}

impl Reader<'_> {
    pub(crate) fn error(&self, place: usize, reason: impl Into<String>) -> PlanFileError {
        let before = self.text.as_bytes().iter().take(place);
        PlanFileError {
            origin: self.origin.to_owned(),
            line: 1 + before.filter(|&&byte| byte == b'\n').count(),
            reason: reason.into(),
        }
    }

    pub(crate) fn at<T>(&self, spanned: &Spanned<T>, reason: impl Into<String>) -> PlanFileError {
        self.error(spanned.span().start, reason)
    }
}

/// The mistake in a value, without names of the program's own types.
pub(crate) fn plain(error: &str) -> String {
    const TYPES: [(&str, &str); 6] = [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number"),
        ("expected f64", "expected a number"),
        (" as i128", ""),
    ];
    let one = |text: String, (own, plain): (&str, &str)| text.replace(own, plain);
    TYPES.into_iter().fold(error.to_owned(), one)
}

impl Measure {
    /// The settings with those of the short form in place. It has no rounds but its own.
    pub(super) fn quickened(self, quick: &Self) -> Self {
        let quick = quick.clone();
        Self {
            rounds: quick.rounds,
            most_rounds: quick.most_rounds,
            half_width: quick.half_width.or(self.half_width),
            warm_up_ms: quick.warm_up_ms,
            span_ms: quick.span_ms,
            patience_ms: quick.patience_ms.or(self.patience_ms),
            congestion: quick.congestion.or(self.congestion),
        }
    }

    pub(super) fn rounds(&self, is_quick: bool) -> u32 {
        self.rounds.unwrap_or(if is_quick { 5 } else { 9 })
    }

    pub(super) fn stop_rule(&self) -> Option<StopRule> {
        Some(StopRule {
            half_width: self.half_width?,
            most_rounds: self.most_rounds?,
        })
    }

    pub(super) fn settings(&self, is_quick: bool) -> Settings {
        let or = |said: Option<u64>, quick, full| said.unwrap_or(if is_quick { quick } else { full });
        Settings {
            warm_up_ms: or(self.warm_up_ms, 20, 50),
            span_ms: or(self.span_ms, 80, 250),
            patience_ms: or(self.patience_ms, 5_000, 10_000),
            cores: [0, 0],
            congestion: self.congestion.clone().unwrap_or_else(|| "reno".into()),
            trace: None,
            far: None,
        }
    }
}
