//! A run read back from its directory, whether it was completed or not.
//!
//! Figures are always computed from the samples. `report.json` only adds the duration of the run
//! and the use of the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::header::{FORMAT, Header};
use super::results::Report;
use crate::host::MachineUse;
use crate::samples::Sample;

/// The files of a run.
const FILES: [&str; 3] = ["run.json", "samples.jsonl", "report.json"];

/// A run that was saved.
#[derive(Debug)]
pub struct Saved {
    /// The run's findings.
    pub report: Report,
    /// The samples behind them.
    pub samples: Vec<Sample>,
    /// Unreadable parts of its files, for people.
    pub damage: Vec<String>,
    /// The run's unchanged files.
    pub files: Vec<RawFile>,
}

/// A file of a run.
#[derive(Debug)]
pub struct RawFile {
    /// The file's name in the run's directory.
    pub name: &'static str,
    /// The file's contents.
    pub bytes: Vec<u8>,
}

/// Reasons why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The directory has no run.
    #[error("{} is not a run: it has no run.json (a run is a directory among the results of `toehold bench`, `reproduce` or `sweep`)", .0.display())]
    NoRun(PathBuf),
    /// A file of the run cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file does not have the format of a run.
    #[error("{} is not a valid file of a run: {error}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The position and the error.
        error: serde_json::Error,
    },
    /// The file was written by another version.
    #[error("{} has format {found}, and this version of toehold knows {FORMAT}: use the one that wrote it", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The file's format.
        found: u32,
    },
}

/// The parts of `report.json` that are not computed from samples.
#[derive(Deserialize)]
struct Ending {
    took_ns: u64,
    complete: bool,
    machine: MachineUse,
}

impl Saved {
    /// Reads the run in `directory`.
    pub fn read(directory: &Path) -> Result<Self, ReadError> {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let mut files = Vec::new();
        for name in FILES {
            let path = directory.join(name);
            match fs::read(&path) {
                Ok(bytes) => files.push(RawFile { name, bytes }),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(ReadError::File { path, error }),
            }
        }
        let bytes_of = |name: &str| {
            files
                .iter()
                .find(|file| file.name == name)
                .map(|file| &file.bytes[..])
        };
        let run = bytes_of("run.json").ok_or_else(|| ReadError::NoRun(directory.clone()))?;
        let header = Header::read(&directory.join("run.json"), run)?;
        let mut damage = Vec::new();
        let samples = samples(bytes_of("samples.jsonl").unwrap_or_default(), &mut damage);
        let ending = ending(bytes_of("report.json"), &samples, &mut damage);
        let took = Duration::from_nanos(ending.took_ns);
        let report = Report::new(
            header,
            &samples,
            took,
            ending.complete,
            ending.machine,
            &directory,
        );
        Ok(Self {
            report,
            samples,
            damage,
            files,
        })
    }

    /// Reasons to doubt the figures, for people.
    pub fn doubts(&self) -> Vec<String> {
        self.damage.iter().cloned().chain(self.report.doubts()).collect()
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

impl Header {
    /// Parses the header of a run; `path` is the file's name in messages.
    pub(crate) fn read(path: &Path, bytes: &[u8]) -> Result<Self, ReadError> {
        versioned(path, bytes)
    }
}

impl Report {
    /// Parses a report in JSON; `path` is its name in messages.
    pub fn read(path: &Path, bytes: &[u8]) -> Result<Self, ReadError> {
        versioned(path, bytes)
    }
}

fn versioned<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, ReadError> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let path = path.to_owned();
    // Another format may have another structure, so its number is checked first.
    match serde_json::from_slice(bytes) {
        Ok(Version { format }) if format != FORMAT => Err(ReadError::Format { path, found: format }),
        _ => serde_json::from_slice(bytes).map_err(|error| ReadError::Content { path, error }),
    }
}

/// All complete samples. A killed run may have left an incomplete one.
fn samples(bytes: &[u8], damage: &mut Vec<String>) -> Vec<Sample> {
    let lines = bytes.split(|&byte| byte == b'\n').enumerate();
    let mut samples = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(sample) => samples.push(sample),
            Err(error) => damage.push(format!(
                "line {} of samples.jsonl is left out: {error}",
                index + 1
            )),
        }
    }
    samples
}

fn ending(bytes: Option<&[u8]>, samples: &[Sample], damage: &mut Vec<String>) -> Ending {
    match bytes.map(serde_json::from_slice::<Ending>) {
        Some(Ok(ending)) => return ending,
        Some(Err(error)) => damage.push(format!("report.json is not understood: {error}")),
        None => {}
    }
    let began = samples.iter().map(|sample| sample.began_unix_ms).min();
    let ended = samples
        .iter()
        .map(|sample| sample.began_unix_ms + sample.took_ns / 1_000_000)
        .max();
    let took_ms = ended
        .zip(began)
        .map_or(0, |(ended, began)| ended.saturating_sub(began));
    Ending {
        took_ns: took_ms.saturating_mul(1_000_000),
        complete: false,
        machine: MachineUse::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{report, samples as some_samples};

    /// A run's directory with these files.
    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    fn header_text() -> String {
        serde_json::to_string(&report().header).unwrap()
    }

    fn samples_text() -> String {
        let lines = some_samples()
            .into_iter()
            .map(|sample| serde_json::to_string(&sample).unwrap() + "\n");
        lines.collect()
    }

    #[test]
    fn complete_run_is_read_as_reported() {
        let report = report();
        let ending = serde_json::to_string(&report).unwrap();
        let files = [
            ("run.json", &*header_text()),
            ("samples.jsonl", &samples_text()),
            ("report.json", &ending),
        ];
        let read = Saved::read(directory(&files).path()).unwrap();
        assert!(
            read.report.complete && read.damage.is_empty(),
            "{:?}",
            read.damage
        );
        assert_eq!(read.report.ratios, report.ratios);
        assert_eq!(
            (read.report.took_ns, read.report.machine),
            (report.took_ns, report.machine)
        );
        assert_eq!(read.files.len(), 3);
        assert_eq!(read.files[1].bytes, samples_text().as_bytes());
    }

    #[test]
    fn killed_run_has_figures_so_far() {
        let samples = samples_text();
        let torn = &samples[..samples.len() - 20];
        let read =
            Saved::read(directory(&[("run.json", &header_text()), ("samples.jsonl", torn)]).path()).unwrap();
        assert!(!read.report.complete);
        assert_eq!(read.samples.len(), some_samples().len() - 1);
        assert_eq!(
            read.report.ratios,
            report().ratios,
            "all that was measured is there"
        );
        let doubts = read.doubts();
        let lines = samples.lines().count();
        assert!(
            doubts[0].starts_with(&format!("line {lines} of samples.jsonl is left out")),
            "{doubts:?}"
        );
        assert!(
            doubts.iter().any(|doubt| doubt.contains("interrupted")),
            "{doubts:?}"
        );
    }

    #[test]
    fn run_without_samples_is_read() {
        let read = Saved::read(directory(&[("run.json", &header_text())]).path()).unwrap();
        assert!(read.samples.is_empty() && read.report.metrics.is_empty());
    }

    #[test]
    fn directory_without_run_is_reported() {
        let said = |files: &[(&str, &str)]| Saved::read(directory(files).path()).unwrap_err().to_string();
        assert!(said(&[]).contains("is not a run: it has no run.json"));
        assert!(said(&[("run.json", "{\n  \"format\": 2,\n  oops")]).contains("line 3"));
        let later = format!("{{\"format\": {}}}", FORMAT + 1);
        assert!(said(&[("run.json", &later)]).contains("use the one that wrote it"));
        let report = |text: &str| {
            Report::read(Path::new("b.json"), text.as_bytes())
                .unwrap_err()
                .to_string()
        };
        assert!(report(&later).contains("use the one that wrote it"));
        assert!(report("[]").contains("b.json is not a valid file of a run"));
        let missing = Saved::read(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/at/all is not a run"), "{missing}");
    }
}
