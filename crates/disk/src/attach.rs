//! A loop device before the file `disk`: direct I/O, no scheduler, requests as large as the scale says.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::counters::BlockLayer;
use crate::error::DiskError;

/// Kibibytes of Linux's usual read-ahead, which a scale divides. A larger request would be split in
/// two by FUSE, and a reader with a large buffer would have more read ahead.
const REQUEST_KIB: u32 = 128;

/// Kibibytes of a page, the least request.
const PAGE_KIB: u32 = 4;

/// Checks what an emulated disk needs on this machine.
///
/// # Errors
///
/// [`DiskError`] names what is missing, and what brings it.
pub fn check() -> Result<(), DiskError> {
    if !rustix::process::geteuid().is_root() {
        return Err(DiskError::NotRoot);
    }
    let devices = [
        ("/dev/fuse", "`modprobe fuse`, or give the container this device"),
        (
            "/dev/loop-control",
            "`modprobe loop`, or give the container this device",
        ),
    ];
    for (path, hint) in devices {
        if !Path::new(path).exists() {
            let path = path.into();
            return Err(DiskError::NoDevice { path, hint });
        }
    }
    losetup(&["--version".as_ref()]).map(drop)
}

/// Runs `losetup` and returns its output.
fn losetup(arguments: &[&std::ffi::OsStr]) -> Result<String, DiskError> {
    let output = Command::new("losetup").args(arguments).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => DiskError::NoProgram {
            program: "losetup",
            package: "`mount` (Debian) or `util-linux`",
        },
        _ => DiskError::Start {
            what: "losetup",
            error,
        },
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(DiskError::Attach(said.trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Detaches a loop device. A device in use goes when its last user does.
pub(crate) fn detach(device: &str) -> Result<(), DiskError> {
    losetup(&["--detach".as_ref(), device.as_ref()]).map(drop)
}

/// Lists the loop devices before a file, such as `/dev/loop0`.
pub(crate) fn devices_of(file: &Path) -> Vec<String> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let is_before = |place: &PathBuf| {
        let backing = fs::read_to_string(place.join("loop/backing_file")).unwrap_or_default();
        let backing = backing.trim_end_matches('\n');
        Path::new(backing.strip_suffix(" (deleted)").unwrap_or(backing)) == file
    };
    let places = entries.map(|entry| entry.path()).filter(is_before);
    let names = places.filter_map(|place| Some(format!("/dev/{}", place.file_name()?.to_str()?)));
    names.collect()
}

/// A loop device before the file `disk`. It stays when this value goes: [`crate::clear()`] detaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    path: String,
}

impl LoopDevice {
    /// Attaches a free loop device to `file`, for a disk of this scale.
    ///
    /// # Errors
    ///
    /// [`DiskError`] says what `losetup` answers, or that the kernel has no direct I/O there.
    pub fn attach(file: &Path, scale: u32) -> Result<Self, DiskError> {
        let options = ["--direct-io=on", "--find", "--show"].map(AsRef::as_ref);
        let path = losetup(&[&options[..], &[file.as_os_str()]].concat())?;
        let device = Self { path };
        let setting = |name: &str, value: &str| {
            let path = device.system_file(name);
            fs::write(&path, value).map_err(|error| DiskError::File { path, error })
        };
        setting("queue/scheduler", "none")?;
        let request = (REQUEST_KIB / scale.max(1)).max(PAGE_KIB).to_string();
        setting("queue/max_sectors_kb", &request)?;
        setting("queue/read_ahead_kb", &request)?;
        let is_direct = fs::read_to_string(device.system_file("loop/dio"));
        if is_direct.is_ok_and(|text| text.trim() == "1") {
            return Ok(device);
        }
        detach(&device.path)?;
        let said = "this kernel has no direct I/O from a loop device to FUSE, and would keep pages twice";
        Err(DiskError::Attach(said.to_owned()))
    }

    /// The device file, such as `/dev/loop0`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads what the block layer has counted of this device since it was attached.
    pub fn block_layer(&self) -> Option<BlockLayer> {
        BlockLayer::parse(&fs::read_to_string(self.system_file("stat")).ok()?)
    }

    fn system_file(&self, name: &str) -> PathBuf {
        let device = self.path.strip_prefix("/dev/").unwrap_or(&self.path);
        Path::new("/sys/block").join(device).join(name)
    }
}
