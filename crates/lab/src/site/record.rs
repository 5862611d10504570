//! The directory of each site, and the record in it.
//!
//! The runner of a site holds a lock in its directory for as long as it lives. So a record without
//! a held lock is what a dead runner left.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::deployment::{SiteStack, is_name};
use super::error::SiteFailure;
use super::room::RoomDoor;
use super::servers::ServerProgram;
use crate::cgroup::ControlGroup;
use crate::keeper::Keeper;

/// The record's file, in the site's directory.
const RECORD: &str = "site.json";

/// The lock's file, in the site's directory.
const LOCK: &str = "lock";

/// The state of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteState {
    /// Its servers are being started.
    Starting,
    /// A request went through the whole chain, and all servers run.
    Up,
    /// A server has ended.
    Failed,
    /// Its runner is gone; `down` removes what is left.
    Dead,
}

/// One tier, as its site's runner started it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TierRecord {
    pub(super) name: String,
    pub(super) program: ServerProgram,
    pub(super) port: u16,
    pub(super) log: PathBuf,
    pub(super) configuration: Option<PathBuf>,
    pub(super) has_cache: bool,
    pub(super) memory: Option<u64>,
    pub(super) door: RoomDoor,
}

/// What commands need to know of a site.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SiteRecord {
    pub(super) name: String,
    pub(super) state: SiteState,
    /// Seconds since 1970.
    pub(super) started: u64,
    /// The process that holds the site.
    pub(super) runner: u32,
    pub(super) plan: PathBuf,
    pub(super) stack: SiteStack,
    pub(super) clients: u8,
    pub(super) tiers: Vec<TierRecord>,
    /// The clients' room, once it is there.
    pub(super) door: Option<RoomDoor>,
    /// The name of a file that clients ask.
    pub(super) file: String,
    /// The control group of all that the site is.
    pub(super) group: ControlGroup,
    pub(super) toehold: PathBuf,
    /// The files with which its emulated disks are controlled.
    #[serde(default)]
    pub(super) disks: Vec<PathBuf>,
    /// Why it failed.
    pub(super) failure: Option<String>,
}

/// The directory of all sites.
#[derive(Debug, Clone)]
pub struct Sites(PathBuf);

impl Sites {
    /// The sites in a directory, which need not exist.
    pub fn in_directory(directory: &Path) -> io::Result<Self> {
        Ok(Self(std::path::absolute(directory)?))
    }

    /// The directory of a site.
    pub(super) fn directory_of(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The path of all.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// All records, by name. The state of one without a runner is `Dead`.
    pub(super) fn all(&self) -> Vec<SiteRecord> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut records: Vec<_> = names.filter_map(|name| self.record_of(&name).ok()).collect();
        records.sort_by(|one, other| one.name.cmp(&other.name));
        records
    }

    /// The record of a site.
    pub(super) fn record_of(&self, name: &str) -> Result<SiteRecord, SiteFailure> {
        let unknown = || SiteFailure::Unknown(name.to_owned());
        if !is_name(name) {
            return Err(unknown());
        }
        let directory = self.directory_of(name);
        let text = fs::read(directory.join(RECORD)).map_err(|_| unknown())?;
        let mut record: SiteRecord = serde_json::from_slice(&text)
            .map_err(|error| SiteFailure::File(directory.join(RECORD), error.into()))?;
        if !is_held(&directory) {
            record.state = SiteState::Dead;
        }
        Ok(record)
    }

    /// Makes the directory of a site, with its record, and returns its held lock. What a dead runner
    /// left under the name is removed first.
    pub(super) fn begin(&self, record: &SiteRecord) -> Result<File, SiteFailure> {
        let make = |path: &Path| {
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
            made.map_err(|error| SiteFailure::File(path.to_owned(), error))
        };
        make(&self.0)?;
        self.remove_unbegun();
        // With the lock in it from the start, it is never taken for a dead one's.
        let begun = self.0.join(format!(".{}-{}", record.name, record.runner));
        make(&begun)?;
        let whole = self.directory_of(&record.name);
        let done = self.begin_in(&begun, &whole, record);
        if done.is_err() {
            // The reason is more than what removing it says.
            let _ = fs::remove_dir_all(&begun);
        }
        done
    }

    /// Removes directories of runners that were killed before they had a site.
    fn remove_unbegun(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let hidden = name.to_str().and_then(|name| name.strip_prefix('.'));
            let runner = hidden.and_then(|name| name.rsplit_once('-')?.1.parse::<u32>().ok());
            if runner.is_some_and(|runner| !Path::new(&format!("/proc/{runner}")).exists()) {
                // Another runner may do the same at this moment.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    fn begin_in(&self, begun: &Path, whole: &Path, record: &SiteRecord) -> Result<File, SiteFailure> {
        let failed = |error: io::Error| SiteFailure::File(begun.to_owned(), error);
        // Servers of other users read the content below it, whatever the umask.
        fs::set_permissions(begun, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        let lock = File::create(begun.join(LOCK)).map_err(failed)?;
        lock.lock().map_err(failed)?;
        save(begun, record)?;
        if fs::rename(begun, whole).is_ok() {
            return Ok(lock);
        }
        if is_held(whole) {
            return Err(SiteFailure::IsUp(record.name.clone()));
        }
        self.clear(&record.name, &record.toehold)?;
        fs::rename(begun, whole).map_err(|error| SiteFailure::File(whole.to_owned(), error))?;
        Ok(lock)
    }

    /// Removes what a dead runner has left: processes, control groups, nodes, files.
    pub(super) fn clear(&self, name: &str, toehold: &Path) -> Result<(), SiteFailure> {
        let directory = self.directory_of(name);
        let failed = |error| SiteFailure::File(directory.clone(), error);
        let group = self.record_of(name).map(|record| record.group);
        let keeper = Keeper::of(&directory, Some(toehold)).map_err(failed)?;
        if let Ok(group) = group {
            keeper.remove_control_group(&group).map_err(failed)?;
        }
        drop(keeper);
        Ok(())
    }
}

/// Writes a record into a site's directory, whole or not at all.
pub(super) fn save(directory: &Path, record: &SiteRecord) -> Result<(), SiteFailure> {
    let path = directory.join(RECORD);
    let text =
        serde_json::to_vec_pretty(record).map_err(|error| SiteFailure::File(path.clone(), error.into()))?;
    let new = directory.join("site.json.new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
    written.map_err(|error| SiteFailure::File(path, error))
}

/// Whether a runner holds a site's directory.
fn is_held(directory: &Path) -> bool {
    let lock = File::open(directory.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> SiteRecord {
        SiteRecord {
            name: name.to_owned(),
            state: SiteState::Up,
            started: 1,
            runner: std::process::id(),
            plan: "plan.toml".into(),
            stack: SiteStack::Kernel,
            clients: 1,
            tiers: Vec::new(),
            door: None,
            file: "f".into(),
            group: ControlGroup::named("toehold-no-such-group").unwrap(),
            toehold: "true".into(),
            disks: Vec::new(),
            failure: None,
        }
    }

    #[test]
    fn second_site_of_a_name_is_refused_while_the_first_is_held() {
        let place = tempfile::tempdir().unwrap();
        let sites = Sites::in_directory(&place.path().join("sites")).unwrap();
        // No process has this number.
        fs::create_dir_all(sites.path().join(".a-4294967295")).unwrap();
        let lock = sites.begin(&record("a")).unwrap();
        assert_eq!(sites.record_of("a").unwrap().state, SiteState::Up);
        assert!(matches!(sites.begin(&record("a")), Err(SiteFailure::IsUp(_))));
        drop(lock);
        assert_eq!(sites.record_of("a").unwrap().state, SiteState::Dead);
        let _lock = sites.begin(&record("a")).unwrap();
        assert_eq!(sites.record_of("a").unwrap().state, SiteState::Up);
        assert_eq!(sites.all().len(), 1, "nothing else is left in the directory");
        assert_eq!(fs::read_dir(sites.path()).unwrap().count(), 1);
    }

    #[test]
    fn dead_site_is_cleared() {
        let place = tempfile::tempdir().unwrap();
        let sites = Sites::in_directory(place.path()).unwrap();
        drop(sites.begin(&record("a")).unwrap());
        sites.clear("a", Path::new("true")).unwrap();
        assert!(matches!(sites.record_of("a"), Err(SiteFailure::Unknown(_))));
        assert!(matches!(sites.record_of("../a"), Err(SiteFailure::Unknown(_))));
    }
}
