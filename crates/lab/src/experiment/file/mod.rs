//! Plan files: converts TOML into plans that can be carried out.
//!
//! A file has factors, each with a list of values, and workloads. Each workload is measured at
//! every combination of the factors that it takes. `docs/experiments.md` describes the format. All
//! mistakes are found here, and reported with their line.

mod cells;
mod content;
mod deployments;
mod figures;

use std::collections::BTreeMap;

use toml::Spanned;

pub use content::PlanFileError;
use content::{Content, Measure, Names};
pub(crate) use content::{Reader, plain};

use super::{Comparison, Paper, Plan};
use crate::site::SiteCandidate;
use crate::testbed::{self, Candidate};

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

impl Content {
    fn plan(&self, reader: &Reader<'_>, is_quick: bool) -> Result<Plan, PlanFileError> {
        let candidates = match (&self.quick.candidates, is_quick) {
            (Some(fewer), true) => fewer,
            _ => &self.candidates,
        };
        let mut deployments = deployments::of(self, reader)?;
        let candidates = known(candidates, &deployments, reader)?;
        deployments.retain(|name, _| candidates.contains(name));
        let cells = cells::of(self, &candidates, &deployments, reader, is_quick)?;
        deployments::check(self, &deployments, &cells, reader)?;
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
            deployments,
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

/// Checks that the candidates exist, that each occurs once, and that there is at least one.
fn known(
    names: &Names,
    deployments: &BTreeMap<String, SiteCandidate>,
    reader: &Reader<'_>,
) -> Result<Vec<String>, PlanFileError> {
    if names.get_ref().is_empty() {
        let reason =
            "`candidates` is empty: name what is to be measured, such as \"adaptive\" and \"kernel-veth\"";
        return Err(reader.at(names, reason));
    }
    let mut known: Vec<String> = Vec::new();
    for name in names.get_ref() {
        let text = name.get_ref();
        if !deployments.is_empty() && !deployments.contains_key(text) {
            let reason = format!("there is no deployment `{text}`: write a table [deployment.{text}]");
            return Err(reader.at(name, reason));
        }
        if deployments.is_empty() && !testbed::ALL.iter().any(|candidate| candidate.name == text) {
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

#[cfg(test)]
mod tests;
