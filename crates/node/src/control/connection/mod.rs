//! A client's side of the control protocol: it waits, but never longer than its timeout.

mod error;
mod exchange;
mod holders;
mod keeping;
mod operator;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Pid;
use toehold_link::credentials::{PeerCredentials, is_own_user, peer_uid};
use toehold_link::mq::NodeName;

pub use self::error::ControlError;
pub(super) use self::exchange::timespec;
use super::door::Door;
use super::host::Attachment;
use super::message::{Answer, BUILD, Request, VERSION};
use crate::descriptors::keep;
use crate::direct::BellsOf;
use crate::fabric::{Fabric, NodeRecord};
use crate::seen::{number_of, process_of};

/// How long an answer may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a node's engine process.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    node: NodeName,
    timeout: Duration,
    /// Answers that did not come in time. They come before any other, for a node that was stopped
    /// goes on with what it was asked meanwhile.
    owed: u32,
    /// An answer that came was none to the request.
    broken: bool,
    /// Descriptors are missing that came along with the last answer: there was no room
    /// for them.
    cut: bool,
}

/// The memory and descriptors of a node that a process gets when it attaches.
#[derive(Debug)]
pub struct Attached {
    /// The process's place in the node.
    pub attachment: Attachment,
    /// The door by which its children get in.
    pub door: Door,
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
        // A user that may write to the directory could pose as the node, but not as its user.
        let server = peer_uid(socket.as_fd()).map_err(system)?;
        if fabric.user_of(&node) != Some(server) {
            return Err(ControlError::Foreign(node));
        }
        Ok(Connection::over(socket, node))
    }

    /// The user whose node it is, if that is another one than this process's.
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

    /// Sets the time that an answer may take; 10 s by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Connection {
        self.timeout = timeout;
        self
    }

    /// The node's name.
    pub fn node(&self) -> NodeName {
        self.node
    }

    /// The socket, which becomes readable when the node has ended: the node says nothing that was
    /// not asked.
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
