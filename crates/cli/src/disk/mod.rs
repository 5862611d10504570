//! `toehold disk`: an emulated disk behind a loop device.

mod directory;
mod serve;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use toehold_disk::{DiskKeeper, DiskKind, ServedDisk, clear};

use crate::interrupt;
use serve::DiskForm;

pub(crate) use directory::KEEPER_NAME;

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Emulates a disk: a block device in memory that answers as late as a disk would
///
/// DIR/disk has the disk's bytes, served by FUSE, and a loop device with direct I/O makes a block
/// device of it. One head, or several behind a bus, serve requests in order of arrival: seek,
/// rotation, transfer. Read DIR/control for counters, and write JSON to it for other speeds. Ctrl-C
/// or SIGTERM unmounts what is on the device and removes everything. The same happens after a kill.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold disk /tmp/ide --kind ide --size 1G
  toehold disk /tmp/raid --kind raid --size 4G --scale 8
  mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/loop0
  mount -o noatime /dev/loop0 /mnt
  cat /tmp/ide/control
  echo '{\"kind\": \"scsi\", \"reset\": true}' > /tmp/ide/control")]
pub(crate) struct Arguments {
    /// An empty directory, or one that does not exist yet
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// ide (8.5 ms, 7200/min, 38 MB/s), scsi (3.5 ms, 15000/min, 60 MB/s), raid (three of scsi), or a TOML file
    #[arg(long, default_value = "ide", value_name = "KIND|FILE.toml", value_parser = kind)]
    kind: DiskKind,

    /// Bytes of the disk, with K, M, G or T; blocks of zeros take no memory
    #[arg(long, default_value = "1G", value_name = "BYTES", value_parser = size)]
    size: u64,

    /// Divide seek, turn, overhead of a request, and read-ahead (128K, at least 4K) by this
    #[arg(long, default_value_t = 1, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=i64::from(toehold_disk::MOST_SCALE)))]
    scale: u32,

    /// Decides the parts of a turn that requests wait
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// As JSON, once the device is there
    #[arg(long)]
    json: bool,
}

/// The command line of the process that clears.
#[derive(Debug, clap::Args)]
pub(crate) struct Clearing {
    directory: PathBuf,

    /// Remove the directory as well
    #[arg(long)]
    made: bool,
}

fn kind(text: &str) -> Result<DiskKind, String> {
    if let Some(kind) = DiskKind::named(text) {
        return Ok(kind);
    }
    if Path::new(text)
        .extension()
        .is_none_or(|extension| extension != "toml")
    {
        let names = DiskKind::NAMES.join(", ");
        return Err(format!("choose {names}, or name a file that ends with .toml"));
    }
    let said = std::fs::read_to_string(text).map_err(|error| error.to_string())?;
    DiskKind::from_toml(&said).map_err(|error| error.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = toehold_node::settings::parse_bytes(text);
    bytes.ok_or_else(|| "write a number with K, M, G or T behind it, such as 1G".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    toehold_disk::check()?;
    let stop = interrupt::flag()?;
    let directory = directory::place(&arguments.directory)?;
    let is_made = directory::prepare(&directory)?;
    let keeper = DiskKeeper::start(directory::keeper(&directory, is_made)?)?;
    let disk = ServedDisk {
        kind: arguments.kind,
        scale: arguments.scale,
        bytes: arguments.size,
        seed: arguments.seed,
    };
    let form = match arguments.json {
        true => DiskForm::Json,
        false => DiskForm::Text,
    };
    let served = serve::begin(disk, &directory, form);
    if let Ok(server) = &served {
        while !server.is_over() && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        if !arguments.json {
            summary::show(&server.state())?;
        }
    }
    if !keeper.end() {
        clear(&directory).with_context(|| format!("cannot clear {}", directory.display()))?;
    }
    served.map(|_| ExitCode::SUCCESS)
}

/// Clears after the disk's process, however that ended.
pub(crate) fn keep(arguments: &Clearing) -> Result<ExitCode> {
    let cleared = DiskKeeper::stand_by(&arguments.directory, arguments.made)?;
    for place in &cleared.busy {
        let place = place.display();
        toehold_lab::say(&format!(
            "toehold: a process still uses {place}; its memory is free when that ends"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kind_is_refused_with_the_choice() {
        assert!(kind("tape").unwrap_err().contains("ide, scsi, raid"));
        assert!(kind("/nowhere/disk.toml").unwrap_err().contains("No such file"));
        assert_eq!(kind("raid").unwrap().heads(), 3);
    }

    #[test]
    fn size_without_unit_is_bytes() {
        assert_eq!((size("4096"), size("1G")), (Ok(4096), Ok(1 << 30)));
        assert!(size("much").is_err());
    }
}
