//! Plan files: converts TOML into plans that can be carried out.
//!
//! A file has factors, each with a list of values, and workloads. Each workload is measured at
//! every combination of the factors that it takes. `docs/experiments.md` describes the format. All
//! mistakes are found here, and reported with their line.

mod cells;
mod figures;

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::{Comparison, Paper, Plan, Said, Settings, StopRule, Wanted};
use crate::testbed::{self, Candidate};
use crate::workload::Cell;

/// Values by the name of their factor or field.
type Values = BTreeMap<String, Spanned<Value>>;

/// Names of candidates.
type Names = Spanned<Vec<Spanned<String>>>;

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

/// A valid file: both plans it stands for.
#[derive(Debug, Clone)]
pub struct PlanFile {
    /// What the plan shows and how to read it, for people.
    pub about: String,
    full: Plan,
    quick: Plan,
}

impl PlanFile {
    /// Parses the text of a file; `origin` is its name in messages.
    pub fn parse(origin: &str, text: &str) -> Result<Self, PlanFileError> {
        let reader = Reader { origin, text };
        let content: Content = toml::from_str(text).map_err(|error| {
            let place = error.span().map_or(0, |span| span.start);
            reader.error(place, plain(error.message()))
        })?;
        let full = content.plan(&reader, false)?;
        figures::check(&content, &full, &reader)?;
        Ok(Self {
            quick: content.plan(&reader, true)?,
            about: content.about.unwrap_or_default(),
            full,
        })
    }

    /// Name of the experiment: `toe/fig3`.
    pub fn name(&self) -> &str {
        &self.full.experiment
    }

    /// The plan, or its short form, with a seed, for the server's and the client's core.
    pub fn plan(&self, is_quick: bool, seed: u64, cores: [usize; 2]) -> Plan {
        let plan = if is_quick { &self.quick } else { &self.full };
        let mut plan = plan.clone();
        plan.seed = seed;
        plan.settings.cores = cores;
        plan
    }
}

/// The contents of the file, before they are checked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Content {
    name: Spanned<String>,
    title: String,
    about: Option<String>,
    candidates: Names,
    #[serde(default)]
    compare: Vec<Spanned<String>>,
    #[serde(default)]
    show: Vec<Spanned<String>>,
    #[serde(default)]
    factors: Values,
    workload: Vec<Spanned<Values>>,
    measure: Option<Spanned<Measure>>,
    #[serde(default)]
    quick: Quick,
    paper: Option<PaperTable>,
    #[serde(default)]
    wanted: Vec<Wanted>,
}

/// How, and how often, measurements are taken.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Measure {
    rounds: Option<u32>,
    most_rounds: Option<u32>,
    half_width: Option<f64>,
    warm_up_ms: Option<u64>,
    span_ms: Option<u64>,
    patience_ms: Option<u64>,
    congestion: Option<String>,
}

/// The differences of the short form.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Quick {
    candidates: Option<Names>,
    #[serde(default)]
    factors: Values,
    measure: Option<Spanned<Measure>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct PaperTable {
    section: String,
    #[serde(default)]
    says: Vec<Spanned<Said>>,
}

/// Maps places in the file to lines.
struct Reader<'a> {
    origin: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn error(&self, place: usize, reason: impl Into<String>) -> PlanFileError {
        let before = self.text.as_bytes().iter().take(place);
        PlanFileError {
            origin: self.origin.to_owned(),
            line: 1 + before.filter(|&&byte| byte == b'\n').count(),
            reason: reason.into(),
        }
    }

    fn at<T>(&self, spanned: &Spanned<T>, reason: impl Into<String>) -> PlanFileError {
        self.error(spanned.span().start, reason)
    }
}

impl Content {
    fn plan(&self, reader: &Reader<'_>, is_quick: bool) -> Result<Plan, PlanFileError> {
        let candidates = match (&self.quick.candidates, is_quick) {
            (Some(fewer), true) => fewer,
            _ => &self.candidates,
        };
        let candidates = known(candidates, reader)?;
        let cells = cells::of(self, &candidates, reader, is_quick)?;
        let own = |table: &Option<Spanned<Measure>>| table.as_ref().map(|it| it.get_ref().clone());
        let measure = own(&self.measure).unwrap_or_default();
        let (measure, table) = match &self.quick.measure {
            _ if !is_quick => (measure, &self.measure),
            Some(quick) => (measure.quickened(quick.get_ref()), &self.quick.measure),
            None => (measure.quickened(&Measure::default()), &self.measure),
        };
        let said = own(table).unwrap_or_default();
        if said.half_width.is_some()
            && measure.most_rounds.is_none()
            && (!is_quick || self.quick.measure.is_some())
            || said.most_rounds.is_some() && measure.half_width.is_none()
        {
            let place = table.as_ref().map_or(0, |table| table.span().start);
            return Err(reader.error(place, "`half-width` and `most-rounds` take one another"));
        }
        let plan = Plan {
            experiment: self.name.get_ref().clone(),
            title: self.title.clone(),
            comparisons: self.comparisons(&candidates, reader)?,
            candidates,
            show: self.show.iter().map(|part| part.get_ref().clone()).collect(),
            cells,
            wanted: self.wanted.clone(),
            paper: self.paper.as_ref().map(|paper| Paper {
                section: paper.section.clone(),
                says: paper.says.iter().map(|said| said.get_ref().clone()).collect(),
            }),
            rounds: measure.rounds(is_quick),
            stop: measure.stop_rule(),
            seed: 0,
            settings: measure.settings(is_quick),
        };
        plan.check(testbed::ALL).map_err(|error| match table {
            Some(table) if error.is_of_measuring() => reader.at(table, error.to_string()),
            _ => reader.at(&self.name, error.to_string()),
        })?;
        Ok(plan)
    }

    /// The comparisons whose candidates are both measured.
    fn comparisons(
        &self,
        measured: &[String],
        reader: &Reader<'_>,
    ) -> Result<Vec<Comparison>, PlanFileError> {
        let mut comparisons = Vec::new();
        for written in &self.compare {
            let of = |name: &str| {
                self.candidates
                    .get_ref()
                    .iter()
                    .any(|candidate| candidate.get_ref() == name)
            };
            let Some((candidate, baseline)) = written.get_ref().split_once('/') else {
                let reason = "write a comparison as CANDIDATE/BASELINE";
                return Err(reader.at(written, reason));
            };
            if let Some(other) = [candidate, baseline].into_iter().find(|name| !of(name)) {
                return Err(reader.at(written, format!("`{other}` is none of this plan's candidates")));
            }
            if candidate == baseline {
                return Err(reader.at(written, format!("`{candidate}` is compared with itself")));
            }
            if self
                .compare
                .iter()
                .filter(|other| other.get_ref() == written.get_ref())
                .count()
                > 1
            {
                return Err(reader.at(written, format!("`{}` is here twice", written.get_ref())));
            }
            let both = [candidate, baseline].map(str::to_owned);
            if both.iter().all(|name| measured.contains(name)) {
                let [candidate, baseline] = both;
                comparisons.push(Comparison { candidate, baseline });
            }
        }
        Ok(comparisons)
    }
}

/// The mistake in a value, without names of the program's own types.
fn plain(error: &str) -> String {
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

/// Checks that the candidates exist, that each occurs once, and that there is at least one.
fn known(names: &Names, reader: &Reader<'_>) -> Result<Vec<String>, PlanFileError> {
    if names.get_ref().is_empty() {
        let reason =
            "`candidates` is empty: name what is to be measured, such as \"adaptive\" and \"kernel-veth\"";
        return Err(reader.at(names, reason));
    }
    let mut known: Vec<String> = Vec::new();
    for name in names.get_ref() {
        let text = name.get_ref();
        if !testbed::ALL.iter().any(|candidate| candidate.name == text) {
            let all: Vec<_> = testbed::ALL.iter().map(|Candidate { name, .. }| *name).collect();
            let reason = format!("there is no candidate `{text}`; there are {}", all.join(", "));
            return Err(reader.at(name, reason));
        }
        if known.contains(text) {
            return Err(reader.at(name, format!("`{text}` is here twice")));
        }
        known.push(text.clone());
    }
    Ok(known)
}

impl Measure {
    /// The settings with those of the short form in place. It has no rounds but its own.
    fn quickened(self, quick: &Self) -> Self {
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

    fn rounds(&self, is_quick: bool) -> u32 {
        self.rounds.unwrap_or(if is_quick { 5 } else { 9 })
    }

    fn stop_rule(&self) -> Option<StopRule> {
        Some(StopRule {
            half_width: self.half_width?,
            most_rounds: self.most_rounds?,
        })
    }

    fn settings(&self, is_quick: bool) -> Settings {
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

#[cfg(test)]
mod tests;
