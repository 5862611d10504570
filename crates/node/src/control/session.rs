//! One client of the control server: its socket, its process, and the answer it
//! has not taken yet.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::net::SendFlags;
use toehold_link::credentials::PeerCredentials;

use super::message::{Answer, MAX_PACKET};
use super::packet;
use super::status::ProcessStatus;
use crate::fabric::Rights;
use crate::seen::{number_of, process_of};

/// The limits of clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Clients at once; more are told so and hung up on.
    pub(crate) sessions: usize,
    /// How long an answer waits for its client.
    pub(crate) slow: Duration,
    /// How long a client that has not attached may say nothing.
    pub(crate) idle: Duration,
    /// How long a node that ends with its last user waits for the first one. It is longer than the
    /// program that starts the node waits for its beginning.
    pub(crate) grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            sessions: 1024,
            slow: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            grace: Duration::from_secs(60),
        }
    }
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) socket: OwnedFd,
    /// The process's number in `/proc`, as this process has it; 0 if it has none there.
    pub(super) pid: u32,
    pub(super) uid: u32,
    pub(super) rights: Rights,
    /// The process, or that it had ended before it was looked for. Watched once it has attached.
    pub(super) pidfd: Result<Option<OwnedFd>, Errno>,
    /// The client's number in the node, and since when it has it.
    pub(super) process: Option<(u16, SystemTime)>,
    /// The client has begun a capture.
    pub(super) captures: bool,
    /// A descriptor that it has let go of, to be told whether it was the last one to.
    pub(super) entrusted: Option<OwnedFd>,
    /// An answer that found its client's socket full.
    unsent: Option<(Vec<u8>, Vec<OwnedFd>)>,
    /// When the client asked, or took an answer, last.
    active: Instant,
}

/// A packet, ready to be sent.
pub(super) type Outgoing = (Vec<u8>, Vec<OwnedFd>);

impl Session {
    pub(super) fn new(socket: OwnedFd, rights: Rights) -> Result<Session, Errno> {
        let credentials = PeerCredentials::of(socket.as_fd())?;
        let pidfd = process_of(socket.as_fd(), &credentials);
        let seen = pidfd.as_ref().ok().and_then(Option::as_ref);
        let pid = seen.and_then(|process| number_of(process.as_fd())).unwrap_or(0);
        Ok(Session {
            pid,
            uid: credentials.uid,
            rights,
            socket,
            pidfd,
            process: None,
            captures: false,
            entrusted: None,
            unsent: None,
            active: Instant::now(),
        })
    }

    /// Another descriptor that becomes readable when the client's process ends; `None` if that cannot be had.
    ///
    /// # Errors
    ///
    /// `SRCH` if it has ended.
    pub(super) fn open_pidfd(&self) -> Result<Option<OwnedFd>, Errno> {
        let process = self.pidfd.as_ref().map_err(|errno| *errno)?;
        Ok(process.as_ref().and_then(|process| process.try_clone().ok()))
    }

    /// Sends an answer, or keeps it until there is room.
    ///
    /// # Errors
    ///
    /// If the client is gone.
    pub(super) fn answer(&mut self, outgoing: Outgoing) -> Result<(), Errno> {
        self.active = Instant::now();
        self.unsent = Some(outgoing);
        self.flush()
    }

    /// Sends the answers that wait.
    ///
    /// # Errors
    ///
    /// If the client is gone.
    pub(super) fn flush(&mut self) -> Result<(), Errno> {
        let Some((bytes, descriptors)) = &self.unsent else {
            return Ok(());
        };
        match packet::send(self.socket.as_fd(), bytes, descriptors, SendFlags::DONTWAIT) {
            Ok(()) => {
                self.unsent = None;
                self.active = Instant::now();
                Ok(())
            }
            Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether an answer waits. The client is not listened to meanwhile.
    pub(super) fn is_full(&self) -> bool {
        self.unsent.is_some()
    }

    /// When the client is dropped if nothing happens.
    pub(super) fn deadline(&self, limits: Limits) -> Option<Instant> {
        if self.is_full() {
            Some(self.active + limits.slow)
        } else if self.process.is_none() && !self.captures {
            Some(self.active + limits.idle)
        } else {
            None
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The session's status for people, if its client has attached.
    pub(super) fn status(&self) -> Option<ProcessStatus> {
        let (process, since) = self.process?;
        let command = std::fs::read_to_string(format!("/proc/{}/comm", self.pid));
        Some(ProcessStatus {
            process,
            pid: self.pid,
            command: command.map_or_else(|_| String::new(), |name| name.trim_end().to_owned()),
            since: since
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        })
    }
}

/// An answer as a packet; one that is too long for that lies in a file instead.
///
/// # Errors
///
/// If there is no memory for the file, or no descriptor.
pub(super) fn outgoing(answer: &Answer, descriptors: Vec<OwnedFd>) -> Result<Outgoing, Errno> {
    let bytes = serde_json::to_vec(answer).map_err(|_| Errno::INVAL)?;
    if bytes.len() <= MAX_PACKET {
        return Ok((bytes, descriptors));
    }
    let in_memory = Answer::InMemory {
        bytes: bytes.len() as u64,
    };
    let packet = serde_json::to_vec(&in_memory).map_err(|_| Errno::INVAL)?;
    let mut all = vec![packet::to_file(&bytes)?];
    all.extend(descriptors);
    Ok((packet, all))
}
