//! One process of a candidate: its conversation, its output and its end.

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

/// How much of what a process writes is kept: the last so many bytes.
const KEPT_OUTPUT: usize = 16 << 10;

/// How long the rest of the output of an ended process is waited for. It does not
/// end if a process that escaped from the group still holds it.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(300);

/// How long a process that was dismissed may take to end by itself.
pub(crate) const EXIT_PATIENCE: Duration = Duration::from_millis(300);

/// The same on another machine.
const FAR_EXIT_PATIENCE: Duration = Duration::from_secs(3);

/// How the processes of candidates are started.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// The program, commonly this one.
    pub program: PathBuf,
    /// Arguments that bring it to [`crate::side::main`].
    pub arguments: Vec<OsString>,
}

/// A process. Dropping it ends it, and whatever it has started.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its part, for people.
    pub(crate) name: &'static str,
    /// The conversation with it.
    pub(crate) line: Line,
    child: Child,
    /// Whether it stands for one on another machine, which ends when the conversation does.
    is_far: bool,
    /// How it ended, once it has been waited for.
    status: Option<ExitStatus>,
    output: Arc<Mutex<Vec<u8>>>,
    collector: Option<JoinHandle<()>>,
}

impl Process {
    /// The kernel ends it when the thread that started it does.
    pub(crate) fn start(launcher: &Launcher, name: &'static str) -> io::Result<Self> {
        Self::start_as(launcher, name, false)
    }

    /// The same on another machine, by what answers on its standard output.
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
            // A group of its own: Ctrl-C reaches the runner only, which ends the
            // whole group.
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

    /// What became of a process that left the conversation.
    pub(crate) fn obituary(&mut self) -> String {
        self.reap();
        match self.status {
            Some(status) => format!("the {} ended by itself: {status}", self.name),
            None => format!("the {} is gone", self.name),
        }
    }

    /// Tells it that the conversation is over. It is free to go.
    pub(crate) fn dismiss(&self) {
        self.line.close();
    }

    /// Gives a process that was dismissed a moment to end by itself.
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

    /// Ends it; gives the last of what it wrote.
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

    /// Kills the group and waits for its leader, once: until then nobody else can get
    /// the group's number.
    fn reap(&mut self) {
        if self.status.is_some() {
            return;
        }
        if self.is_far {
            // What is killed here is not what runs there.
            self.dismiss();
            self.see_off();
        }
        if let Some(group) = self.pid() {
            // There may be nobody left in it.
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
