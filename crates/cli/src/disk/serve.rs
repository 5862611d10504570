//! The beginning of an emulated disk.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use toehold_disk::{DiskKind, DiskServer, LoopDevice, ServedDisk};

use crate::json;

/// Options that keep mkfs.ext4 from writing the whole disk, at once and later.
const FORMAT: &str = "mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0";

/// The form in which a begun disk is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskForm {
    /// One document, for programs.
    Json,
    /// Lines with the commands to use it.
    Text,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct BegunDisk<'a> {
    device: &'a str,
    directory: &'a Path,
    control: PathBuf,
    kind: DiskKind,
    scale: u32,
    bytes: u64,
}

/// Mounts and attaches the disk, and says where it is.
pub(super) fn begin(disk: ServedDisk, directory: &Path, form: DiskForm) -> Result<DiskServer> {
    let server = DiskServer::mount(directory, disk)?;
    let device = LoopDevice::attach(&directory.join("disk"), disk.scale)?;
    server.set_device(device.clone());
    if form == DiskForm::Json {
        json::print(
            "toehold/disk/1",
            &BegunDisk {
                device: device.path(),
                directory,
                control: directory.join("control"),
                kind: disk.kind,
                scale: disk.scale,
                bytes: disk.bytes,
            },
        )?;
        return Ok(server);
    }
    let (device, place) = (device.path(), directory.display());
    let mut out = std::io::stdout();
    writeln!(out, "{device} is the disk; Ctrl-C ends it\n")?;
    writeln!(out, "  {FORMAT} {device}")?;
    writeln!(out, "  mount -o noatime {device} /mnt")?;
    writeln!(out, "  cat {place}/control")?;
    if !server.state().realtime {
        toehold_lab::say(
            "toehold: the disk's threads cannot have SCHED_FIFO here; replies may be late on a busy machine",
        );
    }
    Ok(server)
}
