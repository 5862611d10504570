//! The fabrics of a test, and the command in them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

/// Long enough for any step on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The directory of a test's fabrics. Its nodes end with it.
pub(crate) struct Fabrics(pub(crate) TempDir);

impl Fabrics {
    pub(crate) fn new() -> Fabrics {
        start_programs_with_default_signals();
        Fabrics(
            tempfile::Builder::new()
                .prefix("toehold-nodes-")
                .tempdir()
                .unwrap(),
        )
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
        command.args(line.split_whitespace());
        command.env("TOEHOLD_RUNTIME_DIR", self.0.path());
        command.env_remove("TOEHOLD_FABRIC").stdin(Stdio::null());
        command
    }

    /// Returns when all processes have closed the command's output. An engine process that kept it
    /// would block this call forever.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    pub(crate) fn succeeds(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn fails(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code().map(|code| code != 0), Some(true), "{line}");
        text(&output.stderr)
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.succeeds(line)).unwrap()
    }

    /// Returns the list in the document that a command prints.
    pub(crate) fn list(&self, line: &str) -> Value {
        list_in(self.json(line))
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.path().join("default")) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn engine(&self, node: &str) -> Pid {
        engine_of(&self.0.path().join(format!("default/{node}.json")))
    }
}

/// Returns the only list in a document, which has no other field except its schema.
pub(crate) fn list_in(document: Value) -> Value {
    let Value::Object(fields) = document else {
        panic!("{document} is no document");
    };
    let schema = fields["schema"].as_str().unwrap_or_default();
    assert!(schema.starts_with("toehold/") && fields.len() == 2, "{fields:?}");
    fields.into_iter().find(|(name, _)| name != "schema").unwrap().1
}

/// The engine process of a node's record.
pub(crate) fn engine_of(record: &Path) -> Pid {
    let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    Pid::from_raw(record["pid"].as_i64().unwrap() as i32).unwrap()
}

impl Drop for Fabrics {
    fn drop(&mut self) {
        let _ = self.run("down --all");
    }
}

/// Resets ignored signals, which all programs of the tests would inherit: under `nohup`, or in the
/// background of a script. Handled signals are not inherited.
fn start_programs_with_default_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
            let signal = signal.as_raw();
            if ignored >> (signal - 1) & 1 != 0 {
                signal_hook::flag::register(signal, Arc::default()).unwrap();
            }
        }
    });
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits for the effect of another process, which takes time on a busy machine only.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what} does not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until all threads of a process have ended: its first thread may be dead while others still
/// have its sockets.
pub(crate) fn wait_for_end(process: Pid) {
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else {
        return;
    };
    let timeout = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout));
    assert_eq!(ended, Ok(1), "the process does not end");
}
