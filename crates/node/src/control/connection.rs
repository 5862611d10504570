//! A client's side of the control protocol: it waits, but never longer than its timeout.

mod keeping;
mod operator;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::Pid;
use toehold_link::credentials::{PeerCredentials, is_own_user, peer_uid};
use toehold_link::mq::{InvalidName, NodeName};

use super::door::Door;
use super::host::{Attachment, Refusal};
use super::message::{Answer, BUILD, MAX_PACKET, Request, VERSION};
use super::packet::{self, Packet};
use crate::callers::Forwarded;
use crate::descriptors::{copy_for_a_moment, keep};
use crate::direct::BellsOf;
use crate::fabric::{Fabric, NodeRecord};
use crate::seen::{number_of, process_of};
use crate::why::Reason;

/// How long an answer may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a node's engine process.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    node: NodeName,
    timeout: Duration,
    /// Answers that did not come in time: they come before any other, for a node that
    /// was stopped goes on with what it was asked meanwhile.
    owed: u32,
    /// What has come was no answer.
    broken: bool,
    /// Descriptors are missing that came along with the last answer: there was no room
    /// for them.
    cut: bool,
}

/// What a process has of a node that it has attached to.
#[derive(Debug)]
pub struct Attached {
    /// Its place in the node.
    pub attachment: Attachment,
    /// How its children get in.
    pub door: Door,
}

/// Why a node did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The text is no name of a node.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Nobody listens.
    #[error(
        "no node named {node} runs in fabric {fabric}; start it with `toehold up {node}`, or see `toehold ps`"
    )]
    Unknown {
        /// The node.
        node: NodeName,
        /// The fabric.
        fabric: String,
    },
    /// It belongs to somebody else, and this user may not even ask it.
    #[error(
        "node {0} belongs to another user, and this user may not join its fabric; ask that user, or root (--allow-user)"
    )]
    Foreign(NodeName),
    /// It said no.
    #[error("node {node}: {refusal}")]
    Refused {
        /// The node.
        node: NodeName,
        /// What it said.
        refusal: Refusal,
    },
    /// It said nothing.
    #[error("node {node} does not answer; if its engine process is stopped, `kill -CONT {}` has it go on",
        process.map_or("PID".to_owned(), |process| process.to_string()))]
    TimedOut {
        /// The node.
        node: NodeName,
        /// Its engine process, if the kernel said which one that is.
        process: Option<u32>,
    },
    /// It is gone.
    #[error("node {0} has ended")]
    HungUp(NodeName),
    /// It said something else.
    #[error("node {0} gave an answer that fits no question; is its engine process of another version?")]
    Nonsense(NodeName),
    /// The system refused.
    #[error("cannot reach node {node}: {source}")]
    System {
        /// The node.
        node: NodeName,
        /// What the system said.
        source: Errno,
    },
}

impl ControlError {
    /// Why a process is not on the node that did not let it attach.
    pub fn reason(&self) -> Reason {
        match self {
            ControlError::Name(_) | ControlError::Unknown { .. } => Reason::NoNode,
            ControlError::TimedOut { .. } | ControlError::HungUp(_) => Reason::NoNode,
            ControlError::Foreign(_) => Reason::OtherUser,
            ControlError::Refused { refusal, .. } => refusal.reason.unwrap_or(Reason::NodeFull),
            ControlError::Nonsense(_) => Reason::OtherBuild,
            ControlError::System { source, .. } => Reason::of_system(Some(*source)),
        }
    }
}

impl Connection {
    /// Connects to a node.
    ///
    /// # Errors
    ///
    /// If there is no such node, or it belongs to another user.
    pub fn open(fabric: &Fabric, node: &str) -> Result<Connection, ControlError> {
        let node: NodeName = node.parse()?;
        let deadline = Instant::now() + TIMEOUT;
        let system = |source| ControlError::System { node, source };
        let socket = loop {
            match fabric.dial_control(&node) {
                Ok(socket) => break keep(socket),
                Err(Errno::INTR) => {}
                // Others are before us; sockets of this kind cannot be waited for.
                Err(Errno::AGAIN) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Errno::AGAIN) => return Err(ControlError::TimedOut { node, process: None }),
                Err(Errno::NOENT | Errno::CONNREFUSED) => {
                    let fabric = fabric.name().to_owned();
                    return Err(ControlError::Unknown { node, fabric });
                }
                Err(Errno::ACCESS | Errno::PERM) => return Err(ControlError::Foreign(node)),
                Err(errno) => return Err(system(errno)),
            }
        };
        // Those who may write to the directory could pose as the node; but not as its user.
        let server = peer_uid(socket.as_fd()).map_err(system)?;
        if fabric.user_of(&node) != Some(server) {
            return Err(ControlError::Foreign(node));
        }
        Ok(Connection::over(socket, node))
    }

    /// The user whose node it is, if that is not this process's.
    pub fn other_user(&self) -> Option<u32> {
        match is_own_user(self.socket.as_fd()) {
            true => None,
            false => peer_uid(self.socket.as_fd()).ok(),
        }
    }

    pub(super) fn over(socket: OwnedFd, node: NodeName) -> Connection {
        Connection {
            socket,
            node,
            timeout: TIMEOUT,
            owed: 0,
            broken: false,
            cut: false,
        }
    }

    /// The same, with another time that an answer may take; 10 s by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Connection {
        self.timeout = timeout;
        self
    }

    /// The node's name.
    pub fn node(&self) -> NodeName {
        self.node
    }

    /// Readable when the node has ended: it says nothing that was not asked.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Waits for the node's end, or until `timeout` has passed or a signal comes.
    /// Returns whether it has ended.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn wait_for_end(&self, timeout: Duration) -> Result<bool, ControlError> {
        match poll(
            &mut [PollFd::new(&self.socket, PollFlags::RDHUP)],
            Some(&timespec(timeout)),
        ) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(self.system(errno)),
        }
    }

    /// Makes this process one of the node's, until the connection is dropped.
    ///
    /// # Errors
    ///
    /// If the node refuses, is of another version, or does not answer.
    pub fn attach(&mut self) -> Result<Attached, ControlError> {
        let request = Request::Attach {
            version: VERSION,
            build: BUILD.to_owned(),
        };
        match self.ask(&request, &[])? {
            (Answer::Attached { process, description }, mut descriptors) => {
                let closings = descriptors.pop().ok_or_else(|| self.nonsense())?;
                let door = descriptors.pop().ok_or_else(|| self.nonsense())?;
                let attachment = Attachment {
                    process,
                    description,
                    descriptors,
                };
                let door = Door::new(door, closings);
                Ok(Attached { attachment, door })
            }
            _ => Err(self.nonsense()),
        }
    }

    /// Makes this process one of the node's with what the one that it was forked from has of
    /// it, and says its number.
    ///
    /// # Errors
    ///
    /// If the node refuses, has begun another life, or does not answer.
    pub fn take_over(&mut self, life: u64) -> Result<u16, ControlError> {
        match self.ask(&Request::TakeOver { life }, &[])? {
            (Answer::TakenOver(process), _) => Ok(process),
            _ => Err(self.nonsense()),
        }
    }

    /// The descriptors of a peer of one of the shards, `None` if it has left.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node does not answer.
    pub fn peer(
        &mut self,
        shard: u8,
        slot: u16,
        generation: u16,
    ) -> Result<Option<Vec<OwnedFd>>, ControlError> {
        let descriptors = self.descriptors(&Request::Peer {
            shard,
            slot,
            generation,
        })?;
        Ok((!descriptors.is_empty()).then_some(descriptors))
    }

    /// The descriptors of a bank of direct connections, `None` if it is not there any more.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node does not answer.
    pub fn bank(&mut self, slot: u16, generation: u32) -> Result<Option<Vec<OwnedFd>>, ControlError> {
        let descriptors = self.descriptors(&Request::Bank { slot, generation })?;
        Ok((!descriptors.is_empty()).then_some(descriptors))
    }

    /// The descriptors of a set of bells, `None` if there is no such set.
    ///
    /// # Errors
    ///
    /// If the process has not attached or has no room for descriptors, or the node does not answer.
    pub fn bells(&mut self, which: BellsOf) -> Result<Option<Vec<OwnedFd>>, ControlError> {
        let descriptors = self.descriptors(&Request::Bells { which })?;
        Ok((!descriptors.is_empty()).then_some(descriptors))
    }

    /// Has the engine ring a waiter on a bell of a set.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node does not answer.
    pub fn ring(&mut self, which: BellsOf, waiter: u16) -> Result<(), ControlError> {
        self.done(&Request::Ring { which, waiter }, &[])
    }

    /// Holders, whose other ends the node has, and their numbers: at least one, but
    /// perhaps fewer than `count`.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer;
    /// EMFILE if this process has no room for descriptors.
    pub fn holders(&mut self, count: u16) -> Result<Vec<(u32, OwnedFd)>, ControlError> {
        let (answer, descriptors) = self.exchange(&Request::Holders { count }, &[])?;
        match answer {
            Answer::Holders(_) if descriptors.is_empty() => Err(self.system(Errno::MFILE)),
            // The first of them came along.
            Answer::Holders(numbers) => Ok(numbers.into_iter().zip(descriptors).collect()),
            _ => Err(self.nonsense()),
        }
    }

    /// The number of the holder that a descriptor is.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the descriptor is no holder of the node.
    pub fn identify(&mut self, descriptor: BorrowedFd<'_>) -> Result<u32, ControlError> {
        let copy = copy_for_a_moment(descriptor);
        let copy = copy.map_err(|errno| self.system(errno))?;
        match self.ask(&Request::Identify, &[copy])? {
            (Answer::Holders(numbers), _) => numbers.first().copied().ok_or_else(|| self.nonsense()),
            _ => Err(self.nonsense()),
        }
    }

    /// Lets go of a holder that other processes may have too. If none has, gives its number
    /// and a descriptor of it that nobody else has; the former one, which is only
    /// closed in the order of this call, says nothing any more. `None`: others have it.
    ///
    /// # Errors
    ///
    /// If the process has not attached, the descriptor is no holder of the node, or the
    /// node does not answer: it closes what nobody else has, after the next request if
    /// it is late.
    pub fn inherit(&mut self, descriptor: OwnedFd) -> Result<Option<(u32, OwnedFd)>, ControlError> {
        self.done(&Request::Entrust, std::slice::from_ref(&descriptor))?;
        drop(descriptor);
        match self.ask(&Request::Inherit, &[])? {
            (Answer::Holders(numbers), descriptors) => Ok(numbers.into_iter().zip(descriptors).next()),
            _ => Err(self.nonsense()),
        }
    }

    /// Takes a port from the kernel beside the node, for the listener that a holder will
    /// stand for, and says which: 0 is any.
    ///
    /// # Errors
    ///
    /// `System` with ADDRINUSE if a program of the kernel's has it; if the process has not
    /// attached, or the node refuses or does not answer.
    pub fn take_port(
        &mut self,
        holder: u32,
        address: SocketAddr,
        only_ipv6: bool,
    ) -> Result<u16, ControlError> {
        let request = Request::TakePort {
            holder,
            address,
            only_ipv6,
        };
        match self.ask(&request, &[])? {
            (Answer::Port(port), _) => Ok(port),
            (Answer::NoPort(errno), _) => Err(self.system(Errno::from_raw_os_error(errno))),
            _ => Err(self.nonsense()),
        }
    }

    /// Gives back the port of a holder whose listener is closed.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer.
    pub fn release_port(&mut self, holder: u32) -> Result<(), ControlError> {
        self.done(&Request::ReleasePort { holder }, &[])
    }

    /// Has the node carry the bytes between a connection of a shard, that a holder stands for,
    /// and its descriptor.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer.
    pub fn relay(&mut self, shard: u8, holder: u32) -> Result<(), ControlError> {
        self.done(&Request::Relay { shard, holder }, &[])
    }

    /// Has the kernel signal the owner of a connection of a shard, that a holder stands for, when
    /// its peer announces urgent data: whoever owns the first of two connected Unix sockets.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer.
    pub fn own(&mut self, shard: u8, holder: u32, messenger: [OwnedFd; 2]) -> Result<(), ControlError> {
        self.done(&Request::Own { shard, holder }, &messenger)
    }

    /// Has the node connect those who connect to the listener that a holder stands for to one
    /// of the kernel's, and note in the table that comes with it who they are.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer.
    pub fn forward(
        &mut self,
        holder: u32,
        descriptors: [OwnedFd; 2],
        which: Forwarded,
    ) -> Result<(), ControlError> {
        self.done(&Request::Forward { holder, which }, &descriptors)
    }

    /// The record of a node of the fabric, or those of all nodes, as the engine sees them. For processes that
    /// may not look into the fabric's directory themselves.
    ///
    /// # Errors
    ///
    /// If the node does not answer.
    pub fn names(&mut self, node: Option<&str>) -> Result<Vec<NodeRecord>, ControlError> {
        let node = node.map(str::to_owned);
        match self.ask(&Request::Names { node }, &[])? {
            (Answer::Names(records), _) => Ok(records),
            _ => Err(self.nonsense()),
        }
    }

    /// The node's engine process, as the kernel knows it.
    ///
    /// # Errors
    ///
    /// `System` with SRCH if it is of a namespace that cannot be seen from here.
    pub fn engine(&self) -> Result<Pid, ControlError> {
        let pid = process_at(self.socket.as_fd());
        let pid = pid.and_then(|pid| Pid::from_raw(pid as i32));
        pid.ok_or_else(|| self.system(Errno::SRCH))
    }

    fn done(&mut self, request: &Request, descriptors: &[OwnedFd]) -> Result<(), ControlError> {
        match self.ask(request, descriptors)? {
            (Answer::Done, _) => Ok(()),
            _ => Err(self.nonsense()),
        }
    }

    fn descriptors(&mut self, request: &Request) -> Result<Vec<OwnedFd>, ControlError> {
        match self.ask(request, &[])? {
            (Answer::Descriptors, descriptors) => Ok(descriptors),
            _ => Err(self.nonsense()),
        }
    }

    fn ask(
        &mut self,
        request: &Request,
        descriptors: &[OwnedFd],
    ) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        match self.exchange(request, descriptors)? {
            (_, descriptors) if self.cut => {
                drop(descriptors);
                Err(self.system(Errno::MFILE))
            }
            answered => Ok(answered),
        }
    }

    fn exchange(
        &mut self,
        request: &Request,
        descriptors: &[OwnedFd],
    ) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        let asked = self.post(request, descriptors).and_then(|()| self.take(0));
        self.heard(asked)
    }

    /// Tells a refusal from another answer, and remembers an error after which nothing can be
    /// asked any more.
    fn heard(
        &mut self,
        asked: Result<(Answer, Vec<OwnedFd>), ControlError>,
    ) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        match asked {
            Ok((Answer::Refused(refusal), _)) => Err(ControlError::Refused {
                node: self.node,
                refusal,
            }),
            Ok(answered) => Ok(answered),
            Err(error) => {
                self.broken |= !matches!(error, ControlError::TimedOut { .. });
                Err(error)
            }
        }
    }

    /// Asks, without waiting for the answer.
    fn post(&mut self, request: &Request, descriptors: &[OwnedFd]) -> Result<(), ControlError> {
        if self.broken {
            return Err(ControlError::HungUp(self.node));
        }
        self.send(request, descriptors)?;
        self.owed += 1;
        Ok(())
    }

    /// Takes answers until `left` are still to come, and returns the last one taken.
    fn take(&mut self, left: u32) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        loop {
            let answered = self.receive()?;
            self.owed -= 1;
            if self.owed == left {
                return Ok(answered);
            }
        }
    }

    fn send(&self, request: &Request, descriptors: &[OwnedFd]) -> Result<(), ControlError> {
        let bytes = serde_json::to_vec(request).map_err(|_| self.nonsense())?;
        let deadline = Instant::now() + self.timeout;
        loop {
            match packet::send(self.socket.as_fd(), &bytes, descriptors, SendFlags::DONTWAIT) {
                // The node has hung up; it may have said why.
                Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                Err(errno) => return Err(self.system(errno)),
            }
        }
    }

    fn receive(&mut self) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        let deadline = Instant::now() + self.timeout;
        let mut buffer = vec![0; MAX_PACKET];
        let mut reset = false;
        let (len, mut descriptors) = loop {
            match packet::receive(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT) {
                Ok(Packet::Message(len, descriptors)) => {
                    self.cut = false;
                    break (len, descriptors);
                }
                Ok(Packet::Cut(len, descriptors)) => {
                    self.cut = true;
                    break (len, descriptors);
                }
                Ok(Packet::HungUp) => return Err(ControlError::HungUp(self.node)),
                Ok(Packet::Oversized) => return Err(self.nonsense()),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline)?,
                // That what was sent was not read comes first; what the node has
                // said before it hung up comes after it.
                Err(Errno::CONNRESET) if !reset => reset = true,
                Err(_) => return Err(ControlError::HungUp(self.node)),
            }
        };
        let answer = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|_| self.nonsense());
        match answer(&buffer[..len])? {
            Answer::InMemory { bytes } if !descriptors.is_empty() => {
                let file = descriptors.remove(0);
                let bytes = packet::from_file(&file, bytes).map_err(|_| self.nonsense())?;
                Ok((answer(&bytes)?, descriptors))
            }
            answer => Ok((answer, descriptors)),
        }
    }

    fn wait(&self, flags: PollFlags, deadline: Instant) -> Result<(), ControlError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ControlError::TimedOut {
                node: self.node,
                process: process_at(self.socket.as_fd()),
            });
        }
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&timespec(left))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(self.system(errno)),
        }
    }

    fn system(&self, source: Errno) -> ControlError {
        ControlError::System {
            node: self.node,
            source,
        }
    }

    fn nonsense(&self) -> ControlError {
        ControlError::Nonsense(self.node)
    }
}

/// The number of the process at the other end, if it can be seen from here.
fn process_at(socket: BorrowedFd<'_>) -> Option<u32> {
    let credentials = PeerCredentials::of(socket).ok()?;
    let process = process_of(socket, &credentials).ok()??;
    number_of(process.as_fd())
}

pub(super) fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: span.as_secs() as i64,
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}
