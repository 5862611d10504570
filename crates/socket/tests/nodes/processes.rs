//! Processes of nodes: this very program once more, which plays a role.

use std::fs::DirEntry;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{eventually, spawn};

pub(crate) const ROLE: &str = "TOEHOLD_TEST_NODES_ROLE";
pub(crate) const FABRIC: &str = "TOEHOLD_TEST_NODES_FABRIC";
pub(crate) const NODE: &str = "TOEHOLD_TEST_NODES_NODE";
pub(crate) const PEER: &str = "TOEHOLD_TEST_NODES_PEER";
pub(crate) const SEED: &str = "TOEHOLD_TEST_NODES_SEED";

/// What a process is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) role: &'a str,
    pub(crate) fabric: &'a Path,
    pub(crate) node: &'a str,
    /// The peer to talk to.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) seed: u64,
}

/// A process that is killed at the latest when it is dropped.
pub(crate) struct Process {
    child: Child,
    /// What it says.
    lines: Receiver<String>,
}

impl Process {
    /// Starts it, and waits until it says that it is ready.
    pub(crate) fn start(part: Part<'_>) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "programs::program", "--nocapture", "--test-threads=1"])
            .env(ROLE, part.role)
            .env(FABRIC, part.fabric)
            .env(NODE, part.node)
            .env(SEED, part.seed.to_string());
        if let Some(peer) = part.peer {
            command.env(PEER, peer.to_string());
        }
        let mut child = spawn(command.stdout(Stdio::piped()));
        let output = BufReader::new(child.stdout.take().unwrap());
        let (say, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            // The program goes on even if the test listens no more.
            lines.try_for_each(|line| say.send(line))
        });
        let process = Process { child, lines };
        process.says("ready");
        process
    }

    /// Waits until it says so.
    pub(crate) fn says(&self, word: &str) {
        while !self.line().ends_with(word) {}
    }

    /// The next thing it says.
    pub(crate) fn line(&self) -> String {
        self.lines.recv().expect("it has ended without a word")
    }

    /// Forgets what it has said.
    pub(crate) fn hush(&self) {
        self.lines.try_iter().for_each(drop);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// SIGKILL, without waiting for its end.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for its end; whether it was a success.
    pub(crate) fn succeeds(mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    /// Waits until all of its threads sleep.
    pub(crate) fn rests(&self) {
        eventually("it does not rest", || {
            let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            let stat = |thread: DirEntry| std::fs::read_to_string(thread.path().join("stat")).ok();
            let stats = threads.filter_map(|thread| stat(thread.unwrap()));
            let awake = stats.filter(|stat| !stat.contains(") S ")).count();
            (awake == 0).then_some(()).ok_or(awake)
        });
    }

    /// How many descriptors it has.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    /// Kibibytes of memory of its own that it uses.
    pub(crate) fn private_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
