//! Starting an engine process, and learning whether it runs.
//!
//! The new process runs this program again. Its standard output is a pipe on
//! which it says one thing: that the node runs, or why it does not. No file, no
//! signal and no guess is involved.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Lifetime;
use crate::control::{KeeperEnd, KeeperPair, keeper_pair};
use crate::fabric::NodeRecord;
use crate::run;
use crate::settings::{NodeSettings, TABLE};

/// How long an engine process may take to start.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The argument of an engine process that makes it end with the node's last user.
const WHILE_USED: &str = "--while-used";
/// The argument of an engine process that makes it a network namespace.
const OWN_NETWORK: &str = "--own-network";
/// The argument of an engine process that says which keeper the standard input is the node's end of.
const KEPT: &str = "--kept";

/// Most bytes of the engine process's report.
const MAX_REPORT: usize = 64 << 10;

/// An engine process to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program, and the arguments that make it an engine process.
    pub program: PathBuf,
    /// Those arguments; the node's follow them.
    pub arguments: Vec<OsString>,
    /// The fabric, by name or directory.
    pub fabric: String,
    /// The node.
    pub node: String,
    /// The node's settings.
    pub settings: NodeSettings,
    /// The fabric's networks, if they are to be others than the default ones.
    pub networks: Vec<IpNet>,
    /// How long the node lasts. One that lasts while it is used is started apart: its engine
    /// process is no child of this one.
    pub lifetime: Lifetime,
    /// Whether the engine process makes itself a network namespace, and the node's device in it.
    pub own_network: bool,
    /// The file for its messages, of which there are none unless something is wrong.
    pub log: Option<PathBuf>,
}

/// The reason why there is no engine process.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The system refused.
    #[error("cannot start an engine process: {0}")]
    Start(#[from] io::Error),
    /// The file for its messages cannot be written.
    #[error("cannot write the log {path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A living node has the name.
    #[error("{0}")]
    NameInUse(String),
    /// The process said why the node did not start.
    #[error("{0}")]
    Failed(String),
    /// The process ended without a word.
    #[error(
        "the engine process of {node} ended while it started ({status}); give --log FILE to see what it says"
    )]
    Ended {
        /// The node.
        node: String,
        /// The process's exit status.
        status: std::process::ExitStatus,
    },
    /// The node takes too long to start.
    #[error("the engine process of {0} did not start within 30 s; it has been stopped")]
    TimedOut(String),
}

/// The one message of an engine process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    Ready(NodeRecord),
    NameInUse(String),
    Failed(String),
}

impl Launch {
    /// Starts the engine process, and waits until the node runs or has failed to.
    ///
    /// # Errors
    ///
    /// The engine process's message, if it failed.
    pub fn start(&self) -> Result<NodeRecord, LaunchError> {
        self.start_by(self.command(None)?)
    }

    /// Starts the engine process as [`Launch::start`] does, with this process as the node's first
    /// user. The returned descriptor keeps the node, as [`Connection::keep_for_life`] does, and
    /// nothing needs to be asked.
    ///
    /// # Errors
    ///
    /// The engine process's message, if it failed.
    ///
    /// [`Connection::keep_for_life`]: crate::control::Connection::keep_for_life
    pub(crate) fn start_kept(&self) -> Result<(NodeRecord, OwnedFd), LaunchError> {
        let KeeperPair { end, keeper } = keeper_pair().map_err(io::Error::from)?;
        let record = self.start_by(self.command(Some(end))?)?;
        Ok((record, keeper))
    }

    /// Starts it by a command, and waits for its report.
    fn start_by(&self, mut command: Command) -> Result<NodeRecord, LaunchError> {
        let mut child = command.spawn()?;
        // The other end of a keeper is the engine process's alone.
        drop(command);
        let mut said = Vec::new();
        let heard = match child.stdout.take() {
            Some(pipe) => listen(pipe, &mut said)?,
            None => false,
        };
        let report = serde_json::from_slice(&said);
        let goes_on = self.lifetime == Lifetime::UntilTold && matches!(report, Ok(Report::Ready(_)));
        if report.is_ok() && !goes_on {
            child.wait()?;
        }
        match report {
            Ok(Report::Ready(record)) => Ok(record),
            Ok(Report::NameInUse(why)) => Err(LaunchError::NameInUse(why)),
            Ok(Report::Failed(why)) => Err(LaunchError::Failed(why)),
            Err(_) if heard => self.ended(child),
            Err(_) => {
                child.kill()?;
                child.wait()?;
                Err(LaunchError::TimedOut(self.node.clone()))
            }
        }
    }

    fn ended(&self, mut child: Child) -> Result<NodeRecord, LaunchError> {
        // It may have closed its output and live on.
        child.kill()?;
        Err(LaunchError::Ended {
            node: self.node.clone(),
            status: child.wait()?,
        })
    }

    fn command(&self, keeper: Option<KeeperEnd>) -> Result<Command, LaunchError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command.arg("--fabric").arg(&self.fabric);
        // The environment's values have been read, and perhaps overruled.
        for setting in TABLE {
            command.env_remove(setting.variable);
        }
        // It is no program of the node that this process may be one of.
        for variable in [run::NODE, run::NETWORKS, run::STATS, run::IO_URING] {
            command.env_remove(variable);
        }
        if let Some(preloaded) = std::env::var_os(run::PRELOAD) {
            match run::preload_without(Some(&preloaded)) {
                Some(others) => command.env(run::PRELOAD, others),
                None => command.env_remove(run::PRELOAD),
            };
        }
        toehold_shm::inherit_nothing(&mut command);
        if self.lifetime == Lifetime::WhileUsed {
            // This process may become another program, which would wonder at a child that it
            // did not start.
            toehold_shm::begin_apart(&mut command);
            command.arg(WHILE_USED);
        }
        if self.own_network {
            command.arg(OWN_NETWORK);
        }
        for (setting, value) in self.settings.changed() {
            command.arg(format!("--{}={value}", setting.name));
        }
        for network in &self.networks {
            command.arg("--network").arg(network.to_string());
        }
        if let Some(KeeperEnd { inode, .. }) = &keeper {
            command.args([KEPT, &inode.to_string()]);
        }
        command.arg("--").arg(&self.node);
        command.stdin(keeper.map_or_else(Stdio::null, |end| end.descriptor.into()));
        command.stdout(Stdio::piped());
        command.stderr(match &self.log {
            Some(_) => Stdio::from(self.open_log()?),
            None => Stdio::null(),
        });
        Ok(command)
    }

    fn open_log(&self) -> Result<File, LaunchError> {
        let path = self.log.clone().unwrap_or_default();
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path);
        opened.map_err(|source| LaunchError::Log { path, source })
    }
}

/// Reads a report. Returns `false` if the time is over before it is whole or the pipe closed.
fn listen(mut pipe: ChildStdout, said: &mut Vec<u8>) -> io::Result<bool> {
    let deadline = Instant::now() + TIMEOUT;
    while said.len() < MAX_REPORT {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut part = [0; 4096];
        match pipe.read(&mut part) {
            Ok(0) => return Ok(true),
            Ok(len) => {
                said.extend_from_slice(&part[..len]);
                // No beginning of a report is one. To wait for the pipe's end as well would be to
                // wait for the engine process once more.
                if serde_json::from_slice::<Report>(said).is_ok() {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
