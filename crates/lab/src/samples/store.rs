//! The directory of a run's results, complete after every sample.
//!
//! ```text
//! RESULTS/2026-11-21T10-15-00Z-sockets/
//!   run.json        the plan, the machine, the build
//!   samples.jsonl   a sample a line, in the order they were taken
//!   report.json     figures and ratios; written last
//! ```

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

use super::whole::write_whole;
use crate::keeper::Keeper;

/// Most runs of one experiment that can begin in the same second.
const MAX_SAME_SECOND: u32 = 100;

/// Results could not be saved.
#[derive(Debug, thiserror::Error)]
#[error("cannot write results to {}: {error}{}", path.display(), hint(error))]
pub struct StoreError {
    path: PathBuf,
    error: io::Error,
}

/// Advice on the usual causes.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (what was saved before is intact; make room or choose another place with --out)"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotFound => {
            " (choose another place with --out)"
        }
        _ => "",
    }
}

/// A run's directory.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    samples: File,
    /// Bytes of complete samples in the file.
    written: u64,
    /// Scratch directories made.
    scratches: u32,
    /// The keeper of the scratch directories, if there are any.
    keeper: Option<Keeper>,
}

impl Store {
    /// Creates the directory with the run's header in `run.json`. A run that cannot begin leaves no
    /// directory.
    pub fn begin(results: &Path, experiment: &str, header: &impl Serialize) -> Result<Self, StoreError> {
        let store = Self::create(results, experiment)?;
        store
            .write("run.json", header)
            .inspect_err(|_| drop(fs::remove_dir_all(&store.directory)))?;
        Ok(store)
    }

    /// Creates a directory for a run of `experiment` in `results`, and `results` if necessary.
    pub fn create(results: &Path, experiment: &str) -> Result<Self, StoreError> {
        let at = |path: &Path, error| StoreError {
            path: path.to_owned(),
            error,
        };
        fs::create_dir_all(results).map_err(|error| at(results, error))?;
        let directory = make_directory(results, experiment).map_err(|error| at(results, error))?;
        let path = directory.join("samples.jsonl");
        let samples = File::create_new(&path)
            .inspect_err(|_| drop(fs::remove_dir(&directory)))
            .map_err(|error| at(&path, error))?;
        Ok(Self {
            directory,
            samples,
            written: 0,
            scratches: 0,
            keeper: None,
        })
    }

    /// Opens the directory of a resumed run, whose file of samples has `whole` bytes of complete
    /// samples.
    pub(super) fn open(directory: &Path, whole: u64) -> Result<Self, StoreError> {
        let path = directory.join("samples.jsonl");
        let open = || -> io::Result<File> {
            let mut samples = File::options().write(true).open(&path)?;
            samples.set_len(whole)?;
            samples.seek(SeekFrom::End(0))?;
            Ok(samples)
        };
        let samples = open().map_err(|error| StoreError { path, error })?;
        let store = Self {
            directory: directory.to_owned(),
            samples,
            written: whole,
            scratches: 0,
            keeper: None,
        };
        // Removes the scratch directories of a killed run.
        let _ = fs::remove_dir_all(store.scratch());
        Ok(store)
    }

    /// The run's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates a scratch directory for a candidate. It is removed with the store, and with this
    /// process.
    pub(crate) fn new_scratch(&mut self) -> Result<PathBuf, StoreError> {
        self.scratches += 1;
        let path = self.scratch().join(self.scratches.to_string());
        self.make_kept(&path).map_err(|error| StoreError {
            path: path.clone(),
            error,
        })?;
        Ok(path)
    }

    fn make_kept(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)?;
        if self.keeper.is_none() {
            self.keeper = Some(Keeper::of(&self.scratch(), None)?);
        }
        Ok(())
    }

    fn scratch(&self) -> PathBuf {
        self.directory.join("scratch")
    }

    /// Saves a sample: a [`Sample`], or another experiment's type. If there is no room for it, no
    /// part of it stays in the file.
    ///
    /// [`Sample`]: super::Sample
    pub fn append(&mut self, sample: &impl Serialize) -> Result<(), StoreError> {
        self.try_append(sample).map_err(|error| {
            let _ = self.samples.set_len(self.written);
            let _ = self.samples.seek(SeekFrom::Start(self.written));
            StoreError {
                path: self.directory.join("samples.jsonl"),
                error,
            }
        })
    }

    fn try_append(&mut self, sample: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(sample)?;
        line.push(b'\n');
        self.samples.write_all(&line)?;
        self.written += line.len() as u64;
        Ok(())
    }

    /// Writes the whole `value` as JSON to the file `name` of the run, or nothing.
    pub fn write(&self, name: &str, value: &impl Serialize) -> Result<(), StoreError> {
        write_json(&self.directory.join(name), value)
    }
}

/// Writes the whole `value` as JSON to `path`, or nothing.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let written = serde_json::to_vec_pretty(value).map_err(io::Error::from);
    let written = written.and_then(|mut text| {
        text.push(b'\n');
        write_whole(path, &text)
    });
    written.map_err(|error| StoreError {
        path: path.to_owned(),
        error,
    })
}

fn make_directory(results: &Path, experiment: &str) -> io::Result<PathBuf> {
    let experiment = experiment.replace('/', "-");
    let now = humantime::format_rfc3339_seconds(SystemTime::now())
        .to_string()
        .replace(':', "-");
    for attempt in 1..=MAX_SAME_SECOND {
        let suffix = if attempt == 1 {
            String::new()
        } else {
            format!("-{attempt}")
        };
        let directory = results.join(format!("{now}-{experiment}{suffix}"));
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| directory),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Outcome, Sample};
    use crate::workload::{Factors, Workload};

    fn sample(sequence: u32) -> Sample {
        Sample {
            round: 0,
            sequence,
            candidate: "unix".into(),
            name: "stream".into(),
            cell: Workload::Bulk.into(),
            factors: Factors::new(),
            began_unix_ms: 1,
            took_ns: 2,
            outcome: Outcome::Failed {
                reason: "why".into(),
                output: "a\nb".into(),
            },
        }
    }

    #[test]
    fn appended_sample_is_on_disk_at_once() {
        let results = tempfile::tempdir().unwrap();
        let mut store = Store::create(&results.path().join("new/place"), "test").unwrap();
        for sequence in 0..3 {
            store.append(&sample(sequence)).unwrap();
            let text = fs::read_to_string(store.directory().join("samples.jsonl")).unwrap();
            let read = text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect::<Vec<Sample>>();
            assert_eq!(read, (0..=sequence).map(sample).collect::<Vec<_>>());
        }
    }

    #[test]
    fn run_has_own_directory_and_leaves_no_scratch() {
        let results = tempfile::tempdir().unwrap();
        let mut stores = (0..3)
            .map(|_| Store::create(results.path(), "test").unwrap())
            .collect::<Vec<_>>();
        let mut directories = stores
            .iter()
            .map(|store| store.directory().to_owned())
            .collect::<Vec<_>>();
        let scratch = stores[0].new_scratch().unwrap();
        assert_ne!(scratch, stores[0].new_scratch().unwrap());
        fs::write(scratch.join("file"), "x").unwrap();
        drop(stores);
        directories.dedup();
        assert_eq!(directories.len(), 3);
        for directory in directories {
            let left = fs::read_dir(directory)
                .unwrap()
                .map(|entry| entry.unwrap().file_name());
            assert_eq!(left.collect::<Vec<_>>(), ["samples.jsonl"]);
        }
    }

    #[test]
    fn full_disk_is_reported_and_leaves_complete_samples() {
        let results = tempfile::tempdir().unwrap();
        let mut store = Store::create(results.path(), "test").unwrap();
        store.append(&sample(0)).unwrap();
        let kept = std::mem::replace(
            &mut store.samples,
            File::options().write(true).open("/dev/full").unwrap(),
        );
        let error = store.append(&sample(1)).unwrap_err().to_string();
        assert!(error.contains("make room"), "{error}");
        store.samples = kept;
        store.append(&sample(2)).unwrap();
        let text = fs::read_to_string(store.directory().join("samples.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(
            text.lines()
                .all(|line| serde_json::from_str::<Sample>(line).is_ok())
        );
    }

    #[test]
    fn run_that_cannot_begin_leaves_no_directory() {
        let results = tempfile::tempdir().unwrap();
        // JSON has no such keys.
        let header = std::collections::BTreeMap::from([((1, 2), 3)]);
        let error = Store::begin(results.path(), "test", &header).unwrap_err();
        assert!(error.to_string().contains("run.json"), "{error}");
        assert_eq!(fs::read_dir(results.path()).unwrap().count(), 0);
    }

    #[test]
    fn unwritable_directory_is_reported() {
        let error = Store::create(Path::new("/proc/nowhere"), "test")
            .unwrap_err()
            .to_string();
        assert!(error.contains("/proc/nowhere"), "{error}");
        let results = tempfile::tempdir().unwrap();
        let path = results.path().join("missing/report.json");
        assert!(
            write_json(&path, &1)
                .unwrap_err()
                .to_string()
                .contains("report.json")
        );
    }
}
