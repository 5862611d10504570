//! The two processes of a candidate, as the runner sees them.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::control::{Reply, Request};
use crate::experiment::Settings;
use crate::process::{Launcher, Process};
use crate::samples::Side;
use crate::testbed::{Context, Role};
use crate::workload::Workload;

/// The longest wait between two looks at the stop flag.
const STOP_INTERVAL: Duration = Duration::from_millis(250);

/// How long the server is listened to when the client has failed: the cause may be there.
const CAUSE_PATIENCE: Duration = Duration::from_millis(250);

/// Why a step with the two processes did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairError {
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Failed(String),
    #[error("interrupted")]
    Interrupted,
}

/// Both processes. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Pair {
    server: Process,
    client: Process,
    patience: Duration,
    /// When the measurement that goes on has to be over.
    deadline: Instant,
}

impl Pair {
    /// Starts both.
    pub(crate) fn start(launcher: &Launcher, settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            server: Process::start(launcher, "server")?,
            client: Process::start(launcher, "client")?,
            patience: Duration::from_millis(settings.patience_ms),
            deadline: Instant::now(),
        })
    }

    /// Makes them the sides of `candidate`: of the pair of that number. Each has a core of
    /// its own if they are pinned, and otherwise they share both.
    pub(crate) fn enter(
        &mut self,
        candidate: &str,
        (number, is_pinned): (u8, bool),
        scratch: &Path,
        settings: &Settings,
        stop: &AtomicBool,
    ) -> Result<(), PairError> {
        let enter = |role, peer: u32, core| Request::Enter {
            context: Context {
                candidate: candidate.to_owned(),
                role,
                pair: number,
                peer,
                scratch: scratch.to_owned(),
                settings: settings.clone(),
            },
            cores: if is_pinned {
                vec![core]
            } else {
                settings.cores.into()
            },
        };
        let server = enter(Role::Server, self.client.id(), settings.cores[0]);
        let client = enter(Role::Client, self.server.id(), settings.cores[1]);
        self.ask(Role::Server, &server, stop)?;
        self.ask(Role::Client, &client, stop)?;
        self.ask(Role::Server, &Request::Join, stop)?;
        self.ask(Role::Client, &Request::Join, stop)?;
        Ok(())
    }

    /// Has the server listen; gives the address.
    pub(crate) fn listen(&mut self, workload: Workload, stop: &AtomicBool) -> Result<String, PairError> {
        match self.ask(Role::Server, &Request::Listen { workload }, stop)? {
            Reply::Listening { address } => Ok(address),
            other => Err(unexpected("server", &other)),
        }
    }

    /// Has both begin with a workload, which takes so long if all goes well.
    pub(crate) fn begin(
        &mut self,
        workload: Workload,
        address: String,
        length: Duration,
    ) -> Result<(), PairError> {
        say(&mut self.server, &Request::Serve)?;
        say(&mut self.client, &Request::Drive { workload, address })?;
        self.deadline = Instant::now() + length + self.patience;
        Ok(())
    }

    /// What the client and the server counted in a workload that has begun.
    pub(crate) fn counted(&mut self, stop: &AtomicBool) -> Result<(Side, Side), PairError> {
        let mut sides = [None, None];
        while sides.iter().any(Option::is_none) {
            let waiting = [sides[0].is_none(), sides[1].is_none()];
            let (index, reply) = self.next_reply(waiting, self.deadline, stop)?;
            match reply {
                Reply::Measured { side } => sides[index] = Some(side),
                other => return Err(unexpected(self.processes()[index].name, &other)),
            }
        }
        match sides {
            [Some(server), Some(client)] if server.total_bytes == client.total_bytes => Ok((client, server)),
            [Some(server), Some(client)] => Err(PairError::Failed(format!(
                "the client counted {} bytes and the server {}",
                client.total_bytes, server.total_bytes
            ))),
            _ => Err(PairError::Failed("a side counted nothing".into())),
        }
    }

    /// Ends both; gives the last of what they wrote, for people.
    pub(crate) fn end(mut self) -> String {
        let mut text = String::new();
        for process in [&mut self.server, &mut self.client] {
            let output = process.end();
            if !output.trim().is_empty() {
                text.push_str(&format!("{}:\n{}\n", process.name, output.trim_end()));
            }
        }
        text
    }

    /// Tells both that they are free to go.
    pub(crate) fn dismiss(&self) {
        self.client.dismiss();
        self.server.dismiss();
    }

    /// Lets both, which were dismissed, end by themselves, or ends them.
    pub(crate) fn see_off(self) {
        self.client.see_off();
        self.server.see_off();
    }

    fn ask(&mut self, role: Role, request: &Request, stop: &AtomicBool) -> Result<Reply, PairError> {
        let index = usize::from(role == Role::Client);
        say(self.processes()[index], request)?;
        let waiting = [index == 0, index == 1];
        let (_, reply) = self.next_reply(waiting, Instant::now() + self.patience, stop)?;
        Ok(reply)
    }

    fn processes(&mut self) -> [&mut Process; 2] {
        [&mut self.server, &mut self.client]
    }

    /// Waits for a reply of one of those that are waited for. A refusal or failure of
    /// any is an error.
    fn next_reply(
        &mut self,
        waiting: [bool; 2],
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<(usize, Reply), PairError> {
        loop {
            let mut failure = None;
            for (index, process) in self.processes().into_iter().enumerate() {
                match process.line.take().map_err(|error| broken(process, &error))? {
                    Some(Reply::Unavailable { reason }) => return Err(PairError::Unavailable(reason)),
                    Some(Reply::Failed { reason }) => {
                        let reason = format!("{}: {reason}", process.name);
                        if index == 0 {
                            return Err(PairError::Failed(reason));
                        }
                        failure = Some(reason);
                    }
                    Some(reply) if waiting[index] => return Ok((index, reply)),
                    Some(reply) => return Err(unexpected(process.name, &reply)),
                    None => {}
                }
            }
            if let Some(reason) = failure {
                return Err(PairError::Failed(self.with_cause(reason)));
            }
            self.wait(waiting, deadline, stop)?;
        }
    }

    /// Why the client failed, after why the server did, if it did and says so soon.
    fn with_cause(&mut self, reason: String) -> String {
        let server = &mut self.server;
        let deadline = Instant::now() + CAUSE_PATIENCE;
        loop {
            match server.line.take() {
                Ok(Some(Reply::Failed { reason: cause })) => return format!("server: {cause}; {reason}"),
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(_) => return reason,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(server.line.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => continue,
                Ok(1..) => {}
                _ => return reason,
            }
            match server.line.fill() {
                Ok(0) => return format!("{}; {reason}", server.obituary()),
                Ok(_) => {}
                Err(_) => return reason,
            }
        }
    }

    /// Waits until a process says something, however little, or is gone.
    fn wait(&mut self, waiting: [bool; 2], deadline: Instant, stop: &AtomicBool) -> Result<(), PairError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(PairError::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let names = [("server", waiting[0]), ("client", waiting[1])];
                let silent = names
                    .iter()
                    .filter(|(_, waiting)| *waiting)
                    .map(|(name, _)| *name);
                let silent = silent.collect::<Vec<_>>().join(" and ");
                return Err(PairError::Failed(format!("no answer in time from the {silent}")));
            }
            let timeout = PollTimeout::try_from(left.min(STOP_INTERVAL)).unwrap_or(PollTimeout::ZERO);
            let mut fds = [
                PollFd::new(self.server.line.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.client.line.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, timeout) {
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(error) => {
                    return Err(PairError::Failed(format!(
                        "cannot wait for the processes: {error}"
                    )));
                }
            }
            let ready = fds.map(|fd| fd.any().unwrap_or(false));
            for (index, process) in self.processes().into_iter().enumerate() {
                if ready[index] && process.line.fill().map_err(|error| broken(process, &error))? == 0 {
                    return Err(PairError::Failed(process.obituary()));
                }
            }
            return Ok(());
        }
    }
}

fn unexpected(name: &str, reply: &Reply) -> PairError {
    PairError::Failed(format!(
        "the {name} answered something else than it was asked: {reply:?}"
    ))
}

fn say(process: &mut Process, request: &Request) -> Result<(), PairError> {
    process.line.send(request).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => PairError::Failed(process.obituary()),
        _ => broken(process, &error),
    })
}

fn broken(process: &Process, error: &io::Error) -> PairError {
    PairError::Failed(format!("cannot talk to the {}: {error}", process.name))
}
