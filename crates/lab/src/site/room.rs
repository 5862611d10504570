//! A room: the mount namespace and control group of a tier, and its network.
//!
//! A process holds the namespaces. It ends with its standard input, so with the site's runner, and
//! with the control group. No mount is made in the namespace of the host.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::error::SiteFailure;
use crate::cgroup::ControlGroup;
use crate::programs::{ProgramsError, path};

/// The content of a room with an empty file system in memory.
pub(super) const TMPFS: &str = "tmpfs";

/// Mounts the content read-only, if there is some, and holds the namespaces until its input ends. The
/// content is a directory, or a block device with a file system.
const HOLD: &str = r#"if [ -b "$1" ]; then
    mount -o ro,noatime,nosuid,nodev "$1" "$2" || exit 1
elif [ "$1" = tmpfs ]; then
    mount -t tmpfs -o nosuid,nodev,mode=755 toehold "$2" || exit 1
elif [ -n "$1" ]; then
    mount --bind "$1" "$2" && mount -o remount,bind,ro,noatime,nosuid,nodev "$2" || exit 1
fi
echo; exec cat >/dev/null"#;

/// How processes enter a room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RoomDoor {
    /// The process that holds the namespaces.
    pub(super) holder: u32,
    /// The control group of its programs.
    pub(super) group: ControlGroup,
    /// The network that programs have.
    pub(super) network: RoomNetwork,
    /// The address of the room.
    pub(super) address: String,
    /// The core that its programs are bound to, if they are.
    pub(super) core: Option<usize>,
}

/// The network of a room's programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RoomNetwork {
    /// The holder's network namespace.
    Namespace,
    /// A node of a fabric.
    Node {
        /// The command that runs programs on it.
        toehold: PathBuf,
        /// The directory of the fabric.
        fabric: PathBuf,
        /// The name of the node.
        node: String,
        /// The control group of its engine.
        engine: ControlGroup,
    },
}

/// The words before a command line that bind it to a core.
pub(super) fn bound_to(core: Option<usize>) -> Vec<String> {
    let Some(core) = core else { return Vec::new() };
    ["taskset".to_owned(), "-c".to_owned(), core.to_string()].to_vec()
}

impl RoomDoor {
    /// A path of the room, as processes outside see it.
    pub(super) fn seen(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The prefix of a command line that enters the namespaces and the network.
    pub(super) fn prefix(&self) -> Vec<String> {
        let namespace = |option: &str, name: &str| format!("--{option}=/proc/{}/ns/{name}", self.holder);
        let mut words = bound_to(self.core);
        words.extend(["nsenter".to_owned(), namespace("mount", "mnt")]);
        match &self.network {
            RoomNetwork::Namespace => words.extend([namespace("net", "net"), "--".to_owned()]),
            RoomNetwork::Node { .. } => {
                words.push("--".to_owned());
                words.extend(self.run_prefix());
            }
        }
        words
    }

    /// The words with which a user runs a program in the room's network, from outside.
    pub(super) fn run_prefix(&self) -> Vec<String> {
        match &self.network {
            RoomNetwork::Namespace => {
                let namespace = format!("--net=/proc/{}/ns/net", self.holder);
                vec!["nsenter".to_owned(), namespace]
            }
            RoomNetwork::Node {
                toehold,
                fabric,
                node,
                ..
            } => {
                let mut words = vec![toehold.display().to_string()];
                words.extend(["run", "--quiet", "--fabric"].map(str::to_owned));
                words.push(fabric.display().to_string());
                words.extend(["--node".to_owned(), node.clone(), "--".to_owned()]);
                words
            }
        }
    }

    /// A command in the room.
    pub(super) fn command(&self, words: &[String]) -> Command {
        let prefix = self.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(words).env("PATH", path());
        self.group.joined_by(&command)
    }

    /// The control groups whose use of processors counts: of its programs, and of its engine.
    pub(super) fn groups(&self) -> Vec<ControlGroup> {
        let mut groups = vec![self.group.clone()];
        if let RoomNetwork::Node { engine, .. } = &self.network {
            groups.push(engine.clone());
        }
        groups
    }
}

/// The process that holds a room. Dropping it lets it go.
#[derive(Debug)]
pub(super) struct RoomHolder(Child);

impl RoomHolder {
    /// Starts a holder in a group: of a mount namespace, and of a network namespace if `has_network`
    /// says so. `content` is a directory, and where the room sees it.
    pub(super) fn start(
        group: &ControlGroup,
        has_network: bool,
        content: Option<(&Path, &Path)>,
    ) -> Result<Self, SiteFailure> {
        let failed = |reason: String| {
            let what = format!("make a room, with namespaces and a control group (it takes root): {reason}");
            SiteFailure::Step(ProgramsError::Step(what))
        };
        group.make().map_err(|error| failed(error.to_string()))?;
        let mut unshare = Command::new("unshare");
        unshare.args(has_network.then_some("--net"));
        unshare.args([
            "--mount",
            "--propagation",
            "private",
            "--",
            "sh",
            "-c",
            HOLD,
            "sh",
        ]);
        if let Some((from, to)) = content {
            unshare.args([from, to]);
        }
        let mut command = group.joined_by(&unshare);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut answer = [0];
        let said = child.stdout.as_mut().map(|output| output.read(&mut answer));
        if matches!(said, Some(Ok(1))) {
            return Ok(Self(child));
        }
        let mut reason = String::new();
        if let Some(mut errors) = child.stderr.take() {
            // What is there says enough.
            let _ = errors.read_to_string(&mut reason);
        }
        let _ = child.wait();
        Err(failed(reason.trim().to_owned()))
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for RoomHolder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_enter_by_namespace_or_by_node() {
        let group = ControlGroup::named("toehold-test").unwrap();
        let mut door = RoomDoor {
            holder: 7,
            group: group.clone(),
            network: RoomNetwork::Namespace,
            address: "10.198.1.1".into(),
            core: None,
        };
        assert_eq!(
            door.prefix().join(" "),
            "nsenter --mount=/proc/7/ns/mnt --net=/proc/7/ns/net --"
        );
        assert_eq!(door.groups().len(), 1);
        door.network = RoomNetwork::Node {
            toehold: "/bin/toehold".into(),
            fabric: "/f".into(),
            node: "web".into(),
            engine: group.child("engine"),
        };
        assert_eq!(
            door.prefix().join(" "),
            "nsenter --mount=/proc/7/ns/mnt -- /bin/toehold run --quiet --fabric /f --node web --"
        );
        assert_eq!(door.groups().len(), 2);
        door.core = Some(1);
        assert!(door.prefix().join(" ").starts_with("taskset -c 1 nsenter "));
    }
}
