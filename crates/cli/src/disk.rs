//! `toehold disk`: an emulated disk behind a loop device.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use toehold_disk::{DiskError, DiskKeeper, DiskKind, DiskServer, DiskState, LoopDevice, ServedDisk, clear};

use crate::nodes::table;
use crate::{interrupt, json};

/// The hidden command that clears after a disk's process.
pub(crate) const KEEPER_NAME: &str = "disk-keeper";

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Options that keep mkfs.ext4 from writing the whole disk, at once and later.
const FORMAT: &str = "mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0";

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
    let directory = place(&arguments.directory)?;
    let is_made = prepare(&directory)?;
    let keeper = DiskKeeper::start(keeper(&directory, is_made)?)?;
    let served = serve(arguments, &directory);
    if let Ok(server) = &served {
        while !server.is_over() && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        if !arguments.json {
            show(&server.state())?;
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

/// The directory by its absolute path. Only its parent is asked: a mount there may be dead.
fn place(directory: &Path) -> Result<PathBuf> {
    let whole = std::path::absolute(directory).context("cannot find the working directory")?;
    let (Some(parent), Some(name)) = (whole.parent(), whole.file_name()) else {
        bail!(
            "{} cannot be a disk's directory; name an empty one",
            directory.display()
        );
    };
    let parent = parent
        .canonicalize()
        .with_context(|| format!("cannot use {}", parent.display()))?;
    Ok(parent.join(name))
}

/// Makes the directory if it is missing, and clears what a dead disk left there. Returns `true` if
/// it was made.
fn prepare(directory: &Path) -> Result<bool> {
    if directory.join("control").exists() && directory.join("disk").exists() {
        let why = "has a disk already, or files of these names";
        let path = directory.to_owned();
        return Err(DiskError::Directory { path, why }.into());
    }
    clear(directory)?;
    match std::fs::create_dir(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot make {}", directory.display())),
    }
}

fn keeper(directory: &Path, is_made: bool) -> Result<Command> {
    let own = std::env::current_exe().context("cannot find this program (is /proc mounted?)")?;
    let mut command = Command::new(own);
    command.arg(KEEPER_NAME).arg(directory);
    if is_made {
        command.arg("--made");
    }
    Ok(command)
}

/// Mounts and attaches the disk, and says where it is.
fn serve(arguments: &Arguments, directory: &Path) -> Result<DiskServer> {
    let disk = ServedDisk {
        kind: arguments.kind,
        scale: arguments.scale,
        bytes: arguments.size,
        seed: arguments.seed,
    };
    let server = DiskServer::mount(directory, disk)?;
    let device = LoopDevice::attach(&directory.join("disk"), arguments.scale)?;
    server.set_device(device.clone());
    if arguments.json {
        json::print(
            "toehold/disk/1",
            &BegunDisk {
                device: device.path(),
                directory,
                control: directory.join("control"),
                kind: arguments.kind,
                scale: arguments.scale,
                bytes: arguments.size,
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

/// Shows what the disk counted.
fn show(state: &DiskState) -> Result<()> {
    let counters = state.counters;
    let each = |sum: u64| sum as f64 / 1e3 / counters.requests.max(1) as f64;
    let span = state.span_ns.max(1) as f64 * f64::from(state.kind.heads());
    let share = |part: f64| format!("{:.1} %", 100.0 * part);
    let rows = [
        ("requests", counters.requests.to_string()),
        (
            "sequential",
            share(counters.sequential as f64 / counters.requests.max(1) as f64),
        ),
        ("read", crate::nodes::bytes(counters.read_bytes)),
        ("written", crate::nodes::bytes(counters.written_bytes)),
        ("heads busy", share(counters.busy_ns as f64 / span)),
        ("mean wait", format!("{:.0} µs", each(counters.waited_ns))),
        ("mean service", format!("{:.0} µs", each(counters.served_ns))),
        (
            "lateness / service",
            state.late_share.map_or("-".to_owned(), share),
        ),
    ];
    let mut table = table::new(&["disk", ""], 1);
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    writeln!(std::io::stdout(), "\n{table}")?;
    Ok(())
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
