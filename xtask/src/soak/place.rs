//! The soak's fabric: its directory, its nodes, and the command that acts on them.

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a node may take to begin or to end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes, with the last byte of their addresses. The engines of the first two are never killed.
pub(super) const NODES: [(&str, u8); 4] =
    [("server", 1), ("client", 2), ("restless-1", 3), ("restless-2", 4)];

/// The nodes whose engines are killed and stopped.
pub(super) const RESTLESS: [&str; 2] = ["restless-1", "restless-2"];

/// The node without direct connections.
const OVER_TCP: &str = "restless-1";

/// A fabric under a directory of its own, with the programs that it is tried with.
pub(super) struct Place {
    directory: TempDir,
    toehold: PathBuf,
    library: PathBuf,
}

impl Place {
    /// Takes `toehold` and its library from a directory.
    pub(super) fn new(programs: &Path) -> Result<Place> {
        let programs = fs::canonicalize(programs).with_context(|| format!("no {}", programs.display()))?;
        let found = |name: &str| {
            let path = programs.join(name);
            match path.exists() {
                true => Ok(path),
                false => bail!("{} is not there: build it first", path.display()),
            }
        };
        Ok(Place {
            directory: tempfile::Builder::new().prefix("toehold-soak-").tempdir()?,
            toehold: found("toehold")?,
            library: found("libtoehold.so")?,
        })
    }

    /// The path of a file of the soak's programs.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Keeps the files of the programs, and what the engines said, after the end; says where.
    pub(super) fn keep(&mut self) -> &Path {
        self.directory.disable_cleanup(true);
        self.directory.path()
    }

    /// The directory that holds nothing but the fabric's files and sockets.
    pub(super) fn runtime(&self) -> PathBuf {
        self.path("run")
    }

    /// `toehold` with arguments.
    pub(super) fn toehold(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.toehold);
        command
            .args(arguments)
            .env("TOEHOLD_RUNTIME_DIR", self.runtime())
            .env("TOEHOLD_LIBRARY", &self.library)
            .env_remove("TOEHOLD_FABRIC")
            .env_remove("LD_PRELOAD")
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs `toehold` to its end; returns what it printed.
    fn says(&self, arguments: &[&str]) -> Result<String> {
        let output = self.toehold(arguments).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("toehold {}: {} {said}", arguments.join(" "), output.status);
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts a node's engine. Connections of one node are over TCP, all others are direct.
    pub(super) fn up(&self, node: &str) -> Result<()> {
        let address = format!("{}/16", address(node));
        let log = self.path("engines.log");
        let direct = if node == OVER_TCP { "no" } else { "yes" };
        let log = log.to_string_lossy();
        self.says(&["up", node, "--ipv4", &address, "--log", &log, "--direct", direct])
            .map(drop)
    }

    /// Ends all engines.
    pub(super) fn down(&self) -> Result<()> {
        self.says(&["down", "--all"]).map(drop)
    }

    /// What `toehold stat` says of a node.
    pub(super) fn stat(&self, node: &str) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.says(&["stat", node, "--json", "--all"])?,
        )?)
    }

    /// A node's sockets that are not in TIME-WAIT, each in a word.
    pub(super) fn open_sockets(&self, node: &str) -> Result<Vec<String>> {
        let document: Value = serde_json::from_str(&self.says(&["sockets", node, "--json"])?)?;
        let sockets = document["sockets"].as_array().into_iter().flatten();
        let open = sockets.filter(|socket| socket["state"] != "TIME-WAIT");
        Ok(open.map(|socket| socket["state"].to_string()).collect())
    }

    /// A node's engine process, if the node has a record of one.
    pub(super) fn engine(&self, node: &str) -> Option<Pid> {
        let record = fs::read(self.runtime().join(format!("default/{node}.json"))).ok()?;
        let record: Value = serde_json::from_slice(&record).ok()?;
        Pid::from_raw(record["pid"].as_i64()?.try_into().ok()?)
    }

    /// Kills a node's engine, waits until it is gone, and starts the next one.
    pub(super) fn replace_engine(&self, node: &str) -> Result<()> {
        let engine = self
            .engine(node)
            .with_context(|| format!("{node} has no engine"))?;
        kill_process(engine, Signal::KILL)?;
        eventually("the end of a killed engine", || !is_alive(engine))?;
        self.up(node)
    }

    /// The files and sockets in the runtime directory.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut directories = vec![self.runtime()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                    _ => files.push(entry.path()),
                }
            }
        }
        files
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.down();
    }
}

/// The IPv4 address of a node of [`NODES`].
pub(super) fn address(node: &str) -> String {
    let last = NODES
        .iter()
        .find(|(name, _)| *name == node)
        .map_or(0, |(_, last)| *last);
    format!("10.77.0.{last}")
}

/// Whether a process has a thread that has not ended: its first one may have, and others still
/// keep its sockets.
pub(super) fn is_alive(process: Pid) -> bool {
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else {
        return false;
    };
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&at_once)) == Ok(0)
}

/// Waits until another process has done something.
pub(super) fn eventually(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            bail!("{what} did not come in {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
