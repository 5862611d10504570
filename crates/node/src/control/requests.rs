//! The server's handling of requests.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use rustix::event::epoll::{self, EventFlags};
use rustix::time::ClockId;

use super::host::{Client, Refusal};
use super::message::{Answer, BUILD, MAX_DESCRIPTORS, MAX_HOLDERS, Request, VERSION};
use super::server::{Server, Source};
use super::session::Session;
use super::status::{NodeStatus, SocketStatus};
use crate::why::Reason;

impl Server {
    /// Carries out a client's request, with the descriptors that came along.
    pub(super) fn carry_out(
        &mut self,
        id: u64,
        request: Request,
        given: Vec<OwnedFd>,
    ) -> Result<(Answer, Vec<OwnedFd>), Refusal> {
        let session = self.sessions.get_mut(&id);
        let entrusted = session.and_then(|session| session.entrusted.take());
        let answer = match request {
            Request::Attach { version, build } => return self.attach(id, version, &build),
            Request::TakeOver { life } => {
                let client = self.client(id)?;
                let process = self.host.take_over(client, life)?;
                self.note_attached(id, process);
                Answer::TakenOver(process)
            }
            Request::Peer {
                shard,
                slot,
                generation,
            } => {
                self.process(id)?;
                let descriptors = self.host.peer(shard, slot, generation).unwrap_or_default();
                return Ok((Answer::Descriptors, bounded(descriptors)?));
            }
            Request::Bank { slot, generation } => {
                let process = self.process(id)?;
                let descriptors = self.host.bank(process, slot, generation)?.unwrap_or_default();
                return Ok((Answer::Descriptors, bounded(descriptors)?));
            }
            Request::Bells { which } => {
                let process = self.process(id)?;
                let descriptors = self.host.bells(process, which)?.unwrap_or_default();
                return Ok((Answer::Descriptors, bounded(descriptors)?));
            }
            Request::Ring { which, waiter } => {
                let process = self.process(id)?;
                self.host.ring(process, which, waiter)?;
                Answer::Done
            }
            Request::Holders { count } => {
                let process = self.process(id)?;
                if count > MAX_HOLDERS {
                    return Err(Refusal::new(format!("at most {MAX_HOLDERS} holders at once")));
                }
                let (numbers, descriptors) = self.host.holders(process, count)?.into_iter().unzip();
                return Ok((Answer::Holders(numbers), bounded(descriptors)?));
            }
            Request::Identify => {
                let process = self.process(id)?;
                Answer::Holders(vec![self.host.identify(process, one(given)?)?])
            }
            Request::Entrust => {
                self.process(id)?;
                let descriptor = one(given)?;
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.entrusted = Some(descriptor);
                }
                Answer::Done
            }
            Request::Inherit => {
                let process = self.process(id)?;
                let descriptor = entrusted.ok_or_else(|| Refusal::new("it was entrusted with nothing"))?;
                let inherited = self.host.inherit(process, descriptor)?;
                let (numbers, descriptors) = inherited.into_iter().unzip();
                return Ok((Answer::Holders(numbers), descriptors));
            }
            Request::TakePort {
                holder,
                address,
                only_ipv6,
            } => {
                let process = self.process(id)?;
                match self.host.take_port(process, holder, address, only_ipv6)? {
                    Ok(port) => Answer::Port(port),
                    Err(errno) => Answer::NoPort(errno.raw_os_error()),
                }
            }
            Request::ReleasePort { holder } => {
                let process = self.process(id)?;
                self.host.release_port(process, holder)?;
                Answer::Done
            }
            Request::Relay { shard, holder } => {
                let process = self.process(id)?;
                self.host.relay(process, shard, holder)?;
                Answer::Done
            }
            Request::Own { shard, holder } => {
                let process = self.process(id)?;
                let messenger = <[OwnedFd; 2]>::try_from(given)
                    .map_err(|_| Refusal::new("two descriptors come with that, of a pair of sockets"))?;
                self.host.own(process, shard, holder, messenger)?;
                Answer::Done
            }
            Request::Forward { holder, which } => {
                let process = self.process(id)?;
                let [listener, callers] = <[OwnedFd; 2]>::try_from(given)
                    .map_err(|_| Refusal::new("two descriptors come with that, a listener and a table"))?;
                let session = self.sessions.get(&id);
                if !session.is_some_and(|session| shares_network(session.pid)) {
                    return Err(Refusal::new("the process has another network"));
                }
                self.host.forward(process, holder, [listener, callers], which)?;
                Answer::Done
            }
            Request::Keep { inode } => {
                let kept = self.keepers.keep(&self.epoll, one(given)?, inode);
                kept.map_err(|errno| Refusal::new(format!("it cannot be kept: {errno} (see `ulimit -n`)")))?;
                Answer::Done
            }
            Request::KeepForLife => {
                let session = self.sessions.get(&id);
                let opened = session.and_then(|session| Some((session.open_pidfd().ok()??, session.pid)));
                let (pidfd, pid) =
                    opened.ok_or_else(|| Refusal::new("the process cannot be seen from here"))?;
                self.keepers.keep_for(&self.epoll, pidfd, pid);
                Answer::Done
            }
            Request::Names { node } => {
                let fabric = self.fabric.as_ref();
                Answer::Names(match (fabric, node) {
                    (None, _) => Vec::new(),
                    (Some(fabric), None) => fabric.nodes(),
                    (Some(fabric), Some(node)) => fabric.resolve(&node).into_iter().collect(),
                })
            }
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Sockets => Answer::Sockets(self.sockets()),
            Request::Counters => Answer::Counters(self.host.counters()),
            Request::SetPlacement { placement } => {
                self.host.set_placement(placement)?;
                Answer::Done
            }
            Request::StartCapture { settings } => {
                self.host.start_capture(one(given)?.into(), settings)?;
                self.set_captures(id, true);
                Answer::Done
            }
            Request::StopCapture => {
                if !self.sessions.get(&id).is_some_and(|session| session.captures) {
                    return Err(Refusal::new("only whoever has begun a capture can end it"));
                }
                let summary = self.host.stop_capture();
                self.set_captures(id, !summary.complete);
                Answer::Captured(summary)
            }
            Request::Down => {
                self.stopping = true;
                Answer::Done
            }
        };
        Ok((answer, Vec::new()))
    }

    fn attach(&mut self, id: u64, version: u32, build: &str) -> Result<(Answer, Vec<OwnedFd>), Refusal> {
        if version != VERSION || build != BUILD {
            return Err(Refusal::because(
                Reason::OtherBuild,
                format!(
                    "the node's engine is of toehold {BUILD} (protocol {VERSION}) and the program's library of {build} \
                 (protocol {version}); start the node again with the same version"
                ),
            ));
        }
        let client = self.client(id)?;
        let attachment = self.host.attach(client)?;
        self.note_attached(id, attachment.process);
        let answer = Answer::Attached {
            process: attachment.process,
            description: attachment.description,
        };
        let mut descriptors = attachment.descriptors;
        let door = self.porch.door();
        descriptors.push(door.map_err(|errno| Refusal::new(format!("it has no door left: {errno}")))?);
        descriptors.push(self.host.closings()?);
        Ok((answer, bounded(descriptors)?))
    }

    /// The process that asks to be attached. It is watched from now on.
    fn client(&mut self, id: u64) -> Result<Client, Refusal> {
        let gone = || Refusal::new("the process has ended");
        let session = self.sessions.get_mut(&id).ok_or_else(gone)?;
        if session.process.is_some() {
            return Err(Refusal::new("the connection's process has attached already"));
        }
        let process = session.open_pidfd().map_err(|_| gone())?;
        Ok(Client {
            pid: session.pid,
            uid: session.uid,
            pidfd: process,
        })
    }

    fn note_attached(&mut self, id: u64, process: u16) {
        self.keepers.used();
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.process = Some((process, SystemTime::now()));
        if let Ok(Some(pidfd)) = &session.pidfd {
            let (token, flags) = (Source::Process(id).token(), EventFlags::IN);
            // Without it, the connection's end still tells.
            let _ = epoll::add(&self.epoll, pidfd, token, flags);
        }
    }

    /// The client's number in the node.
    fn process(&self, id: u64) -> Result<u16, Refusal> {
        let process = self.sessions.get(&id).and_then(|session| session.process);
        let unattached = || Refusal::new("only a process that has attached can ask for this");
        process.map(|(process, _)| process).ok_or_else(unattached)
    }

    fn set_captures(&mut self, id: u64, captures: bool) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.captures = captures;
        }
    }

    /// The node's sockets, with the processes that the host knows by number only.
    fn sockets(&self) -> Vec<SocketStatus> {
        let numbered = |session: &Session| Some((session.process?.0, session.pid));
        let pids: HashMap<_, _> = self.sessions.values().filter_map(numbered).collect();
        let mut users = HashMap::new();
        let mut sockets = self.host.sockets();
        for socket in &mut sockets {
            socket.pid = socket.process.and_then(|process| pids.get(&process).copied());
            socket.uid = socket
                .pid
                .and_then(|pid| *users.entry(pid).or_insert_with(|| user_of(pid)));
        }
        sockets
    }

    fn status(&self) -> NodeStatus {
        let mut processes: Vec<_> = self.sessions.values().filter_map(Session::status).collect();
        processes.sort_unstable_by_key(|process| process.process);
        let used = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        NodeStatus {
            node: self.record.clone(),
            cpu_time: Duration::new(used.tv_sec as u64, used.tv_nsec as u32),
            uptime: self.began.elapsed(),
            processes,
            unaccelerated: self.records.all().to_vec(),
            unaccelerated_beyond: self.records.beyond(),
            keepers: self.keepers.inodes(),
            stack: self.host.status(),
        }
    }
}

/// The user of a process, as far as that can be seen.
fn user_of(pid: u32) -> Option<u32> {
    let stat = rustix::fs::stat(format!("/proc/{pid}")).ok()?;
    Some(stat.st_uid)
}

/// Whether a process is in this one's network namespace, as far as that can be seen.
fn shares_network(pid: u32) -> bool {
    let namespace = |process: &str| {
        let stat = rustix::fs::stat(format!("/proc/{process}/ns/net")).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    let own = namespace("self");
    own.is_some() && own == namespace(&pid.to_string())
}

/// The descriptor of a request that comes with one.
fn one(given: Vec<OwnedFd>) -> Result<OwnedFd, Refusal> {
    let mut given = given.into_iter();
    match (given.next(), given.next()) {
        (Some(descriptor), None) => Ok(descriptor),
        _ => Err(Refusal::new("the request has to come with one descriptor")),
    }
}

/// A host that gives more descriptors than a packet holds is at fault; its
/// process is told instead of being left without an answer.
fn bounded(descriptors: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Refusal> {
    if descriptors.len() < MAX_DESCRIPTORS {
        Ok(descriptors)
    } else {
        Err(Refusal::new(
            "the node has more descriptors to give than a packet holds",
        ))
    }
}
