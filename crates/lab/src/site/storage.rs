//! What files lie on: a file system in memory, or one on emulated disks.
//!
//! All mounts are made in a mount namespace that only this laboratory's processes have. So no other
//! program can keep a disk busy. The emulated disks are processes outside of the tiers' control
//! groups. They end with their keeper, and clear what they have made.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::SiteFailure;
use super::room::{RoomHolder, bound_to};
use crate::cgroup::ControlGroup;
use crate::keeper::Keeper;
use crate::program::Program;
use crate::programs::{ProgramsError, Running, path};
use crate::samples::DiskUse;

/// Most disks of a file system.
pub(super) const MOST_DISKS: u8 = 3;

/// Interval of attempts to unmount, and their number. A reader may be about to close a file.
const UNMOUNT_PAUSE: Duration = Duration::from_millis(20);
const UNMOUNT_ATTEMPTS: u32 = 100;

/// More bytes of a disk than its files need: the journal, tables and directories of a file system.
const MORE_BYTES: u64 = 96 << 20;

/// Options that keep mkfs.ext4 from writing the whole disk, at once and later.
const EXT4: [&str; 4] = [
    "mkfs.ext4",
    "-q",
    "-E",
    "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
];

/// Without -K it would discard the whole disk.
const BTRFS: [&str; 8] = ["mkfs.btrfs", "-q", "-f", "-K", "-d", "raid0", "-m", "raid0"];

/// A file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteFileSystem {
    /// In memory.
    Tmpfs,
    /// On one disk.
    Ext4,
    /// Striped over several disks by the file system itself.
    Btrfs,
}

/// An emulated disk that `toehold disk` has built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteDisk {
    /// 8.5 ms, 7200/min, 38 MB/s.
    Ide,
    /// 3.5 ms, 15 000/min, 60 MB/s.
    Scsi,
    /// Three of `Scsi` behind a bus, as RAID-0.
    Raid,
}

impl SiteDisk {
    /// Its name for `toehold disk --kind`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ide => "ide",
            Self::Scsi => "scsi",
            Self::Raid => "raid",
        }
    }
}

/// A file system, and the disks that it lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StoragePlan {
    /// The file system.
    pub file_system: SiteFileSystem,
    /// The kind of its disks; none in memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk: Option<SiteDisk>,
    /// The number of disks.
    #[serde(default = "one")]
    pub disks: u8,
}

fn one() -> u8 {
    1
}

impl StoragePlan {
    /// Whether such a file system can be.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write.
    pub(super) fn check(&self) -> Result<(), String> {
        match (self.file_system, self.disk, self.disks) {
            (SiteFileSystem::Tmpfs, Some(_), _) => Err("tmpfs is in memory: leave `disk` out".into()),
            (SiteFileSystem::Ext4 | SiteFileSystem::Btrfs, None, _) => {
                Err("the file system needs a disk: write disk = \"ide\", \"scsi\" or \"raid\"".into())
            }
            (SiteFileSystem::Ext4, _, 2..) => {
                Err("ext4 has one disk: write disk = \"raid\", or file-system = \"btrfs\"".into())
            }
            (_, _, disks) if !(1..=MOST_DISKS).contains(&disks) => {
                Err(format!("`disks` is 1 to {MOST_DISKS}"))
            }
            _ => Ok(()),
        }
    }

    /// Its table in the plan of a site.
    pub(super) fn table(&self) -> String {
        let file_system = match self.file_system {
            SiteFileSystem::Tmpfs => "tmpfs",
            SiteFileSystem::Ext4 => "ext4",
            SiteFileSystem::Btrfs => "btrfs",
        };
        let disk = self
            .disk
            .map_or_else(String::new, |disk| format!("disk = \"{}\"\n", disk.name()));
        format!(
            "\n[storage]\nfile-system = \"{file_system}\"\n{disk}disks = {}\n",
            self.disks
        )
    }

    /// Programs that it needs, with the Debian packages that have them.
    pub(super) fn programs(&self) -> &'static [Program] {
        match self.file_system {
            SiteFileSystem::Tmpfs => &[],
            SiteFileSystem::Ext4 => &[("mkfs.ext4", "e2fsprogs"), ("losetup", "mount")],
            SiteFileSystem::Btrfs => &[("mkfs.btrfs", "btrfs-progs"), ("losetup", "mount")],
        }
    }
}

/// What a storage is made with.
#[derive(Debug)]
pub(super) struct StorageGround<'a> {
    pub(super) toehold: &'a Path,
    pub(super) keeper: &'a Keeper,
    /// A directory that the keeper removes.
    pub(super) directory: PathBuf,
    /// A control group that is not made yet, for the process that holds the namespace.
    pub(super) group: ControlGroup,
    /// The core of the disks' processes, if they are bound to one.
    pub(super) core: Option<usize>,
}

/// One emulated disk.
#[derive(Debug)]
struct HeldDisk<'a> {
    device: PathBuf,
    control: PathBuf,
    running: Option<Running<'a>>,
}

/// A file system that can be mounted. Dropping it ends its disks.
#[derive(Debug)]
pub(super) struct Storage<'a> {
    disks: Vec<HeldDisk<'a>>,
    /// The place of the file system, as the namespace sees it.
    place: PathBuf,
    holder: RoomHolder,
}

/// How a file system is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountMode {
    ReadOnly,
    ReadWrite,
}

impl<'a> Storage<'a> {
    /// Makes an empty file system for `bytes` in files, on disks whose clocks are off.
    pub(super) fn make(
        plan: StoragePlan,
        bytes: u64,
        scale: u32,
        ground: &StorageGround<'a>,
    ) -> Result<Self, SiteFailure> {
        let holder = RoomHolder::start(&ground.group, false, None)?;
        let place = ground.directory.join("files");
        let failed = |error| SiteFailure::File(place.clone(), error);
        fs::create_dir(&place).map_err(failed)?;
        let mut storage = Self {
            disks: Vec::new(),
            place,
            holder,
        };
        let each = bytes_of_disk(bytes, plan.disks);
        if let Some(disk) = plan.disk {
            for number in 0..plan.disks {
                let held = storage.begin_disk(disk, number, each, scale, ground)?;
                storage.disks.push(held);
            }
            storage.set_clock(false)?;
            let options: &[&str] = match plan.file_system {
                SiteFileSystem::Btrfs => &BTRFS,
                _ => &EXT4,
            };
            let devices = storage.disks.iter().map(|disk| disk.device.display().to_string());
            let words = options.iter().map(|&word| word.to_owned()).chain(devices);
            storage.run(&words.collect::<Vec<_>>(), "make the file system")?;
        }
        Ok(storage)
    }

    fn begin_disk(
        &self,
        disk: SiteDisk,
        number: u8,
        bytes: u64,
        scale: u32,
        ground: &StorageGround<'a>,
    ) -> Result<HeldDisk<'a>, SiteFailure> {
        let directory = ground.directory.join(format!("disk{number}"));
        let failed = |reason: String| step("begin an emulated disk", &reason);
        let mut words = bound_to(ground.core);
        words.extend(self.entering());
        words.push(ground.toehold.display().to_string());
        words.extend(["disk".to_owned(), directory.display().to_string()]);
        for (option, value) in [
            ("--kind", disk.name().to_owned()),
            ("--size", bytes.to_string()),
            ("--scale", scale.to_string()),
        ] {
            words.extend([option.to_owned(), value]);
        }
        words.push("--json".to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("PATH", path());
        let mut command = ground
            .keeper
            .watched(&command)
            .map_err(|error| failed(error.to_string()))?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running =
            Running::start(command, ground.keeper).map_err(|error| failed(error.to_string()))?;
        let output = running.child.stdout.take();
        let first = output.and_then(|output| {
            serde_json::Deserializer::from_reader(output)
                .into_iter::<Value>()
                .next()
        });
        let Some(Ok(begun)) = first else {
            let mut said = String::new();
            if let Some(mut errors) = running.child.stderr.take() {
                // What is there says enough.
                let _ = errors.read_to_string(&mut said);
            }
            return Err(match said.trim() {
                missing if missing.contains("/dev/fuse") || missing.contains("loop-control") => {
                    SiteFailure::Missing(missing.trim_start_matches("Error: ").to_owned())
                }
                said => failed(said.to_owned()),
            });
        };
        let device = begun["device"].as_str().unwrap_or_default();
        Ok(HeldDisk {
            device: device.into(),
            control: self.seen(&directory.join("control")),
            running: Some(running),
        })
    }

    /// The words that enter the namespace.
    fn entering(&self) -> Vec<String> {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.id());
        ["nsenter".to_owned(), namespace, "--".to_owned()].to_vec()
    }

    /// A path of the namespace, as other processes see it.
    fn seen(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Runs a command in the namespace.
    fn run(&self, words: &[String], what: &str) -> Result<(), SiteFailure> {
        let entering = self.entering();
        let mut command = Command::new(&entering[0]);
        command.args(&entering[1..]).args(words).env("PATH", path());
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| step(what, &error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(step(what, String::from_utf8_lossy(&output.stderr).trim()))
    }

    /// Mounts the file system, and returns its directory as other processes see it. No page of it is
    /// in the page cache then, unless it is in memory.
    pub(super) fn mount(&self, access: MountMode) -> Result<PathBuf, SiteFailure> {
        let options = match access {
            MountMode::ReadOnly => "ro,noatime,nosuid,nodev",
            MountMode::ReadWrite => "noatime,nosuid,nodev",
        };
        let place = self.place.display().to_string();
        let words = match self.disks.first() {
            Some(disk) => ["mount", "-o", options, &disk.device.display().to_string(), &place]
                .map(str::to_owned)
                .to_vec(),
            None => [
                "mount",
                "-t",
                "tmpfs",
                "-o",
                "nosuid,nodev,mode=755",
                "toehold",
                &place,
            ]
            .map(str::to_owned)
            .to_vec(),
        };
        self.run(&words, "mount the file system")?;
        Ok(self.seen(&self.place))
    }

    /// Unmounts the file system: what was written is on its disks then.
    pub(super) fn unmount(&self) -> Result<(), SiteFailure> {
        let words = ["umount".to_owned(), self.place.display().to_string()];
        let mut last = Ok(());
        for _ in 0..UNMOUNT_ATTEMPTS {
            last = self.run(&words, "unmount the file system");
            if last.is_ok() {
                break;
            }
            std::thread::sleep(UNMOUNT_PAUSE);
        }
        last
    }

    /// The device of a file system on disks, and the file with which its disks are controlled.
    pub(super) fn device(&self) -> Option<&Path> {
        self.disks.first().map(|disk| disk.device.as_path())
    }

    /// The files with which disks are controlled.
    pub(super) fn controls(&self) -> Vec<PathBuf> {
        self.disks.iter().map(|disk| disk.control.clone()).collect()
    }

    /// Has replies wait as the law says, and counters begin at 0; or has replies come at once.
    pub(super) fn set_clock(&self, is_on: bool) -> Result<(), SiteFailure> {
        set_clock(&self.controls(), is_on)
    }

    /// What its disks have counted.
    pub(super) fn used(&self) -> Result<Vec<DiskUse>, SiteFailure> {
        disks_used(&self.controls())
    }
}

impl Drop for Storage<'_> {
    fn drop(&mut self) {
        // A mount would keep a disk busy. It may not be there.
        let _ = self.run(
            &["umount".to_owned(), "-l".into(), self.place.display().to_string()],
            "",
        );
        for disk in &self.disks {
            if let Some(running) = &disk.running {
                running.ask_to_end();
            }
        }
        for disk in &mut self.disks {
            if let Some(running) = disk.running.take() {
                running.end();
            }
        }
    }
}

/// Bytes of each of several disks for files of so many bytes in all: whole megabytes.
fn bytes_of_disk(bytes: u64, disks: u8) -> u64 {
    let each = bytes / u64::from(disks.max(1)) + bytes / 8 + MORE_BYTES;
    each.next_multiple_of(1 << 20)
}

fn step(what: &str, reason: &str) -> SiteFailure {
    SiteFailure::Step(ProgramsError::Step(format!("{what}: {reason}")))
}

/// Turns the clocks of disks on, with counters at 0, or off.
pub(super) fn set_clock(controls: &[PathBuf], is_on: bool) -> Result<(), SiteFailure> {
    let text = match is_on {
        true => "{\"clock\": true, \"reset\": true}\n",
        false => "{\"clock\": false}\n",
    };
    for control in controls {
        // One write: a change is refused in parts.
        let written = fs::OpenOptions::new().write(true).open(control);
        let written = written.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|error| SiteFailure::File(control.clone(), error))?;
    }
    Ok(())
}

/// What disks have counted since their clocks were turned on.
pub(super) fn disks_used(controls: &[PathBuf]) -> Result<Vec<DiskUse>, SiteFailure> {
    let read = |control: &PathBuf| {
        let failed = |error| SiteFailure::File(control.clone(), error);
        let text = fs::read_to_string(control).map_err(failed)?;
        let state: Value = serde_json::from_str(&text).map_err(|error| failed(error.into()))?;
        let count = |field: &str| state["counters"][field].as_u64().unwrap_or(0);
        Ok(DiskUse {
            requests: count("requests"),
            sequential: count("sequential"),
            read_bytes: count("read_bytes"),
            written_bytes: count("written_bytes"),
            waited_ns: count("waited_ns"),
            served_ns: count("served_ns"),
            busy_ns: count("busy_ns"),
            span_ns: state["span_ns"].as_u64().unwrap_or(0),
            heads: u32::try_from(state["kind"]["array"]["heads"].as_u64().unwrap_or(1)).unwrap_or(1),
            late_share: state["late_share"].as_f64(),
        })
    };
    controls.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_that_cannot_be_is_explained() {
        let said = |text: &str| toml::from_str::<StoragePlan>(text).unwrap().check();
        assert_eq!(said("file-system = \"tmpfs\""), Ok(()));
        assert_eq!(said("file-system = \"ext4\"\ndisk = \"raid\""), Ok(()));
        assert_eq!(
            said("file-system = \"btrfs\"\ndisk = \"scsi\"\ndisks = 3"),
            Ok(())
        );
        for (text, reason) in [
            ("file-system = \"tmpfs\"\ndisk = \"ide\"", "leave `disk` out"),
            ("file-system = \"ext4\"", "needs a disk"),
            ("file-system = \"ext4\"\ndisk = \"ide\"\ndisks = 3", "one disk"),
            ("file-system = \"btrfs\"\ndisk = \"ide\"\ndisks = 4", "1 to 3"),
            ("file-system = \"btrfs\"\ndisk = \"ide\"\ndisks = 0", "1 to 3"),
        ] {
            let error = said(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(toml::from_str::<StoragePlan>("file-system = \"fat\"").is_err());
    }

    #[test]
    fn disk_has_whole_blocks_and_room_for_its_files() {
        for (bytes, disks) in [(1, 1), (3_145_729, 1), (256_123_456, 1), (256_123_456, 3)] {
            let each = bytes_of_disk(bytes, disks);
            assert_eq!(each % 4096, 0);
            assert!(each * u64::from(disks) > bytes + MORE_BYTES);
        }
    }

    #[test]
    fn counters_of_a_disk_are_read_from_its_control_file() {
        let place = tempfile::tempdir().unwrap();
        let control = place.path().join("control");
        let state = r#"{"kind": {"array": {"heads": 3}}, "span_ns": 100, "late_share": 0.02,
            "counters": {"requests": 7, "sequential": 5, "read_bytes": 4096, "busy_ns": 150}}"#;
        fs::write(&control, state).unwrap();
        let used = &disks_used(&[control]).unwrap()[0];
        assert_eq!((used.requests, used.sequential, used.heads), (7, 5, 3));
        assert_eq!(used.utilization(), Some(0.5));
        assert_eq!(used.late_share, Some(0.02));
    }
}
