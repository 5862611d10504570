//! Which processes have a limited share of processor time, by a cgroup's quota.
//!
//! The kernel takes all processors from such a process for the rest of a period, whatever it does
//! at that moment. So it neither drives its node nor sleeps at the link for others, and takes a
//! lease at the beginning of a turn ([`crate::wait`]). What limits the engine as well makes no
//! difference: then there is no other process to leave the work to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Groups that are looked at above that of a process, at most.
const MOST_LEVELS: usize = 64;

/// A mounted hierarchy of groups with the `cpu` controller.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// The group that is mounted, as `/proc/PID/cgroup` names groups.
    root: PathBuf,
    at: PathBuf,
    /// Whether it is of cgroup v2.
    unified: bool,
}

/// The groups that limit the processor time of a process to less than the machine has. Empty if the
/// system does not tell.
pub(crate) fn limiting(pid: u32) -> BTreeSet<PathBuf> {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let groups = read(format!("/proc/{pid}/cgroup"));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    limiting_among(
        &groups,
        &hierarchies(&read("/proc/self/mountinfo".into())),
        processors,
    )
}

fn limiting_among(groups: &str, hierarchies: &[Hierarchy], processors: usize) -> BTreeSet<PathBuf> {
    let mut limiting = BTreeSet::new();
    for line in groups.lines() {
        // "4:cpu,cpuacct:/group", and "0::/group" for cgroup v2.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let unified = controllers.is_empty();
        if !unified && controllers.split(',').all(|controller| controller != "cpu") {
            continue;
        }
        for hierarchy in hierarchies.iter().filter(|known| known.unified == unified) {
            let Ok(below) = Path::new(group).strip_prefix(&hierarchy.root) else {
                continue;
            };
            if below.components().any(|part| part.as_os_str() == "..") {
                continue;
            }
            for level in below.ancestors().take(MOST_LEVELS) {
                let directory = hierarchy.at.join(level);
                if share(&directory, unified).is_some_and(|share| share < processors as f64) {
                    limiting.insert(directory);
                }
            }
        }
    }
    limiting
}

/// The mounts of hierarchies that may have the `cpu` controller.
fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    mounts.lines().filter_map(hierarchy).collect()
}

fn hierarchy(mount: &str) -> Option<Hierarchy> {
    let (place, kind) = mount.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, at) = (place.next()?, place.next()?);
    let mut kind = kind.split(' ');
    let unified = match kind.next()? {
        "cgroup2" => true,
        "cgroup" if kind.nth(1)?.split(',').any(|option| option == "cpu") => false,
        _ => return None,
    };
    Some(Hierarchy {
        root: root.into(),
        at: at.into(),
        unified,
    })
}

/// Processors that a group may use at once on the average; `None` if it has no quota.
fn share(group: &Path, unified: bool) -> Option<f64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    let (quota, period): (f64, f64) = if unified {
        let limit = read("cpu.max")?;
        let (quota, period) = limit.trim().split_once(' ')?;
        (quota.parse().ok()?, period.parse().ok()?)
    } else {
        let number = |name| read(name)?.trim().parse().ok();
        (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
    };
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
24 1 0:22 / /proc rw - proc proc rw
30 24 0:26 / /AT/v1 rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 / /AT/memory rw - cgroup cgroup rw,memory
32 24 0:28 /slice /AT/v2 rw - cgroup2 cgroup2 rw";

    fn mounts(at: &Path) -> Vec<Hierarchy> {
        hierarchies(&MOUNTS.replace("/AT", at.to_str().unwrap()))
    }

    #[test]
    fn quota_above_group_of_process_limits_it() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("v1/a/b")).unwrap();
        fs::create_dir_all(at("v2/c")).unwrap();
        fs::write(at("v1/a/cpu.cfs_quota_us"), "10000\n").unwrap();
        fs::write(at("v1/a/cpu.cfs_period_us"), "100000\n").unwrap();
        fs::write(at("v1/a/b/cpu.cfs_quota_us"), "-1\n").unwrap();
        fs::write(at("v1/a/b/cpu.cfs_period_us"), "100000\n").unwrap();
        fs::write(at("v2/c/cpu.max"), "150000 100000\n").unwrap();
        fs::write(at("v2/cpu.max"), "max 100000\n").unwrap();
        let mounts = mounts(root.path());
        assert_eq!(mounts.len(), 2);
        let limiting = |groups: &str, processors| limiting_among(groups, &mounts, processors);
        let v1 = "3:memory:/x\n2:cpu,cpuacct:/a/b\n";
        assert_eq!(limiting(v1, 2), BTreeSet::from([at("v1/a")]));
        let v2 = "0::/slice/c\n";
        assert_eq!(limiting(v2, 2), BTreeSet::from([at("v2/c")]));
        assert_eq!(limiting(v2, 1), BTreeSet::new(), "it may have the one processor");
        for elsewhere in ["0::/other/c\n", "0::/slice/../c\n", "nonsense", "2:cpu:/\n"] {
            assert_eq!(limiting(elsewhere, 2), BTreeSet::new(), "{elsewhere}");
        }
    }
}
