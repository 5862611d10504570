//! Interrupted runs that can be resumed.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Sample, Store, StoreError};
use crate::host::Host;
use crate::report::Header;

/// A run that was not completed.
#[derive(Debug)]
pub struct Unfinished {
    /// The run's header.
    pub header: Header,
    /// The run's samples.
    pub samples: Vec<Sample>,
    directory: PathBuf,
    /// Bytes of complete samples in the file.
    whole: u64,
}

/// The reason why a run cannot be resumed.
#[derive(Debug, thiserror::Error)]
#[error("the run in {} cannot be resumed: {reason}", directory.display())]
pub struct UnfinishedError {
    directory: PathBuf,
    reason: String,
}

impl Unfinished {
    /// Opens the run in a directory. It must have the same plan, machine and build as a run that
    /// begins now; only its seed may differ.
    pub fn open(directory: &Path, now: &Header) -> Result<Self, UnfinishedError> {
        Self::try_open(directory, now).map_err(|reason| UnfinishedError {
            directory: directory.to_owned(),
            reason,
        })
    }

    /// The latest such run among results.
    pub fn latest(results: &Path, now: &Header) -> Option<Self> {
        let mut runs: Vec<_> = fs::read_dir(results)
            .ok()?
            .flatten()
            .map(|run| run.path())
            .collect();
        // The names of runs begin with their time.
        runs.sort_unstable();
        runs.iter().rev().find_map(|run| Self::try_open(run, now).ok())
    }

    fn try_open(directory: &Path, now: &Header) -> Result<Self, String> {
        let path = directory.join("run.json");
        let header = Header::read(&path, read(&path)?.as_bytes()).map_err(|error| error.to_string())?;
        is_same(&header, now)?;
        if is_complete(directory) {
            return Err("it has come to its end".into());
        }
        let text = read(&directory.join("samples.jsonl"))?;
        let (mut samples, mut whole) = (Vec::new(), 0);
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let Ok(sample) = serde_json::from_str::<Sample>(line) else {
                break;
            };
            samples.push(sample);
            whole += line.len() as u64;
        }
        Ok(Self {
            header,
            samples,
            directory: directory.to_owned(),
            whole,
        })
    }

    /// Opens the store for its next samples. An incomplete sample is removed.
    pub fn store(&self) -> Result<Store, StoreError> {
        Store::open(&self.directory, self.whole)
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn is_same(then: &Header, now: &Header) -> Result<(), String> {
    let mut plan = now.plan.clone();
    plan.seed = then.plan.seed;
    let same = [
        (
            then.plan.experiment == plan.experiment,
            "it is one of another plan",
        ),
        (then.plan == plan, "its plan or its settings are others"),
        (then.build == now.build, "it was measured with another build"),
        (
            machine(Some(&then.host)) == machine(Some(&now.host)),
            "it is of another machine",
        ),
        (
            machine(then.far.as_ref().map(|met| &met.host)) == machine(now.far.as_ref().map(|met| &met.host)),
            "its other machine is another one",
        ),
    ];
    match same.into_iter().find(|(is_same, _)| !is_same) {
        Some((_, reason)) => Err(reason.into()),
        None => Ok(()),
    }
}

/// The facts that identify a machine.
fn machine(host: Option<&Host>) -> Option<(&Option<String>, &Option<String>)> {
    host.map(|host| (&host.cpu, &host.kernel))
}

/// The fields of a report that matter here.
#[derive(Deserialize)]
struct End {
    complete: bool,
}

fn is_complete(directory: &Path) -> bool {
    let text = fs::read_to_string(directory.join("report.json")).unwrap_or_default();
    serde_json::from_str(&text).is_ok_and(|End { complete }| complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{PlanFile, builtin};
    use crate::samples::Outcome;

    fn header() -> Header {
        let plans = builtin::all().unwrap();
        let plan: &PlanFile = &plans[0];
        Header::now(plan.plan(true, 7, [0, 1]))
    }

    fn sample(header: &Header, sequence: u32) -> Sample {
        let cell = header.plan.cells[0];
        Sample {
            round: 0,
            sequence,
            candidate: "unix".into(),
            name: cell.name(),
            cell,
            factors: cell.factors(),
            began_unix_ms: 1,
            took_ns: 2,
            outcome: Outcome::Unavailable { reason: "why".into() },
        }
    }

    /// A run with two samples and half of a third.
    fn interrupted(results: &Path, header: &Header) -> PathBuf {
        let mut store = Store::create(results, &header.plan.experiment).unwrap();
        store.write("run.json", header).unwrap();
        store.append(&sample(header, 0)).unwrap();
        store.append(&sample(header, 1)).unwrap();
        let directory = store.directory().to_owned();
        let path = directory.join("samples.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{text}{}", &text[..40])).unwrap();
        directory
    }

    #[test]
    fn interrupted_run_resumes_behind_last_complete_sample() {
        let (results, header) = (tempfile::tempdir().unwrap(), header());
        let directory = interrupted(results.path(), &header);
        let now = Header {
            plan: crate::Plan {
                deployments: std::collections::BTreeMap::new(),
                seed: 8,
                ..header.plan.clone()
            },
            ..header.clone()
        };
        let run = Unfinished::latest(results.path(), &now).unwrap();
        assert_eq!((run.header.plan.seed, run.samples.len()), (7, 2));
        let mut store = run.store().unwrap();
        assert_eq!(store.directory(), directory);
        store.append(&sample(&header, 2)).unwrap();
        let again = Unfinished::open(&directory, &now).unwrap();
        let sequences: Vec<_> = again.samples.iter().map(|sample| sample.sequence).collect();
        assert_eq!(sequences, [0, 1, 2]);
    }

    #[test]
    fn run_with_other_plan_or_build_is_not_resumed() {
        let (results, header) = (tempfile::tempdir().unwrap(), header());
        let directory = interrupted(results.path(), &header);
        let refused = |change: fn(&mut Header)| {
            let mut now = header.clone();
            change(&mut now);
            assert!(Unfinished::latest(results.path(), &now).is_none());
            Unfinished::open(&directory, &now).unwrap_err().to_string()
        };
        assert!(refused(|now| now.plan.experiment = "toe/fig9".into()).contains("another plan"));
        assert!(refused(|now| now.plan.settings.span_ms += 1).contains("settings are others"));
        assert!(refused(|now| now.build.commit = "other".into()).contains("another build"));
        assert!(refused(|now| now.host.kernel = None).contains("another machine"));
        fs::write(directory.join("report.json"), r#"{"complete":true}"#).unwrap();
        assert!(refused(|_| ()).contains("come to its end"));
        fs::write(directory.join("report.json"), r#"{"complete":false}"#).unwrap();
        assert!(Unfinished::latest(results.path(), &header).is_some());
        fs::write(directory.join("run.json"), r#"{"format":1}"#).unwrap();
        assert!(refused(|_| ()).contains("has format 1"));
    }
}
