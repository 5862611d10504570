//! The processes of a candidate, as the runner sees them: a server and its clients, commonly one.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::control::{Reply, Request};
use crate::far;
use crate::process::{Launcher, Process};
use crate::samples::Side;
use crate::settings::Settings;
use crate::testbed::{Context, Role};
use crate::workload::Workload;

/// The longest wait between two looks at the stop flag.
const STOP_INTERVAL: Duration = Duration::from_millis(250);

/// Time to wait for the server after a failure of the client: the cause may be there.
const CAUSE_PATIENCE: Duration = Duration::from_millis(250);

/// Reasons for the failure of a step with the processes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairError {
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Failed(String),
    #[error("interrupted")]
    Interrupted,
}

/// The server's index among the processes.
const SERVER: usize = 0;

/// The number of a pair, and the path between its sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The number among several pairs that run at the same time.
    pub(crate) number: u8,
    /// Whether each side has a core of its own.
    pub(crate) is_pinned: bool,
    /// Largest packet of the path between the sides.
    pub(crate) mtu: Option<u16>,
    /// Seed of all random decisions of a side.
    pub(crate) seed: u64,
}

/// The other machine of a candidate between two, and the path to it.
pub(crate) type Between<'a> = (&'a far::Far, far::Path);

/// All processes of a pair. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Pair {
    server: Process,
    /// The path, if the server is on another machine.
    path: Option<far::Path>,
    clients: Vec<Process>,
    patience: Duration,
    /// Deadline of the present measurement.
    deadline: Instant,
}

impl Pair {
    /// Starts a server, here or on another machine, and a number of clients. There are none if the
    /// server runs its workloads alone.
    pub(crate) fn start(
        launcher: &Launcher,
        between: Option<Between<'_>>,
        settings: &Settings,
        clients: u8,
    ) -> io::Result<Self> {
        let clients = (0..clients).map(|_| Process::start(launcher, "client"));
        Ok(Self {
            server: match between {
                Some((far, _)) => Process::start_far(far, "server")?,
                None => Process::start(launcher, "server")?,
            },
            path: between.map(|(_, path)| path),
            clients: clients.collect::<io::Result<_>>()?,
            patience: Duration::from_millis(settings.patience_ms),
            deadline: Instant::now(),
        })
    }

    /// Makes the processes the sides of `candidate`. If they are pinned, the server has a core of
    /// its own, and all clients share the other. Otherwise they share both.
    pub(crate) fn enter(
        &mut self,
        candidate: &str,
        place: Place,
        scratch: &Path,
        settings: &Settings,
        stop: &AtomicBool,
    ) -> Result<(), PairError> {
        let (server, clients) = (
            self.server.id(),
            self.clients.iter().map(Process::id).collect::<Vec<_>>(),
        );
        let path = self.path;
        // The one on another machine uses its own directory; the slash makes it a fabric's
        // directory.
        let scratch_of = |role| match role {
            Role::Server if path.is_some() => PathBuf::from("./"),
            _ => scratch.to_owned(),
        };
        let enter = |role, client, core| Request::Enter {
            context: Box::new(Context {
                candidate: candidate.to_owned(),
                role,
                pair: place.number,
                server,
                clients: clients.clone(),
                client,
                mtu: place.mtu,
                scratch: scratch_of(role),
                path,
                settings: settings.clone(),
                seed: place.seed,
            }),
            cores: if place.is_pinned {
                vec![core]
            } else {
                settings.cores.into()
            },
        };
        let [core_of_server, core_of_clients] = settings.cores;
        self.ask(SERVER, &enter(Role::Server, 0, core_of_server), stop)?;
        for (number, index) in (0..).zip(1..=clients.len()) {
            self.ask(index, &enter(Role::Client, number, core_of_clients), stop)?;
        }
        for index in 0..=clients.len() {
            self.ask(index, &Request::Join, stop)?;
        }
        Ok(())
    }

    /// Makes the server listen; returns the address.
    pub(crate) fn listen(&mut self, workload: Workload, stop: &AtomicBool) -> Result<String, PairError> {
        match self.ask(SERVER, &Request::Listen { workload }, stop)? {
            Reply::Listening { address } => Ok(address),
            other => Err(unexpected("server", &other)),
        }
    }

    /// Begins a workload on all processes, which takes this long if it succeeds.
    pub(crate) fn begin(
        &mut self,
        workload: Workload,
        address: String,
        length: Duration,
    ) -> Result<(), PairError> {
        say(&mut self.server, &Request::Serve)?;
        let drive = Request::Drive { workload, address };
        for client in &mut self.clients {
            say(client, &drive)?;
        }
        self.deadline = Instant::now() + length + self.patience;
        Ok(())
    }

    /// The counts of the clients together and of the server in a workload that has begun.
    pub(crate) fn counted(&mut self, stop: &AtomicBool) -> Result<(Side, Side), PairError> {
        let mut sides = vec![None; 1 + self.clients.len()];
        while sides.iter().any(Option::is_none) {
            let waiting: Vec<_> = sides.iter().map(Option::is_none).collect();
            let (index, reply) = self.next_reply(&waiting, self.deadline, stop)?;
            match reply {
                Reply::Measured { side } => sides[index] = Some(side),
                other => return Err(unexpected(self.processes()[index].name, &other)),
            }
        }
        let mut sides = sides.into_iter().flatten();
        let server = sides.next().unwrap_or_default();
        let clients = Side::together(sides);
        if server.total_bytes == clients.total_bytes {
            return Ok((clients, server));
        }
        Err(PairError::Failed(format!(
            "the client counted {} bytes and the server {}",
            clients.total_bytes, server.total_bytes
        )))
    }

    /// Ends all processes; returns the last part of their output, for people.
    pub(crate) fn end(mut self) -> String {
        let mut text = String::new();
        for process in self.processes() {
            let output = process.end();
            if !output.trim().is_empty() {
                text.push_str(&format!("{}:\n{}\n", process.name, output.trim_end()));
            }
        }
        text
    }

    /// Tells all processes that they may end.
    pub(crate) fn dismiss(&self) {
        self.clients.iter().for_each(Process::dismiss);
        self.server.dismiss();
    }

    /// Waits for dismissed processes to end by themselves, or ends them.
    pub(crate) fn see_off(self) {
        self.clients.iter().for_each(Process::see_off);
        self.server.see_off();
    }

    fn ask(&mut self, index: usize, request: &Request, stop: &AtomicBool) -> Result<Reply, PairError> {
        say(self.processes().swap_remove(index), request)?;
        let waiting: Vec<_> = (0..=self.clients.len()).map(|other| other == index).collect();
        let (_, reply) = self.next_reply(&waiting, Instant::now() + self.patience, stop)?;
        Ok(reply)
    }

    /// The server, and then the clients.
    fn processes(&mut self) -> Vec<&mut Process> {
        std::iter::once(&mut self.server)
            .chain(&mut self.clients)
            .collect()
    }

    /// Waits for a reply from one of the awaited processes. A refusal or failure of any is an
    /// error.
    fn next_reply(
        &mut self,
        waiting: &[bool],
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
                        if index == SERVER {
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

    /// The reason for a client's failure, behind the server's reason if it reports one soon.
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

    /// Waits until a process sends anything, or is gone.
    fn wait(&mut self, waiting: &[bool], deadline: Instant, stop: &AtomicBool) -> Result<(), PairError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(PairError::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let of_server = waiting.first().filter(|waiting| **waiting).map(|_| "server");
                let of_clients = waiting[1..].contains(&true).then_some("client");
                let silent: Vec<_> = of_server.into_iter().chain(of_clients).collect();
                let silent = silent.join(" and ");
                return Err(PairError::Failed(format!("no answer in time from the {silent}")));
            }
            let timeout = PollTimeout::try_from(left.min(STOP_INTERVAL)).unwrap_or(PollTimeout::ZERO);
            let processes = std::iter::once(&self.server).chain(&self.clients);
            let lines = processes.map(|process| PollFd::new(process.line.as_fd(), PollFlags::POLLIN));
            let mut fds: Vec<_> = lines.collect();
            match poll(&mut fds, timeout) {
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(error) => {
                    return Err(PairError::Failed(format!(
                        "cannot wait for the processes: {error}"
                    )));
                }
            }
            let ready: Vec<_> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
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
