//! The door: how children of a node's processes get in.
//!
//! A child may have given up what lets it in at the socket in the fabric's directory: its user, its
//! root, its view of `/proc`. It has its parent's memory and descriptors, so refusing it would keep
//! nothing from it.
//!
//! Every process that attaches gets a copy of one socket, of which the server has the other end.
//! Through it come descriptors. Each is one end of a pair of sockets whose other end the sender has,
//! and a client like any other. The kernel tells which process has made a pair, so such a client is
//! known by its own process and user.
//!
//! The socket that keeps a node ([`Connection::keep`]) works in the same way. A program that was
//! begun by `exec`, as another user or in another root, comes in by that.
//!
//! The server answers nothing at the door, so that all processes may use it at once. A process may
//! only wait until the engine has closed what no process has any more. It leaves a bell there, which
//! takes no memory and no lock, so that a signal's handler can do it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use toehold_link::mq::NodeName;
use toehold_shm::Doorbell;

use super::connection::{Connection, ControlError, TIMEOUT, timespec};
use super::packet::{self, Packet};
use crate::descriptors::keep;
use crate::why::Report;

/// The packet of a process that asks to be let in. A packet of no bytes would look like an end.
const KNOCK: &[u8] = b".";

/// The packet of a process that leaves a bell. A packet of no bytes would look like an end.
const BELL: &[u8] = b"!";

/// The first byte of a report.
const REPORT: u8 = b'r';

/// A way to a node's engine. A process gets it from the engine, and its children inherit it.
#[derive(Debug)]
pub struct Door {
    pub(super) way_in: OwnedFd,
    /// Readable as long as something is to be closed that no process has any more.
    closings: OwnedFd,
}

impl Door {
    pub(super) fn new(way_in: OwnedFd, closings: OwnedFd) -> Door {
        Door { way_in, closings }
    }

    /// A connection to the engine that has given the door.
    ///
    /// # Errors
    ///
    /// `HungUp` if that engine has ended; another error if it lets no process in, or the system
    /// refuses.
    pub fn enter(&self, node: NodeName) -> Result<Connection, ControlError> {
        enter(self.way_in.as_fd(), node)
    }
}

/// A connection to the engine at the other end of a door, or of what [keeps](Connection::keep) a node.
///
/// # Errors
///
/// `HungUp` if that engine has ended; another error if it lets no process in, or the system
/// refuses.
pub fn enter(way_in: BorrowedFd<'_>, node: NodeName) -> Result<Connection, ControlError> {
    let system = |source| ControlError::System { node, source };
    let (own, theirs) = pair().map_err(system)?;
    let deadline = Instant::now() + TIMEOUT;
    let given = [theirs];
    loop {
        match packet::send(way_in, KNOCK, &given, SendFlags::DONTWAIT) {
            Ok(()) => return Ok(Connection::over(keep(own), node)),
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(ControlError::HungUp(node)),
            // Others are before us.
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(system(errno)),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ControlError::TimedOut { node, process: None });
        }
        match poll(
            &mut [PollFd::from_borrowed_fd(way_in, PollFlags::OUT)],
            Some(&timespec(left)),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(system(errno)),
        }
    }
}

/// Returns whether a server is at the other end of a descriptor that keeps a node.
pub fn leads_somewhere(way_in: BorrowedFd<'_>) -> bool {
    let mut state = [PollFd::from_borrowed_fd(way_in, PollFlags::OUT)];
    let is_told = poll(&mut state, Some(&timespec(Duration::ZERO))).is_ok();
    is_told
        && !state[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Whether no process has the other end any more.
pub(super) fn has_hung_up(inside: BorrowedFd<'_>) -> bool {
    let mut state = [PollFd::from_borrowed_fd(inside, PollFlags::RDHUP)];
    let is_told = poll(&mut state, Some(&timespec(Duration::ZERO))).is_ok();
    is_told && !state[0].revents().is_empty()
}

/// Tells the engine at the other end of what keeps a node of a program that is not on the node. Waits for
/// nothing: if the engine does not keep up, nothing is told.
pub fn tell(way_in: BorrowedFd<'_>, report: &Report) {
    let mut bytes = vec![REPORT];
    bytes.extend(report.to_bytes());
    if bytes.len() <= Report::MAX_LEN {
        let _ = packet::send(way_in, &bytes, &[], SendFlags::DONTWAIT);
    }
}

impl Door {
    /// Waits until all is closed that no process has any more by now, but no longer than `longest`.
    pub fn await_closing(&self, longest: Duration) {
        let mut closings = [PollFd::new(&self.closings, PollFlags::IN)];
        if poll(&mut closings, Some(&timespec(Duration::ZERO))) == Ok(0) {
            return;
        }
        let Ok(bell) = Doorbell::new() else { return };
        let given = bell.into_fd();
        // If others are before us, what there is to be closed is closed soon.
        if packet::send_one(self.way_in.as_fd(), BELL, given.as_fd(), SendFlags::DONTWAIT).is_err() {
            return;
        }
        let deadline = Instant::now() + longest;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut state = [
                PollFd::new(&given, PollFlags::IN),
                // An engine that has ended rings no bell.
                PollFd::new(&self.way_in, PollFlags::empty()),
            ];
            match poll(&mut state, Some(&timespec(left))) {
                Err(Errno::INTR) if !left.is_zero() => {}
                _ => return,
            }
        }
    }
}

/// A message that has come through the door.
#[derive(Debug)]
pub(super) enum Visitor {
    Client(OwnedFd),
    /// A process that asks for a ring of this doorbell when everything is closed that no process
    /// has any more.
    Listener(Doorbell),
    /// Tells of a program that is not on the node.
    Report(Report),
    /// Has sent nonsense.
    Nobody,
    /// All processes that had the other end are gone.
    Gone,
}

/// The server's side.
#[derive(Debug)]
pub(super) struct Porch {
    /// The end at which clients come in.
    pub(super) inside: OwnedFd,
    /// The end that is handed out.
    outside: OwnedFd,
}

impl Porch {
    pub(super) fn new() -> Result<Porch, Errno> {
        let (inside, outside) = pair()?;
        Ok(Porch { inside, outside })
    }

    /// A door, for a process that attaches.
    pub(super) fn door(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.outside, 0)
    }
}

/// Receives the next message at the engine's end of a door.
///
/// # Errors
///
/// `AGAIN` if no message is there.
pub(super) fn next_visitor(inside: BorrowedFd<'_>) -> Result<Visitor, Errno> {
    let mut bytes = [0; Report::MAX_LEN];
    let (len, descriptors) = match packet::receive(inside, &mut bytes, RecvFlags::DONTWAIT)? {
        Packet::Message(len, descriptors) => (len, descriptors),
        Packet::HungUp => return Ok(Visitor::Gone),
        Packet::Oversized | Packet::Cut(..) => return Ok(Visitor::Nobody),
    };
    let given = descriptors.into_iter().next();
    Ok(match (&bytes[..len], given) {
        (BELL, Some(given)) => Visitor::Listener(Doorbell::from_fd(given)),
        (KNOCK, Some(given)) => Visitor::Client(given),
        ([REPORT, report @ ..], None) => Report::parse(report).map_or(Visitor::Nobody, Visitor::Report),
        _ => Visitor::Nobody,
    })
}

pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
