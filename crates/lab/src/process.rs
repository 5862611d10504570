//! One process of a candidate: its messages, its output and its end.

use std::ffi::OsString;
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::control::Line;
use crate::far::Far;

/// Bytes to keep of a process's output: the last ones.
const KEPT_OUTPUT: usize = 16 << 10;

/// Time to wait for the rest of the output of an ended process. The output does not end while a
/// process that left the group still holds it.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(300);

/// Time in which a dismissed process may end by itself.
pub(crate) const EXIT_PATIENCE: Duration = Duration::from_millis(300);

/// Time in which a dismissed process on another machine may end by itself.
const FAR_EXIT_PATIENCE: Duration = Duration::from_secs(3);

/// How the processes of candidates are started.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// The program, commonly this one.
    pub program: PathBuf,
    /// Arguments that bring it to [`crate::side::main`].
    pub arguments: Vec<OsString>,
}

/// A process. Dropping it ends it, together with all processes it has started.
#[derive(Debug)]
pub(crate) struct Process {
    /// The process's role, for people.
    pub(crate) name: &'static str,
    /// The messages to and from it.
    pub(crate) line: Line,
    child: Child,
    /// Whether it represents a process on another machine, which ends with the messages.
    is_far: bool,
    /// The process's exit status, once it has been waited for.
    status: Option<ExitStatus>,
    output: Arc<Mutex<Vec<u8>>>,
    collector: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a process. The kernel ends it with the thread that started it.
    pub(crate) fn start(launcher: &Launcher, name: &'static str) -> io::Result<Self> {
        Self::start_as(launcher, name, false)
    }

    /// Starts a process on another machine, with its messages on standard output.
    pub(crate) fn start_far(far: &Far, name: &'static str) -> io::Result<Self> {
        Self::start_as(&far.launcher(), name, true)
    }

    fn start_as(launcher: &Launcher, name: &'static str, is_far: bool) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs);
        let (reader, writer) = io::pipe()?;
        let answers = if is_far {
            theirs.try_clone()?
        } else {
            writer.try_clone()?.into()
        };
        let child = Command::new(&launcher.program)
            .args(&launcher.arguments)
            .stdin(theirs)
            .stdout(answers)
            .stderr(writer)
            // A group of its own: Ctrl-C reaches the runner only, which ends the whole group.
            .process_group(0)
            .spawn()?;
        let output = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&output);
        let collector = Some(std::thread::spawn(move || collect(reader, &kept)));
        Ok(Self {
            name,
            line: Line::new(ours),
            child,
            is_far,
            status: None,
            output,
            collector,
        })
    }

    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The fate of a process that stopped answering.
    pub(crate) fn obituary(&mut self) -> String {
        self.reap();
        match self.status {
            Some(status) => format!("the {} ended by itself: {status}", self.name),
            None => format!("the {} is gone", self.name),
        }
    }

    /// Tells it that no more requests follow, so that it may end.
    pub(crate) fn dismiss(&self) {
        self.line.close();
    }

    /// Gives a dismissed process a moment to end by itself.
    pub(crate) fn see_off(&self) {
        let Some(id) = self.pid() else { return };
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let patience = if self.is_far {
            FAR_EXIT_PATIENCE
        } else {
            EXIT_PATIENCE
        };
        let deadline = Instant::now() + patience;
        while self.status.is_none() && Instant::now() < deadline {
            match waitid(Id::Pid(id), look) {
                Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_micros(200)),
                _ => return,
            }
        }
    }

    /// Ends it; returns the last part of its output.
    pub(crate) fn end(&mut self) -> String {
        self.reap();
        let deadline = Instant::now() + OUTPUT_PATIENCE;
        if let Some(collector) = self.collector.take() {
            while !collector.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Kills the group and waits for its leader, once: before that, the group's number cannot be
    /// reused.
    fn reap(&mut self) {
        if self.status.is_some() {
            return;
        }
        if self.is_far {
            // This kills only the local process, not the one on the other machine.
            self.dismiss();
            self.see_off();
        }
        if let Some(group) = self.pid() {
            // The group may be empty.
            let _ = killpg(group, Signal::SIGKILL);
        }
        self.status = self.child.wait().ok();
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().map(Pid::from_raw)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads to the end; keeps the last [`KEPT_OUTPUT`] bytes.
fn collect(mut reader: PipeReader, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..n]);
                let surplus = kept.len().saturating_sub(KEPT_OUTPUT);
                kept.drain(..surplus);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
