//! Reads or writes one file of a deployment's storage, from its begin to its end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::error::SiteFailure;
use super::measure::DeploymentRun;
use super::storage::{MountMode, Storage, StorageGround};
use crate::cgroup::ControlGroup;
use crate::programs::{Files, find};
use crate::samples::Side;
use crate::workload::{Meter, Workload};

/// Bytes of a write that fills a file.
const FILL: usize = 1 << 20;

/// Binds the calling thread to a core for as long as this lives.
struct OnProcessors(Option<CpuSet>);

impl OnProcessors {
    /// Without the right, or without the core, the thread stays as it is.
    fn to(core: usize) -> Self {
        let own = Pid::from_raw(0);
        let mut one = CpuSet::new();
        let before = sched_getaffinity(own).ok();
        let is_bound = one.set(core).and_then(|()| sched_setaffinity(own, &one)).is_ok();
        Self(before.filter(|_| is_bound))
    }
}

impl Drop for OnProcessors {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // The thread was there before.
            let _ = sched_setaffinity(Pid::from_raw(0), before);
        }
    }
}

/// The counts of the program that reads or writes, and of the disks.
pub(super) fn measure(workload: &Workload, run: DeploymentRun<'_>) -> Result<(Side, Side), SiteFailure> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (size, buffer) = match workload {
        Workload::FileRead { size, buffer, .. } | Workload::FileWrite { size, buffer } => (*size, *buffer),
        _ => return Err(SiteFailure::Server(format!("`{}` has no file", workload.kind()))),
    };
    let Some(plan) = run.candidate.storage else {
        return Err(SiteFailure::Server("the deployment has no `storage`".into()));
    };
    if let Some((program, package)) = plan
        .programs()
        .iter()
        .find(|(program, _)| find(program).is_none())
    {
        return Err(SiteFailure::Missing(format!(
            "{program} is missing: install the package {package}"
        )));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(SiteFailure::Missing(
            "a file system of its own takes root: use sudo".into(),
        ));
    }
    let files = Files::make(run.toehold)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let group = ControlGroup::named(&format!("toehold-files-{}-{number}", std::process::id()));
    let group = group.map_err(|error| SiteFailure::Missing(format!("no control groups: {error}")))?;
    let failed = |error| SiteFailure::File(files.path().to_owned(), error);
    files.keeper().remove_control_group(&group).map_err(failed)?;
    let [program, disks] = run.settings.cores;
    let ground = StorageGround {
        toehold: run.toehold,
        keeper: files.keeper(),
        directory: files.path().to_owned(),
        group,
        core: Some(disks),
    };
    let storage = Storage::make(plan, size.bytes(), 1, &ground)?;
    let client = match workload {
        Workload::FileRead { cached, .. } => {
            let root = fill(&storage, size.bytes())?;
            let file = root.join("file");
            if *cached {
                read(&file, FILL).map_err(failed)?;
            }
            storage.set_clock(true)?;
            let _bound = OnProcessors::to(program);
            read(&file, buffer.bytes()).map_err(failed)?
        }
        _ => {
            let root = storage.mount(MountMode::ReadWrite)?;
            storage.set_clock(true)?;
            let _bound = OnProcessors::to(program);
            write(&root.join("file"), size.bytes(), buffer.bytes()).map_err(failed)?
        }
    };
    if client.bytes != size.bytes() {
        let reason = format!("the file has {} bytes instead of {}", client.bytes, size.bytes());
        return Err(SiteFailure::Server(reason));
    }
    let server = Side {
        bytes: client.bytes,
        span_ns: client.span_ns,
        disks: storage.used()?,
        ..Side::default()
    };
    // The end of the disks is not part of the count.
    storage.set_clock(false)?;
    Ok((client, server))
}

/// Writes a file, and mounts the file system anew if it is on disks: no page of it is cached then.
fn fill(storage: &Storage<'_>, bytes: u64) -> Result<std::path::PathBuf, SiteFailure> {
    let root = storage.mount(MountMode::ReadWrite)?;
    let file = root.join("file");
    write(&file, bytes, FILL).map_err(|error| SiteFailure::File(file, error))?;
    if storage.device().is_none() {
        return Ok(root);
    }
    storage.unmount()?;
    storage.mount(MountMode::ReadOnly)
}

/// Reads a file by so many bytes at once.
fn read(path: &Path, buffer: usize) -> io::Result<Side> {
    let mut buffer = vec![0; buffer];
    let mut bytes = 0;
    let mut calls = 0;
    let meter = Meter::start();
    let mut file = File::open(path)?;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                bytes += count as u64;
                calls += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(meter.stop(calls, bytes))
}

/// Writes a file by so many bytes at once, and waits until they are on the disk.
fn write(path: &Path, bytes: u64, buffer: usize) -> io::Result<Side> {
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut piece = vec![0; buffer];
    // Zeros would not be kept.
    random.fill(&mut piece);
    let mut missing = bytes;
    let mut calls = 0;
    let meter = Meter::start();
    let mut file = File::create(path)?;
    while missing > 0 {
        let count = usize::try_from(missing).unwrap_or(buffer).min(buffer);
        file.write_all(&piece[..count])?;
        missing -= count as u64;
        calls += 1;
    }
    file.sync_all()?;
    Ok(meter.stop(calls, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_as_it_was_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let written = write(&path, 100_001, 4096).unwrap();
        assert_eq!((written.bytes, written.messages), (100_001, 25));
        let read = read(&path, 64 << 10).unwrap();
        assert_eq!((read.bytes, read.messages), (100_001, 2));
        assert!(read.span_ns > 0);
    }
}
