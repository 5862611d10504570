//! Which processes have a node and are not on it, as `/proc` tells.
//!
//! Each process that `toehold run` starts inherits a descriptor that keeps the node, and so do the
//! processes that it starts in its turn. A process that has the descriptor and not the library
//! makes no use of the node.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{Reason, Report};
use crate::run::{self, LIBRARY};

/// Processes that are looked at.
const MAX_PROCESSES: usize = 1 << 14;

/// Descriptors of a process that are looked at.
const MAX_DESCRIPTORS: usize = 1 << 12;

/// Bytes of a process's mappings that are read.
const MAX_MAPS: u64 = 4 << 20;

/// The processes that have one of these keepers, by inode, and not the library. Those that this user may not
/// look at are left out.
pub fn inspect(keepers: &[u64]) -> Vec<Report> {
    let keepers: BTreeSet<String> = keepers.iter().map(|inode| format!("socket:[{inode}]")).collect();
    if keepers.is_empty() {
        return Vec::new();
    }
    let own = fs::read_link("/proc/self/exe").ok();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    processes
        .filter_map(number)
        .take(MAX_PROCESSES)
        .filter_map(|pid| look_at(pid, &keepers, own.as_deref()))
        .collect()
}

fn look_at(pid: u32, keepers: &BTreeSet<String>, own: Option<&Path>) -> Option<Report> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let descriptors = fs::read_dir(process.join("fd")).ok()?;
    let is_keeper = |descriptor: fs::DirEntry| {
        let leads_to = fs::read_link(descriptor.path()).ok();
        leads_to.is_some_and(|to| to.to_str().is_some_and(|to| keepers.contains(to)))
    };
    descriptors
        .take(MAX_DESCRIPTORS)
        .flatten()
        .any(is_keeper)
        .then_some(())?;
    let file = fs::read_link(process.join("exe")).ok()?;
    // `toehold run` itself, between the node and the program.
    if Some(file.as_path()) == own || has_library(&process)? {
        return None;
    }
    let obstacle = run::obstacle(&process.join("exe"));
    let reason = obstacle.map_or(Reason::NoPreload, |(_, reason)| reason);
    Some(Report::new(&file.to_string_lossy(), pid, reason))
}

/// Whether the library is loaded into a process; `None` if that cannot be seen.
fn has_library(process: &Path) -> Option<bool> {
    let mut maps = Vec::new();
    File::open(process.join("maps"))
        .ok()?
        .take(MAX_MAPS)
        .read_to_end(&mut maps)
        .ok()?;
    let library = LIBRARY.as_bytes();
    Some(maps.windows(library.len()).any(|part| part == library))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn process_with_the_keeper_and_without_the_library_is_told() {
        let (_engine, keeper) = UnixStream::pair().unwrap();
        let inode = rustix::fs::fstat(&keeper).unwrap().st_ino;
        let input = keeper.try_clone().unwrap();
        let mut child = Command::new("sleep");
        child
            .arg("600")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(input)));
        let mut child = child.spawn().unwrap();
        let found = inspect(&[inode]);
        child.kill().unwrap();
        child.wait().unwrap();
        // This process has it, too, and is the one that looks.
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].pid, found[0].reason), (child.id(), Reason::NoPreload));
        assert!(found[0].command.contains("sleep") || found[0].command.contains("coreutils"));
        assert_eq!(inspect(&[]), []);
    }
}
