//! Control groups: processor time and memory of processes, and their end.
//!
//! A group is a directory in each hierarchy that counts: `memory` and `cpuacct` of version 1, or
//! the only hierarchy of version 2. This file never moves processes that it does not start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::samples::CpuUse;

/// Joins the groups, each named by a first argument that is not `--`, and becomes the program.
const JOIN: &str =
    r#"while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@""#;

/// The hierarchies of this machine that count memory and processor time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Hierarchies {
    /// Version 1: where `memory` and `cpuacct` are mounted.
    One { memory: PathBuf, cpu: PathBuf },
    /// Version 2: where it is mounted.
    Two { root: PathBuf },
}

/// The hierarchies in a text like `/proc/self/mountinfo`.
fn hierarchies(mounts: &str) -> Option<Hierarchies> {
    let parsed: Vec<_> = mounts
        .lines()
        .filter_map(|line| {
            let (mount, system) = line.split_once(" - ")?;
            let mut words = system.split(' ');
            let (kind, options) = (words.next()?, words.nth(1)?);
            Some((PathBuf::from(mount.split(' ').nth(4)?), kind, options))
        })
        .collect();
    let one = |controller: &str| {
        let mut found = parsed.iter().filter(|(_, kind, options)| {
            *kind == "cgroup" && options.split(',').any(|option| option == controller)
        });
        found.next().map(|(place, _, _)| place.clone())
    };
    if let (Some(memory), Some(cpu)) = (one("memory"), one("cpuacct")) {
        return Some(Hierarchies::One { memory, cpu });
    }
    let mut two = parsed.iter().filter(|(_, kind, _)| *kind == "cgroup2");
    let root = two.next()?.0.clone();
    Some(Hierarchies::Two { root })
}

/// A group of processes, which may have groups in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControlGroup {
    hierarchies: Hierarchies,
    /// The path below each hierarchy's root.
    name: PathBuf,
}

/// Bytes that a group holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldMemory {
    /// Pages of files.
    pub(crate) files: u64,
    /// Everything else: memory of programs, of the kernel for them, and shared memory.
    pub(crate) other: u64,
}

impl ControlGroup {
    /// A group of this name that is not made yet, if this machine can have it.
    ///
    /// # Errors
    ///
    /// `Unsupported` if no hierarchy counts memory and processor time.
    pub(crate) fn named(name: &str) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let hierarchies = hierarchies(&mounts).ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self {
            hierarchies,
            name: name.into(),
        })
    }

    /// A group in this one.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self {
            hierarchies: self.hierarchies.clone(),
            name: self.name.join(name),
        }
    }

    /// Its directories, one in each hierarchy.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        match &self.hierarchies {
            Hierarchies::One { memory, cpu } if memory == cpu => vec![memory.join(&self.name)],
            Hierarchies::One { memory, cpu } => vec![memory.join(&self.name), cpu.join(&self.name)],
            Hierarchies::Two { root } => vec![root.join(&self.name)],
        }
    }

    /// Makes it. In version 2, groups above it then count the memory of groups in them.
    pub(crate) fn make(&self) -> io::Result<()> {
        for directory in self.directories() {
            fs::create_dir(&directory)?;
            if let (Hierarchies::Two { .. }, Some(above)) = (&self.hierarchies, directory.parent()) {
                fs::write(above.join("cgroup.subtree_control"), "+memory")?;
            }
        }
        Ok(())
    }

    /// The command, which joins the group first. It keeps its words and its variables.
    pub(crate) fn joined_by(&self, command: &Command) -> Command {
        let mut joined = Command::new("sh");
        joined.args(["-c", JOIN, "sh"]).args(self.directories());
        joined
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                joined.env(name, value);
            }
        }
        joined
    }

    fn memory_directory(&self) -> PathBuf {
        match &self.hierarchies {
            Hierarchies::One { memory, .. } => memory.join(&self.name),
            Hierarchies::Two { root } => root.join(&self.name),
        }
    }

    /// Processor time of its processes so far, including ended ones. Unreadable files count as 0.
    pub(crate) fn cpu(&self) -> CpuUse {
        let [user_ns, system_ns] = match &self.hierarchies {
            Hierarchies::One { cpu, .. } => {
                let directory = cpu.join(&self.name);
                ["cpuacct.usage_user", "cpuacct.usage_sys"].map(|file| number(&directory.join(file)))
            }
            Hierarchies::Two { root } => {
                let text = fs::read_to_string(root.join(&self.name).join("cpu.stat")).unwrap_or_default();
                ["user_usec", "system_usec"].map(|field| 1000 * field_of(&text, field))
            }
        };
        CpuUse {
            user_ns,
            system_ns,
            ..CpuUse::default()
        }
    }

    /// Memory that it holds.
    pub(crate) fn memory(&self) -> HeldMemory {
        let directory = self.memory_directory();
        let text = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
        let (used, cached, shared) = match &self.hierarchies {
            Hierarchies::One { .. } => ("memory.usage_in_bytes", "total_cache", "total_shmem"),
            Hierarchies::Two { .. } => ("memory.current", "file", "shmem"),
        };
        let files = field_of(&text, cached).saturating_sub(field_of(&text, shared));
        HeldMemory {
            files,
            other: number(&directory.join(used)).saturating_sub(files),
        }
    }

    /// Leaves its processes `bytes` for files, beside what they hold otherwise and an eighth of that.
    /// Without the eighth, a server that takes a little more memory would be killed.
    pub(crate) fn leave_for_files(&self, bytes: u64) -> io::Result<()> {
        let other = self.memory().other;
        self.bound_memory(&(other + other / 8 + bytes).to_string())
    }

    /// Takes the bound of memory away.
    pub(crate) fn unbound_memory(&self) -> io::Result<()> {
        match &self.hierarchies {
            Hierarchies::One { .. } => self.bound_memory("-1"),
            Hierarchies::Two { .. } => self.bound_memory("max"),
        }
    }

    /// Where memory and swap have one bound in common, that bound is the same.
    fn bound_memory(&self, limit: &str) -> io::Result<()> {
        let directory = self.memory_directory();
        match &self.hierarchies {
            Hierarchies::One { .. } => {
                let with_swap = directory.join("memory.memsw.limit_in_bytes");
                // A bound with swap is never below the one without, so a higher one comes first.
                if with_swap.exists() {
                    let _ = fs::write(&with_swap, limit);
                }
                fs::write(directory.join("memory.limit_in_bytes"), limit)?;
                if with_swap.exists() {
                    fs::write(&with_swap, limit)?;
                }
                Ok(())
            }
            Hierarchies::Two { .. } => fs::write(directory.join("memory.max"), limit),
        }
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub(crate) fn killed(&self) -> u64 {
        let file = match &self.hierarchies {
            Hierarchies::One { .. } => "memory.oom_control",
            Hierarchies::Two { .. } => "memory.events",
        };
        let text = fs::read_to_string(self.memory_directory().join(file)).unwrap_or_default();
        field_of(&text, "oom_kill")
    }
}

fn number(file: &Path) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The value of a line `NAME VALUE`.
fn field_of(text: &str, name: &str) -> u64 {
    let mut fields = text.lines().filter_map(|line| line.split_once(' '));
    let found = fields.find(|(field, _)| *field == name);
    found
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "30 20 0:26 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
        31 20 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
        32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn hierarchies_of_version_1_go_before_version_2() {
        let found = hierarchies(ONE).unwrap();
        let expected = Hierarchies::One {
            memory: "/sys/fs/cgroup/memory".into(),
            cpu: "/sys/fs/cgroup/cpuacct".into(),
        };
        assert_eq!(found, expected);
        let two = ONE.lines().last().unwrap();
        let root = "/sys/fs/cgroup/unified".into();
        assert_eq!(hierarchies(two), Some(Hierarchies::Two { root }));
        assert_eq!(hierarchies("31 20 0:27 / /proc rw - proc proc rw"), None);
    }

    fn group(hierarchies: Hierarchies) -> ControlGroup {
        ControlGroup {
            hierarchies,
            name: "g".into(),
        }
    }

    #[test]
    fn version_2_is_read_and_bounded() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().to_owned();
        fs::create_dir(root.join("g")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.join("g").join(name), text).unwrap();
        write("cpu.stat", "usage_usec 9\nuser_usec 5\nsystem_usec 4\n");
        write("memory.stat", "anon 5\nfile 3000\nshmem 1000\n");
        write("memory.current", "5000\n");
        let group = group(Hierarchies::Two { root: root.clone() });
        assert_eq!((group.cpu().user_ns, group.cpu().system_ns), (5000, 4000));
        let held = HeldMemory {
            files: 2000,
            other: 3000,
        };
        assert_eq!(group.memory(), held);
        group.leave_for_files(10_000).unwrap();
        let limit = || fs::read_to_string(root.join("g/memory.max")).unwrap();
        assert_eq!(limit(), "13375");
        group.unbound_memory().unwrap();
        assert_eq!(limit(), "max");
        assert_eq!(group.killed(), 0);
        write("memory.events", "oom 3\noom_kill 2\n");
        assert_eq!(group.killed(), 2);
    }

    #[test]
    fn version_1_is_read_and_bounded_with_swap() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().to_owned();
        let write = |name: &str, text: &str| fs::write(root.join("g").join(name), text).unwrap();
        fs::create_dir(root.join("g")).unwrap();
        write("cpuacct.usage_user", "7\n");
        write("cpuacct.usage_sys", "8\n");
        write("memory.stat", "cache 1\ntotal_cache 3000\ntotal_shmem 1000\n");
        write("memory.usage_in_bytes", "5000\n");
        write("memory.memsw.limit_in_bytes", "");
        let group = group(Hierarchies::One {
            memory: root.clone(),
            cpu: root.clone(),
        });
        assert_eq!(group.cpu().total_ns(), 15);
        group.leave_for_files(10_000).unwrap();
        for file in ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"] {
            assert_eq!(fs::read_to_string(root.join("g").join(file)).unwrap(), "13375");
        }
    }

    #[test]
    fn command_in_missing_group_is_not_started() {
        let group = group(Hierarchies::Two {
            root: "/nowhere".into(),
        });
        let joined = group.joined_by(&Command::new("true")).output().unwrap();
        assert_eq!(joined.status.code(), Some(125));
    }
}
